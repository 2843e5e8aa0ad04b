"""Writing what the book shows: tables as CSV, drawings as SVG, numbers in few digits."""

import csv
import io
from pathlib import Path


def cell(value, name, unit=1.0):
    """Write a record's field in few digits; seconds are multiplied by ``unit`` first."""
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    value *= unit if name.endswith(("_cpu", "_wall")) and not name.startswith("ratio") else 1
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1e-3 else f"{value:.0e}"


def table(path, rows):
    """Write rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace(path, text.getvalue())


def replace(path: Path, text):
    """Write a whole file or none."""
    draft = path.with_suffix(".tmp")
    draft.write_text(text, "utf-8")
    draft.replace(path)


def drawing():
    """Return pyplot and the book's figures, set to draw equal pictures in equal bytes."""
    import matplotlib.pyplot as plt

    from ntpnb_book import figures

    figures.use_style()
    plt.rcParams["svg.hashsalt"] = "ntpnb"
    return plt, figures


def as_svg(fig):
    """Draw a figure: the SVG as text."""
    import matplotlib.pyplot as plt

    text = io.StringIO()
    fig.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(fig)
    return text.getvalue()
