"""The races at the size of real text as tables, and the plot over the number of contexts."""

from benchmarks import text
from benchmarks.files import as_svg, cell, drawing, replace, table

HEADING = ["data", "m × V × d", "asked for", "by", "answer", "CPU s", "ratio", "MiB"]
ACCURACY = ["data", "m × V × d", "by", "excess norm", "violation", "gap"]
AIMS = ["data", "m × V × d", "CPU s, at most", "measured", "MiB, at most", "measured", "reached"]
GROWTH = ["by", "contexts", "tokens", "answer", "CPU s", "MiB"]
ASKED = {"verdict": "verdict", "solution": "optimum", "gap": "gap of 1e-3"}
NO_ANSWER = {"time": "none in time", "memory": "none in memory"}
BEYOND = "over "
"""Before what is only a lower bound; a ``>`` there would begin a quotation in the book."""


def show(results, tables, images):
    """Write the tables, and the plot, of what has been measured."""
    if "text machine" in results:
        table(tables / "text_machine.csv", [("", "here"), *results["text machine"].items()])
    if "text" in results:
        records = results["text"]
        table(tables / "text.csv", [HEADING, *_races(records)])
        table(tables / "text_accuracy.csv", [ACCURACY, *_accuracy(records)])
        table(tables / "text_aims.csv", [AIMS, *_aims(records)])
    if "growth" in results:
        table(tables / "growth.csv", [GROWTH, *_growth(results["growth"])])
        replace(images / "growth.svg", growth(results["growth"]))


def _data(record):
    kind, *size = record["problem"]
    return size[0] if kind == "bigrams" else kind, "{m} × {V} × {d}".format(**record)


def _answer(record):
    return NO_ANSWER.get(record["outcome"], record["outcome"])


def _seconds(record):
    """CPU seconds, or those of the limit, which are then too few."""
    return float(record["seconds"] if record["outcome"] == "time" else record["cpu"])


def _measured(record):
    """Cells of seconds and memory; where a limit ended the process, both are lower bounds."""
    if record["outcome"] == "memory":
        return "–", f"{BEYOND}{record['gibibytes'] * 1024}"
    beyond = BEYOND if record["outcome"] == "time" else ""
    return beyond + cell(_seconds(record), "cpu"), beyond + cell(record["peak_mb"], "peak")


def _ordered(records):
    """The records problem by problem, each with that of ours for the same question."""

    def asked(record):
        return str(record["problem"]), record["question"]

    ours = {asked(record): record for record in records if record["program"] == "ours"}
    for question, answer in ours.items():
        for record in records:
            if asked(record) == question:
                yield record, answer


def _races(records):
    """Yield the table's rows."""
    for record, ours in _ordered(records):
        seconds, memory = _measured(record)
        ratio = "–"
        timed = "memory" not in (record["outcome"], ours["outcome"]) and ours["outcome"] != "time"
        if record is not ours and timed and _seconds(ours) > 0:
            beyond = BEYOND if record["outcome"] == "time" else ""
            ratio = beyond + cell(_seconds(record) / _seconds(ours), "ratio")
        asked = ASKED[record["question"]]
        yield *_data(record), asked, record["program"], _answer(record), seconds, ratio, memory


def _accuracy(records):
    """Yield a row for each answer that is a matrix."""
    for record, ours in _ordered(records):
        if "norm" in record:
            excess = None
            if record is not ours and "norm" in ours:
                excess = record["norm"] / ours["norm"] - 1
            fields = {"norm": excess} | {name: record.get(name) for name in ("violation", "gap")}
            cells = [cell(value, name) for name, value in fields.items()]
            yield *_data(record), record["program"], *cells


def _aims(records):
    for record in records:
        aim = text.AIMS.get((record["question"], *record["problem"]))
        if aim is None or record["program"] != "ours":
            continue
        most_seconds, most_memory = aim
        answered = record["outcome"] in ("separable", "not separable")
        fits = most_memory is None or record["peak_mb"] <= most_memory
        reached = "yes" if answered and record["cpu"] <= most_seconds and fits else "no"
        seconds, memory = _measured(record)
        yield *_data(record), most_seconds, seconds, most_memory or "–", memory, reached


def _growth(records):
    for record in records:
        for run in record["runs"]:
            yield record["program"], run["m"], run["V"], _answer(run), *_measured(run)


def growth(records):
    """Draw time and memory over the number of contexts; the SVG as text."""
    plt, figures = drawing()
    fig, axes = plt.subplots(1, 2, figsize=(7.6, 3.6))
    looks = zip(figures.MARKERS, figures.PALETTE, figures.DASHES, strict=False)
    for record, (marker, color, dashes) in zip(records, looks, strict=False):
        style = {"marker": marker, "color": color, "linestyle": dashes}
        runs = [run for run in record["runs"] if run["outcome"] != "memory"]
        contexts = [run["m"] for run in runs]
        drawn = [[_seconds(run) for run in runs], [run["peak_mb"] for run in runs]]
        for ax, values in zip(axes, drawn, strict=True):
            ax.loglog(contexts, values, label=record["program"], **style)
            for run, value in zip(runs, values, strict=True):
                if run["outcome"] == "time":  # an open marker: at least so much
                    ended = {"markerfacecolor": figures.BACKGROUND, "markersize": 9}
                    ax.plot(run["m"], value, **style, **ended)
    axes[0].set(xlabel="contexts $m$", title="CPU seconds")
    axes[1].set(xlabel="contexts $m$", title="peak memory, MiB")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=4)
    return as_svg(fig)
