"""Random data, and the first dimension in which a condition holds on them."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from ntpnb.basics.errors import ConvergenceError, needs_extra
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import (
    IntArray,
    as_integer,
    as_integers,
    require_function,
    require_number,
    require_type,
)
from ntpnb.basics.watch import Progress, Watch
from ntpnb.margin.solve import is_separable
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.thresholds.formulas import SupportSize, codimension, support_mix
from ntpnb.tied.subspace import equal_subspace

Condition = Callable[[NextTokenData], bool]


class Bracket(NamedTuple):
    """Where a condition that is monotone in ``d = 1 … top`` begins to hold.

    Attributes
    ----------
    largest_false : int
        The largest ``d`` where it fails; 0 if there is none.
    smallest_true : int
        The smallest ``d`` where it holds; ``top + 1`` if there is none. Only undecided ``d`` lie
        between the two.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> thresholds.Bracket(largest_false=3, smallest_true=4).smallest_true
    4
    """

    largest_false: int
    smallest_true: int


def random_data(
    rng: np.random.Generator, vocab_size: int, support_size: SupportSize, num_contexts: int
) -> NextTokenData:
    """Draw standard normal embeddings in as many dimensions as contexts, and random supports.

    Parameters
    ----------
    rng : numpy.random.Generator
    vocab_size : int
    support_size : int or dict
        The size of all supports, or the share of each size, see :func:`separability_threshold`;
        sizes are then drawn independently. Probabilities are uniform on the support's simplex.
    num_contexts : int

    Returns
    -------
    NextTokenData

    Raises
    ------
    TypeError
        ``rng`` is no generator.
    TypeError, ValueError
        As :func:`separability_threshold`.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb import thresholds
    >>> data = thresholds.random_data(np.random.default_rng(0), 5, 2, num_contexts=7)
    >>> data.shape, data.support.sum(1).tolist()
    ((5, 7), [2, 2, 2, 2, 2, 2, 2])
    """
    require_type("rng", rng, np.random.Generator, "a numpy.random.Generator")
    mix = support_mix(vocab_size, support_size)
    num_contexts = as_integer("num_contexts", num_contexts, least=1)
    H = rng.standard_normal((num_contexts, num_contexts))
    place = rng.random((num_contexts, mix.vocab_size)).argsort(axis=1)
    sizes = rng.choice(mix.sizes, num_contexts, p=mix.shares)
    in_support = place < sizes[:, None]
    P = np.where(in_support, rng.standard_exponential(place.shape), 0.0)
    return NextTokenData(H, P / P.sum(1, keepdims=True))


@one_thread
def independent_equations(data: NextTokenData) -> bool:
    """Whether the equations of T24's Definition 1 are independent.

    Then data with any probabilities on these supports are compatible.

    Parameters
    ----------
    data : NextTokenData
        One-hot tokens, each context its own group.

    Returns
    -------
    bool

    Raises
    ------
    TypeError
        ``data`` is no dataset.

    References
    ----------
    T24 (002) Def. 1 and Lemma 1.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.thresholds.independent_equations(ntpnb.datasets.toy())
    True
    """
    require_data("data", data)
    num_equations = (data.support.sum(1) - 1).sum()
    return bool(equal_subspace(data).dim == num_equations)


def first_dimension(data: NextTokenData, holds: Condition = is_separable) -> Bracket:
    """Find the first ``d`` where a condition holds on the first ``d`` coordinates of embeddings.

    The condition must be monotone in ``d``, as separability and independent equations are: a
    solution in few coordinates is one in more. The search starts where the formula puts it and
    widens in steps of the conjectured width, so that four or five verdicts are enough for one-hot
    tokens that are all candidates.

    Parameters
    ----------
    data : NextTokenData
        Embeddings in as many dimensions as are to be tried; all else stays as it is.
    holds : callable
        From data to a verdict. A ``ConvergenceError`` leaves one ``d`` undecided.

    Returns
    -------
    Bracket
        A pair of integers, ``largest_false`` and ``smallest_true``.

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``holds`` cannot be called.

    References
    ----------
    T24 (002) Sec. 7, first open question.

    Examples
    --------
    One coordinate puts both contexts on the same side, the second one parts them:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0, 1.0], [1.0, -1.0]], [[1, 0], [0, 1]])
    >>> ntpnb.thresholds.first_dimension(data)
    Bracket(largest_false=1, smallest_true=2)
    """
    require_data("data", data)
    require_function("holds", holds)
    codimensions = [codimension(data.vocab_size, int(size)) for size in data.support.sum(1)]
    mean, variance = np.sum(codimensions, axis=0)
    H = data.context_embeddings
    others = max(data.vocab_size - 1, 1)  # of one token alone the formula is 0/0

    def holds_in(d: int) -> bool:
        return holds(data.replace(context_embeddings=H[:, :d]))

    return first_true(
        holds_in,
        top=H.shape[1],
        guess=mean / others,
        step=np.sqrt(variance) / others,
    )


def first_true(holds: Callable[[int], bool], top: int, guess: float, step: float) -> Bracket:
    """Bracket the first of 1 … top where a monotone condition holds.

    From ``guess`` the search gallops in doubling steps until it has seen both verdicts, and then
    bisects. The bracket depends neither on ``guess`` nor on the first ``step``.

    Parameters
    ----------
    holds : callable
        From an integer to a verdict. A ``ConvergenceError`` leaves it undecided.
    top : int
    guess, step : float

    Returns
    -------
    Bracket

    Raises
    ------
    TypeError
        ``holds`` cannot be called, or an argument is no number.
    ValueError
        ``top`` is no nonnegative integer, ``guess`` is not finite, or ``step`` negative.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> thresholds.first_true(lambda d: d * d >= 50, top=100, guess=10, step=2)
    Bracket(largest_false=7, smallest_true=8)
    """
    require_function("holds", holds)
    require_number("guess", guess, lambda _: True, "be a finite number")
    require_number("step", step, lambda step: step >= 0, "be a nonnegative number")
    largest_false = 0
    smallest_true = as_integer("top", top, 0) + 1
    undecided: set[int] = set()
    target = guess
    step = max(1.0, step)
    while True:
        between = range(largest_false + 1, smallest_true)
        untried = [d for d in between if d not in undecided]
        if not untried:
            return Bracket(largest_false, smallest_true)
        d = min(untried, key=lambda candidate: (abs(candidate - target), candidate))
        try:
            verdict = holds(d)
        except ConvergenceError:
            undecided.add(d)
            continue
        if verdict:
            smallest_true = d
        else:
            largest_false = d
        if largest_false > 0 and smallest_true <= top:
            target = (largest_false + smallest_true) / 2  # bracketed: bisect
        else:
            target = d - step if verdict else d + step  # not yet: gallop
            step *= 2


def sweep(
    cells: Sequence[tuple[object, ...]],
    trials: int | Sequence[int],
    seed: int = 0,
    holds: Condition = is_separable,
    draw: Callable[..., NextTokenData] = random_data,
    n_jobs: int | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> list[IntArray]:
    """First dimension of many random datasets, in parallel.

    Parameters
    ----------
    cells : sequence of tuples
        Arguments of ``draw``: (vocab_size, support_size, num_contexts).
    trials : int or sequence of int
        Datasets in each cell.
    seed : int
        Dataset ``i``, counted through all cells, is drawn from ``default_rng([seed, i])``: the
        result is the same for every number of jobs and on every joblib backend.
    holds : callable
        The condition, as in :func:`first_dimension`.
    draw : callable
        From a generator and a cell to data.
    n_jobs : int, optional
        As in joblib; None takes what ``joblib.parallel_config`` says, or one.
    seconds : float, optional
        Time limit; what is at work when it is over is still finished. Default: none.
    progress : callable, optional
        Called with a line of text after each dataset; what it raises ends the sweep.

    Returns
    -------
    list of ndarray of int, shape (trials, 2)
        For each cell the brackets of :func:`first_dimension`. In a terminal a bar shows the
        progress.

    Raises
    ------
    ImportError
        joblib or tqdm is missing: the extra ``sweep`` brings both.
    TypeError, ValueError
        ``cells`` is no sequence, ``trials`` are no nonnegative integers or not one for each cell,
        or another argument cannot be used.
    ConvergenceError
        The time is over. ``.point`` is what would be returned, with the datasets that were done:
        the last cells have fewer rows, or none. ``.residual`` is ``inf``.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> [brackets] = thresholds.sweep([(3, 1, 8)], trials=4)
    >>> brackets.shape
    (4, 2)
    """
    with needs_extra("sweep", "thresholds.sweep"):
        from joblib import Parallel, delayed
        from tqdm import tqdm

    watch = Watch(seconds, progress)
    require_type("cells", cells, Collection, "a sequence of tuples")
    for i, cell in enumerate(cells):
        require_type(f"cells[{i}]", cell, Collection, "a tuple")
    seed = as_integer("seed", seed, 0)
    require_function("draw", draw)
    counts = as_integers("trials", trials)
    if counts.shape not in [(), (len(cells),)] or counts.min(initial=0) < 0:
        raise ValueError(
            f"trials is {trials}; a nonnegative integer is needed, or one for each of the "
            f"{len(cells)} cells"
        )
    counts = np.broadcast_to(counts, len(cells))
    cell_of_trial = np.repeat(np.arange(len(cells)), counts)
    jobs = (
        delayed(_trial)(draw, cells[cell], holds, [seed, i])
        for i, cell in enumerate(cell_of_trial.tolist())
    )
    results = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
    total = len(cell_of_trial)
    found: list[Bracket] = []
    for bracket in tqdm(results, total=total, disable=None):
        found.append(bracket)
        watch.say(f"sweep: {len(found)} of {total} datasets")
        if watch.expired:
            break
    first_of_next_cell = np.cumsum(counts)[:-1]
    brackets = np.split(np.array(found, dtype=int).reshape(-1, 2), first_of_next_cell)
    if len(found) < total:
        results.close()
        raise ConvergenceError(
            f"{watch.stopped}: {len(found)} of {total} datasets are done; "
            ".point has their brackets",
            np.inf,
            brackets,
        )
    return brackets


def _trial(
    draw: Callable[..., NextTokenData],
    cell: tuple[object, ...],
    holds: Condition,
    seed: list[int],
) -> Bracket:
    return first_dimension(draw(np.random.default_rng(seed), *cell), holds)
