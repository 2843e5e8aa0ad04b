"""`make mutants`: try changes of the code, all or a sample; the score of each module.

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
NOTICED = {"killed", "timeout", "segfault"}  # a change that never ends has been noticed too
COLUMNS = ("killed", "timeout", "segfault", "survived", "no tests", "suspicious")


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
    """Names in random order, so many: the same from the same changes."""
    return random.Random(0).sample(sorted(names), size)


def run(names):
    program = Path(sys.executable).with_name("mutmut")  # `-m mutmut run` loads itself twice
    subprocess.run([program, "run", "--max-children", "2", *names], check=True)


def place(name):
    """Module and function of what mutmut calls a mutant of it: ``problem.loss``, ``as_weights``."""
    mangled = re.fullmatch(r"ntpnb\.([\w.]+)\.x_?(.+)__mutmut_\d+", name)
    function = mangled[2].strip("ǁ").replace("ǁ", ".")
    return mangled[1], function


def change(name):
    """The changed lines as they became, on one line."""
    lines = re.findall(r"^\+(?!\+\+ )(.*)", mutmut("show", name), re.MULTILINE)
    return " ".join(line.strip() for line in lines)


def scores(found):
    """Rows of a table: what came of the changes of each module, and of all."""
    counts = defaultdict(Counter)
    for name, status in found.items():
        counts[place(name)[0]][status] += 1
    counts = dict(sorted(counts.items()))
    for module, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        noticed = sum(count[status] for status in NOTICED)
        score = f"{noticed / count.total():.1%}"
        yield module, count.total(), *[count[status] for status in COLUMNS], score


def save(rows, number):
    """Keep the table with the commit's date and the number of changes that there are in all."""
    git = ["git", "log", "-1", "--format=%cs"]
    day = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    with (FOLDER / "mutants.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["commit of", "changes in all", "module", "tried", *COLUMNS, "score"])
        table.writerows([day, number, *row] for row in rows)


def main():
    write_changes()
    found = statuses()
    number = len(found)
    drawn = draw(found, int(sys.argv[1])) if sys.argv[1:] else list(found)
    left = [name for name in drawn if found[name] == "not checked"]
    if left:
        run(left if sys.argv[1:] else [])
    found = statuses()
    found = {name: found[name] for name in drawn}
    print(f"\n{len(found)} of {number} changes")
    rows = list(scores(found))
    for row in [("module", "tried", *COLUMNS, "score"), *rows]:
        print(f"{row[0]:<25}", *[f"{cell:>10}" for cell in row[1:]])
    save(rows, number)
    survived = defaultdict(set)
    for name, status in found.items():
        if status not in NOTICED:
            survived[".".join(place(name))].add(change(name))
    explained = defaultdict(set)
    for group in yaml.safe_load((FOLDER / "survivors.yml").read_text("utf-8")):
        for where, changes in group["mutants"].items():
            explained[where].update(changes)
    listed = [("survives without a reason in survivors.yml", survived, explained)]
    if len(found) == number:  # of a sample nobody knows what else would have survived
        listed.append(("stands in survivors.yml and does not survive", explained, survived))
    for heading, some, known in listed:
        lines = [f"  {w}: {c}" for w in some for c in sorted(some[w] - known.get(w, set()))]
        if lines:
            print(f"\n{len(lines)}: {heading}", *lines, sep="\n")


if __name__ == "__main__":
    main()
