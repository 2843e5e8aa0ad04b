"""Run the benchmarks and write their tables: ``python -m benchmarks --help``.

Every race runs in a process of its own. Contenders that are not installed are named, not hidden.
"""

import argparse
import json
from pathlib import Path

from benchmarks import margin, report, text, threads, training, workers
from benchmarks.timing import isolated, versions

ROOT = Path(__file__).resolve().parents[1]
# V, m, d and the size S of the supports
PAPER, MIDDLE, LARGE = (10, 50, 60, 6), (20, 100, 120, 6), (50, 200, 250, 6)
FULL = {
    "margin": [(PAPER, 7), (MIDDLE, 3), (LARGE, 1)],
    "alone": [
        *[(PAPER, 7), (MIDDLE, 7), (LARGE, 5)],
        *[((100, 500, 600, 10), 3), ((200, 1000, 1200, 20), 1)],
    ],
    "descent": [
        ("numpy loop", PAPER, 2000, 7),
        ("PyTorch loop", PAPER, 2000, 7),
        ("matrix products", (1000, 1000, 1000, 6), 10, 5),
    ],
    "trials": [
        (name, *setting)
        for name in ("numpy loop", "PyTorch loop")
        for setting in (("acyclic", 4000, 100, 3, 3), ("cyclic", 500, 100, 10, 5))
    ],
    "path and flow": [(PAPER, 81, 3)],
    "text": text.RACES,
    "growth": [(name, (5, 10, 16, 31, 60, 106), 60, 60) for name in text.PROGRAMS_OF_VERDICTS],
    "threads": [
        ("all threads always", "max_margin", 20, PAPER, 3),
        ("all threads always", "max_margin", 5, MIDDLE, 3),
        ("all threads always", "report", 1, PAPER, 3),
        ("one thread always", "gradient", 1, (2000, 2000, 2000, 6), 5),
    ],
    "workers": [(2, 20_000, 2000, 64, 3), (2, 5000, 2000, 64, 3)],
}
SMALL = (4, 8, 10, 2)
TINY = {
    "margin": [(SMALL, 1)],
    "alone": [(SMALL, 1), ((5, 10, 12, 2), 1)],
    "descent": [(name, SMALL, 20, 1) for name in training.CONTENDERS],
    "trials": [(name, "cyclic", 20, 5, 2, 1) for name in ("numpy loop", "PyTorch loop")],
    "path and flow": [(SMALL, 3, 1)],
    "text": [
        *[(["random", 3, 6, 8, 1], "solution", name, 60) for name in text.PROGRAMS],
        (["bigrams", "Genesis", 1, 2], "verdict", "ours", 60),
        (["random text", 30, 10, 20], "gap", "ours", 60),
        *[(["hidden states", 6, 9, 8], "verdict", name, 60) for name in ("ours", "HiGHS")],
    ],
    "growth": [(name, (1, 2), 60, 60) for name in text.PROGRAMS_OF_VERDICTS],
    "threads": [
        ("all threads always", "max_margin", 2, SMALL, 1),
        ("one thread always", "gradient", 1, SMALL, 1),
    ],
    "workers": [(2, 2100, 2000, 1, 1)],
}
FUNCTIONS = {
    "alone": margin.alone,
    "descent": training.descent,
    "trials": training.trials,
    "path and flow": training.path_and_flow,
    "text": text.race,
    "growth": text.growth,
    "threads": threads.against,
    "workers": workers.floor,
}
OWN_PROCESSES = ("text", "growth")
"""Parts whose functions start a process for each measurement themselves."""

NOT_LARGE = ("DAQP", "PIQP")
"""Left out at the largest size: gigabytes of dense matrices, and longer than cvxpy's slowest."""


def races(suite, part, missing):
    """Yield the calls that make the records of a part, with contenders that are not missing."""
    needs = margin.CONTENDERS | training.CONTENDERS | text.CONTENDERS
    absent = {name for name, modules in needs.items() if set(modules) & set(missing)}
    if part != "margin":
        for arguments in suite[part]:
            if not absent.intersection(each for each in arguments if isinstance(each, str)):
                yield FUNCTIONS[part], *arguments
        return
    for size, repeats in suite[part]:
        for name in margin.CONTENDERS:
            if name not in absent and not (size == LARGE and name.endswith(NOT_LARGE)):
                one_hot = name.endswith("LinearSVC")
                yield margin.against, name, (*size[:3], 1) if one_hot else size, repeats


def main():
    """Run the parts named on the command line, all by default, and keep the others' results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(FULL)}")
    parser.add_argument("--tiny", action="store_true", help="sizes that only show that it runs")
    parser.add_argument("--out", type=Path, help="where to write; default: where the book looks")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(FULL):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; parts are {', '.join(FULL)}")
    tables = arguments.out or ROOT / "benchmarks/results"
    images = arguments.out or ROOT / "book/images"
    found = isolated(versions, report.PACKAGES)
    missing = [name for name in report.PACKAGES if found[name] is None]
    for name in missing:
        print(f"not installed, so not compared: {name}", flush=True)
    kept = tables / "results.json"
    results = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    for part in arguments.parts or FULL:
        records = results[part] = []
        # one part may be measured anew without the others, and elsewhere
        if part not in ("threads", "workers"):  # whose records name the cores; they are ours alone
            results["text machine" if part in OWN_PROCESSES else "machine"] = report.machine(found)
            results["missing"] = missing
        for function, *args in races(TINY if arguments.tiny else FULL, part, missing):
            print(part, *args, flush=True)
            if part in OWN_PROCESSES:
                records.append(function(*args))
            else:
                records.append(isolated(function, *args))
            report.save(results, tables)  # a part takes up to half an hour
        report.save(results, tables)
    report.show(results, tables, images)  # at the end: a child's peak memory starts at ours


if __name__ == "__main__":
    main()
