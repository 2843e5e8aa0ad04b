"""The results as files: everything in ``results.json``, tables for the book, the scaling plot."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks import margin, text, text_report, training
from benchmarks.files import as_svg, cell, drawing, replace, table

_NEEDS = (margin.CONTENDERS | training.CONTENDERS | text.CONTENDERS).values()
PACKAGES = list(dict.fromkeys(["numpy", "scipy", *(name for names in _NEEDS for name in names)]))

SIZE = {"size": "(V, m, d), S"}
RACE = {"ratio_cpu": "ratio", "ratio_wall": "ratio of wall times"}
TABLES = {
    "margin": SIZE
    | {"contender": "against", "ours_cpu": "ours, ms", "theirs_cpu": "theirs, ms", **RACE}
    | {"solver_cpu": "solver only, ms", "ratio_solver": "solver ratio", "repeats": "rounds"},
    "accuracy": SIZE
    | {"contender": "against", "difference": "difference in W", "angle": "angle"}
    | {"norm_excess": "excess norm", "kkt_ours": "KKT, ours", "kkt_theirs": "KKT, theirs"}
    | {"peak_mb": "MiB"},
    "alone": SIZE
    | {"method": "method", "ours_cpu": "CPU, ms", "ours_wall": "wall, ms"}
    | {"kkt_ours": "KKT residual", "peak_mb": "MiB", "repeats": "rounds"},
    "descent": SIZE
    | {"contender": "against", "ours_cpu": "ours, µs a step", "theirs_cpu": "theirs, µs a step"}
    | {**RACE, "difference": "difference in W", "repeats": "rounds"},
    "trials": {"kind": "trials", "contender": "against", "steps": "steps"}
    | {"ours_rate": "ours, trial steps a second", "theirs_rate": "theirs"}
    | {**RACE, "difference": "difference in W", "repeats": "rounds"},
    "path and flow": SIZE
    | {"path_cpu": "path, CPU s", "path_wall": "path, wall s", "path_residual": "its residual"}
    | {"flow_cpu": "flow, CPU s", "flow_wall": "flow, wall s", "repeats": "rounds"},
    "threads": {
        "work": "work",
        "number": "problems",
        **SIZE,
        "contender": "against",
        "cores": "cores",
    }
    | {"ours_wall": "ours, wall ms", "theirs_wall": "theirs, wall ms"}
    | {"ours_cpu": "ours, CPU ms", "theirs_cpu": "theirs, CPU ms", **RACE, "repeats": "rounds"},
    "workers": {"contexts": "contexts", "V": "tokens", "d": "dimensions"}
    | {"n_jobs": "processes", "theirs_wall": "one process, s", "ours_wall": "these, s"}
    | {"ratio_wall": "times as fast", "same": "same bounds", "measured": "measured"},
}
"""Columns of each table: field of the record, heading."""

PART = {"accuracy": "margin"}  # two tables show the same records
UNITS = {"margin": 1e3, "alone": 1e3, "descent": 1e6, "threads": 1e3}  # milli- and microseconds

AIMS = {
    ("margin", "cvxpy + Clarabel", "ratio_cpu"): (200, 600, 2500),
    ("margin", "cvxpy + Clarabel", "ratio_solver"): (75, 150, 300),
    ("descent", "PyTorch loop", "ratio_cpu"): (15,),
    ("descent", "matrix products", "ratio_cpu"): (0.77,),  # 1/1.3
    ("trials", "PyTorch loop", "ratio_cpu"): (300, 300),
    ("trials", "numpy loop", "ratio_cpu"): (80, 80),
}
"""What the project set out to reach: part, contender, ratio; at least how much, race by race."""


def machine(found):
    """Describe the machine without naming it."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "day": today(),
        "architecture": f"{platform.system()}, {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory": f"{memory:.0f} GiB",
        "load average": f"{os.getloadavg()[0]:.1f}",
        "Python": platform.python_version(),
        "BLAS": f"{blas['name']} {blas['version']}, one thread",
    } | {name: found[name] or "not installed" for name in PACKAGES}


def today():
    """The date, by UTC."""
    return datetime.now(tz=UTC).date().isoformat()


def processor():
    """The type of processor, where the system tells it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    types = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(types, platform.processor() or "not told")


def save(results, tables):
    """Write ``results.json``."""
    tables.mkdir(parents=True, exist_ok=True)
    replace(tables / "results.json", json.dumps(results, indent=1, ensure_ascii=False) + "\n")


def show(results, tables, images):
    """Write what the book shows: tables, and the plot where both of its parts are known."""
    if "machine" in results:
        table(tables / "machine.csv", [("", "here"), *results["machine"].items()])
    for name, columns in TABLES.items():
        records, unit = results.get(PART.get(name, name), ()), UNITS.get(name, 1.0)
        rows = [[cell(_field(r, column), column, unit) for column in columns] for r in records]
        table(tables / f"{name.replace(' ', '_')}.csv", [columns.values(), *rows])
    heading = ("part", "against", "race", "of what", "aim", "measured", "reached")
    table(tables / "aims.csv", [heading, *_aims(results)])
    if {"margin", "alone"} <= results.keys():
        replace(images / "scaling.svg", scaling(results))
    text_report.show(results, tables, images)


def _aims(results):
    for (part, contender, ratio), aims in AIMS.items():
        records = [r for r in results.get(part, ()) if r["contender"] == contender]
        for aim, record in zip(aims, records, strict=False):
            race = record.get("kind") or _field(record, "size")
            reached = "yes" if record[ratio] >= aim else "no"
            measured = cell(record[ratio], ratio, 1.0)
            yield part, contender, race, TABLES[part][ratio], aim, measured, reached


def scaling(results):
    """Draw time and memory over the number of unknowns; the SVG as text."""
    plt, figures = drawing()
    fig, axes = plt.subplots(1, 2, figsize=(7.6, 3.6))
    lines = {"max_margin": results["alone"]}
    for record in results["margin"]:
        if "SVC" not in record["contender"]:
            lines.setdefault(record["contender"], []).append(record)
    theirs = zip(figures.MARKERS, figures.PALETTE, figures.DASHES, strict=True)
    looks = [("*", figures.INK, "-"), *theirs]  # six contenders and ours, in black
    for (name, records), (marker, color, dashes) in zip(lines.items(), looks, strict=False):
        style = {"marker": marker, "color": color, "linestyle": dashes}
        unknowns = [r["V"] * r["d"] for r in records]
        seconds = [r["ours_cpu"] if name == "max_margin" else r["theirs_cpu"] for r in records]
        axes[0].loglog(unknowns, seconds, label=name, **style)
        axes[1].loglog(unknowns, [r["peak_mb"] for r in records], **style)
    axes[0].set(xlabel="unknowns $V d$", ylabel="CPU seconds")
    axes[1].set(xlabel="unknowns $V d$", ylabel="peak memory of the process, MiB")
    fig.legend(loc="outside lower center", ncols=3)
    return as_svg(fig)


def _field(record, name):
    if name == "size":
        return "({V}, {m}, {d}), {S}".format(**record)
    if name == "norm_excess":
        return record["norm_ratio"] - 1
    if name.endswith("_rate"):
        return 1 / record[name.replace("_rate", "_cpu")]
    return record.get(name)
