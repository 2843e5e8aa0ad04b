"""What L24's authors released: the curves of their figures, and their trials one by one.

Where the numbers come from is told in ``authors_files/README.md``.
"""

import csv
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ntpnb.basics.validation import FloatArray
from ntpnb.problem.data import NextTokenData

__all__ = ["AuthorsTrial", "authors_curve", "authors_trials", "curve_distance"]

_FOLDER = files("ntpnb_book") / "authors_files"


@dataclass(frozen=True)
class AuthorsTrial:
    """One trial of a released notebook: what was drawn, and what is printed.

    Attributes
    ----------
    data : NextTokenData
        Drawn again from the generator that the notebook used.
    start : ndarray, shape (d, d)
        The weights before training.
    drawn, printed : dict
        Sequences and labels as drawn again; the notebook's printed sequences, labels,
        ``start_variance``, ``losses`` by step, ``correlation``, and ``distance`` or
        ``local_correlation`` where it prints them.

    Examples
    --------
    >>> from ntpnb_book.authors_runs import authors_trials
    >>> trial = authors_trials("global 514473c")[0]
    >>> trial.drawn["labels"] == trial.printed["labels"], round(trial.printed["correlation"], 4)
    (True, 0.9874)
    """

    data: NextTokenData
    start: FloatArray
    drawn: dict[str, Any]
    printed: dict[str, Any]


def authors_trials(log: str) -> list[AuthorsTrial]:
    """Load all trials of one released notebook.

    Parameters
    ----------
    log : str
        Notebook and commit: "global 514473c", "global 0d105ef", "local 514473c",
        "local 0d105ef" or "acyclic 0d105ef".

    Returns
    -------
    list of AuthorsTrial

    Raises
    ------
    ValueError
        An unknown log.

    Examples
    --------
    >>> from ntpnb_book.authors_runs import authors_trials
    >>> len(authors_trials("local 514473c"))
    10
    """
    printed = json.loads((_FOLDER / "l24_printed.json").read_text())
    if log not in printed:
        raise ValueError(f"log is {log!r}; one of {sorted(printed)} is needed")
    drawn = json.loads((_FOLDER / "l24_draws.json").read_text())["trials"]
    trials = []
    for one, of in zip(drawn[log], printed[log], strict=True):
        data = NextTokenData.from_attention(
            np.array(one["embeddings"]), np.array(one["sequences"]), np.array(one["labels"])
        )
        trials.append(AuthorsTrial(data, np.array(one["start"]), one, of))
    return trials


def authors_curve(table: str, curve: str, steps: ArrayLike) -> FloatArray:
    """Read a released curve at the given steps.

    Parameters
    ----------
    table : str
        A table's name without ``l24_`` and ``.csv``, such as "fig4a_correlation".
    curve : str
        Which of its curves: "correlation", "distance", "local" or "global", for example.
    steps : array-like, shape (r,)
        Between its first and last point, where values are interpolated linearly.

    Returns
    -------
    ndarray, shape (r,)

    Raises
    ------
    ValueError
        A curve that the table does not have.

    Examples
    --------
    >>> from ntpnb_book.authors_runs import authors_curve
    >>> authors_curve("fig4a_correlation", "correlation", [3999]).round(4)
    array([0.9869])
    """
    with (_FOLDER / f"l24_{table}.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    points = [(float(row["step"]), float(row["value"])) for row in rows if row["curve"] == curve]
    if not points:
        known = sorted({row["curve"] for row in rows})
        raise ValueError(f"curve is {curve!r}; the table has {known}")
    x, y = np.array(points).T
    values: FloatArray = np.interp(np.asarray(steps, dtype=float), x, y)
    return values


def curve_distance(sets: ArrayLike, theirs: ArrayLike) -> float:
    """The largest distance of a curve from the mean of ours, in standard errors.

    Parameters
    ----------
    sets : array-like, shape (s, n, r)
        Our curves: s sets of n trials, at r steps.
    theirs : array-like, shape (r,)
        A mean over n other trials at the same steps.

    Returns
    -------
    float
        At the step where it is largest, the distance in standard errors of the difference, which
        has the variance of one mean of n trials and of one mean of all of ours.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb_book.authors_runs import curve_distance
    >>> ours = np.random.default_rng(0).normal(size=(3, 100, 1))
    >>> curve_distance(ours, [0.0]) < 3 < curve_distance(ours, [1.0])
    True
    """
    ours = np.asarray(sets, dtype=float)
    s, n, _ = ours.shape
    variance = ours.var(axis=1, ddof=1).mean(axis=0)
    error = np.sqrt(variance / n * (1 + 1 / s))
    return float((np.abs(ours.mean(axis=(0, 1)) - theirs) / error).max())
