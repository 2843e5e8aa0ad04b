"""After `make mutants`: the score of each module, and what survivors.yml does not explain."""

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import yaml

NOTICED = {"killed", "timeout", "segfault"}  # a change that never ends has been noticed too


def mutmut(*arguments):
    command = [sys.executable, "-m", "mutmut", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def place(name):
    """Module and function of what mutmut calls a mutant of it: ``problem.loss``, ``as_weights``."""
    mangled = re.fullmatch(r"ntpnb\.([\w.]+)\.x_?(.+)__mutmut_\d+", name)
    function = mangled[2].strip("ǁ").replace("ǁ", ".")
    return mangled[1], function


def change(name):
    """The changed lines as they became, on one line."""
    lines = re.findall(r"^\+(?!\+\+ )(.*)", mutmut("show", name), re.MULTILINE)
    return " ".join(line.strip() for line in lines)


def main():
    statuses = dict(re.findall(r"^ +(\S+): (.+)", mutmut("results", "--all", "true"), re.M))
    counts = defaultdict(Counter)
    survived = defaultdict(set)
    for name, status in statuses.items():
        module, function = place(name)
        counts[module][status in NOTICED] += 1
        if status not in NOTICED:
            survived[f"{module}.{function}"].add(change(name))
    print("module                    mutants  noticed  score")
    for module, count in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        total = count.total()
        noticed = count[True]
        print(f"{module:<25} {total:7} {noticed:8} {noticed / total:6.1%}")
    explained = defaultdict(set)
    for group in yaml.safe_load(Path(__file__).with_name("survivors.yml").read_text("utf-8")):
        for where, changes in group["mutants"].items():
            explained[where].update(changes)
    for heading, found, known in [
        ("survives without a reason in survivors.yml", survived, explained),
        ("stands in survivors.yml and does not survive", explained, survived),
    ]:
        lines = [f"  {w}: {c}" for w in found for c in sorted(found[w] - known.get(w, set()))]
        if lines:
            print(f"\n{len(lines)}: {heading}", *lines, sep="\n")


if __name__ == "__main__":
    main()
