"""`make mutants`: try changes of the code, all or a sample; the score of each room.

``python tests/repository/mutants.py [SAMPLE]`` writes the changes, runs the tests on them, and says
which of those that no test noticed `survivors.yml` does not explain. What was tried before is not
tried again while the folder `mutants` is there.
"""

import csv
import random
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent
TABLE = FOLDER.parents[1] / "benchmarks/results/mutants.csv"
# A change that never ends has been noticed too, and one that ends the process: by an abort, mutmut
# calls it suspicious.
NOTICED = {"killed", "timeout", "segfault", "suspicious"}
COLUMNS = ("changes", "tried", "noticed", "by the time limit", "survived", "met no test", "score")


def mutmut(*arguments):
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def write_changes():
    """Do what ``mutmut run`` begins with, for which mutmut has no command of its own."""
    from mutmut.__main__ import CatchOutput, create_mutants
    from mutmut.mutation.trampoline import set_mutant_under_test
    from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir

    set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir(exist_ok=True)
    with CatchOutput(spinner_title="Generating mutants"):  # instead of each file's name
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(max_children=2)


def statuses():
    """What came of each change by its name, such as "killed", or "not checked"."""
    return dict(re.findall(r"^ +(\S+): (.+)", mutmut("results", "--all", "true"), re.M))


def draw(names, size):
    """Names in random order, so many: from the same changes the same, and a larger sample adds."""
    names = sorted(names)
    random.Random(0).shuffle(names)
    return names[:size]


def run(names):
    program = Path(sys.executable).with_name("mutmut")  # `-m mutmut run` loads itself twice
    subprocess.run([program, "run", "--max-children", "2", *names], check=True)


def place(name):
    """Module and function of what mutmut calls a mutant of it: ``problem.loss``, ``as_weights``."""
    mangled = re.fullmatch(r"ntpnb\.([\w.]+)\.x_?(.+)__mutmut_\d+", name)
    function = mangled[2].strip("ǁ").replace("ǁ", ".")
    return mangled[1], function


def room(name):
    """The room of the package that a mutant changes, such as ``problem``."""
    return place(name)[0].partition(".")[0]


def change(name):
    """The changed lines as they became, on one line."""
    lines = re.findall(r"^\+(?!\+\+ )(.*)", mutmut("show", name), re.MULTILINE)
    return " ".join(line.strip() for line in lines)


def scores(there, found):
    """Rows of a table: what came of the changes of each room, and of all.

    ``there`` names all changes, ``found`` has the statuses of those that were tried.
    """
    changes = Counter(map(room, there))
    counts = defaultdict(Counter)
    for name, status in found.items():
        counts[room(name)][status] += 1
    rooms = [(where, changes[where], counts[where]) for where in sorted(changes)]
    for where, number, count in [*rooms, ("all", len(there), sum(counts.values(), Counter()))]:
        tried, by_time, met_no_test = count.total(), count["timeout"], count["no tests"]
        noticed = sum(count[status] for status in NOTICED)
        survived = tried - noticed - met_no_test
        score = f"{noticed / tried:.1%}" if tried else "–"
        yield where, number, tried, noticed, by_time, survived, met_no_test, score


def save(rows):
    """Keep the table, with the date of the commit."""
    git = ["git", "log", "-1", "--format=%cs"]
    day = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([f"room, commit of {day}", *COLUMNS])
        table.writerows(rows)


def main():
    write_changes()
    there = statuses()
    drawn = draw(there, int(sys.argv[1])) if sys.argv[1:] else list(there)
    left = [name for name in drawn if there[name] == "not checked"]
    if left:
        run(left if sys.argv[1:] else [])
    found = statuses()
    found = {name: found[name] for name in drawn}
    rows = list(scores(there, found))
    print()
    for row in [("room", *COLUMNS), *rows]:
        print(f"{row[0]:<12}", *[f"{cell:>18}" for cell in row[1:]])
    save(rows)
    survived = {
        (".".join(place(name)), change(name))
        for name, status in found.items()
        if status not in NOTICED
    }
    groups = yaml.safe_load((FOLDER / "survivors.yml").read_text("utf-8"))
    explained = {
        (where, line)
        for group in groups
        for where, lines in group["mutants"].items()
        for line in lines
    }
    listed = {"survives without a reason in survivors.yml": survived - explained}
    if len(found) == len(there):  # of a sample nobody knows what else would have survived
        listed["stands in survivors.yml and does not survive"] = explained - survived
    for heading, changes in listed.items():
        if changes:
            lines = [f"  {where}: {line}" for where, line in sorted(changes)]
            print(f"\n{len(lines)}: {heading}", *lines, sep="\n")


if __name__ == "__main__":
    main()
