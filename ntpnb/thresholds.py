"""How many dimensions random data need: two formulas, and the first dimension that is enough."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from ntpnb.array_types import FloatArray, IntArray
from ntpnb.errors import ConvergenceError
from ntpnb.level_probabilities import level_law
from ntpnb.margin.solve import is_separable
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.sparsity import CompatibleDimension, compatible_dimension
from ntpnb.threads import one_thread
from ntpnb.tied.subspace import equal_subspace
from ntpnb.validation import SUM_TOLERANCE, as_array, as_integer
from ntpnb.watch import Progress, Watch

MOST_OUTSIDE = 10**6  # tokens outside a support: the accuracy was measured up to here

SupportSize = int | Mapping[int, float]  # one size, or the share of each

__all__ = [
    "Bracket",
    "CompatibleDimension",
    "compatibility_threshold",
    "compatible_dimension",
    "first_dimension",
    "first_true",
    "independent_equations",
    "pooled_law",
    "random_data",
    "separability_threshold",
    "sweep",
    "transition_width",
]

# -- formulas -------------------------------------------------------------------------------------


def pooled_law(outside: int, support_size: int) -> FloatArray:
    """Distribution of the number of out-of-support tokens that the nearest separated scores tie.

    Let ``g ~ N(0, I)`` be the scores of a context. The nearest scores that separate it have a
    common in-support score ``c``, which minimises ``Σ_in (g − c)² + Σ_out max(g − c, 0)²``, and
    the out-of-support tokens with ``g > c`` are moved to ``c``: they are pooled with the support.
    That there are ``k`` of them has probability ``binom(n, k) A_k B_k``. With ``w = S + k`` and
    ``x ~ N(0, 1)``: ``A_k = E Φ(i x / √w)^k`` (those k and the support are pooled),
    ``B_k = E Φ(x / √w)^(n − k)`` (the others lie below).

    Parameters
    ----------
    outside, support_size : int
        ``n ≤ 10**6`` and ``S ≥ 1``.

    Returns
    -------
    ndarray of shape (n + 1,)
        Probabilities, read-only, each with a relative error of at most ``1e-13 + 1e-15 n`` as
        measured against thirty digits; those of ``k`` far from the mean, which sum to less than
        1e-19, are zero. All sum to one, and for ``n ≥ 1`` those of even and of odd ``k`` to one
        half each (the Gauss–Bonnet theorem), within 1e-12 for n ≤ 1000 and 1e-10 for all n.

    Raises
    ------
    TypeError
        A size is not a number.
    ValueError
        A size is not an integer, ``outside`` is not between 0 and 10**6, or ``support_size`` is
        not positive.

    References
    ----------
    The level probabilities of the simple tree order: Robertson, Wright & Dykstra (1988), Order
    Restricted Statistical Inference, Ch. 2.

    Examples
    --------
    A single token outside is above the support's mean half the time:

    >>> from ntpnb import thresholds
    >>> thresholds.pooled_law(1, 3).round(9).tolist()
    [0.5, 0.5]

    A label among the 50,257 tokens of a language model ties with about fourteen others:

    >>> law = thresholds.pooled_law(50_256, 1)
    >>> round(float(law @ range(50_257)), 2)
    14.45
    """
    outside = as_integer("outside", outside, least=0)
    support_size = as_integer("support_size", support_size, least=1)
    _require_tested_size(outside)
    law = level_law(outside, support_size)
    probs = np.zeros(outside + 1)
    probs[law.first : law.first + len(law.probs)] = law.probs
    probs.flags.writeable = False
    return probs


def separability_threshold(vocab_size: int, support_size: SupportSize) -> float:
    """Ratio ``d/m`` above which random data are separable and below which they are not.

    For two tokens this is a theorem, and for supports of more than one token a conjecture; with
    one token per context it follows from asymptotics of a published kind.

    ``E min_c [Σ_{z∈S} (g_z − c)² + Σ_{v∉S} max(g_v − c, 0)²] / (V − 1)`` with ``g ~ N(0, I_V)``:
    the share of all dimensions that the cone of separated scores lacks. Equal to
    ``(S − 1 + E k) / (V − 1)`` with ``k`` from :func:`pooled_law`; ``1/2`` for two tokens and
    one-hot labels (Cover). Where every support holds all tokens, ``W = 0`` separates in any
    dimension, and the value, one, says nothing.

    Parameters
    ----------
    vocab_size : int
        At most 10**6 tokens may be out of a support.
    support_size : int or dict
        The size of every support, or the share of each size: ``{1: 0.5, 3: 0.5}``.
        Sizes lie between 1 and ``vocab_size``.

    Returns
    -------
    float
        With a relative error of at most 1e-12 for up to 900 tokens, and 1e-9 for up to a million,
        as that of :func:`pooled_law`.

    Raises
    ------
    TypeError
        A size is not a number.
    ValueError
        Impossible sizes, shares that do not sum to one, or more than 10**6 tokens out of support.

    References
    ----------
    T24 (002) Remark 1 and Sec. 7, first open question. Amelunxen, Lotz, McCoy & Tropp (2014).
    Loureiro et al. (2021).

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> round(thresholds.separability_threshold(2, 1), 9)
    0.5

    Among the 50,257 tokens of a language model, 768 random dimensions separate some 2.7 million
    contexts with one continuation each; with twenty in a fifth of the contexts, some 760,000:

    >>> one = thresholds.separability_threshold(50_257, 1)
    >>> mixed = thresholds.separability_threshold(50_257, {1: 0.8, 20: 0.2})
    >>> round(768 / one), round(768 / mixed)
    (2671459, 760652)
    """
    vocab_size = as_integer("vocab_size", vocab_size)
    shares = _validated_shares(vocab_size, support_size)
    means = [_codimension(vocab_size, size).mean for size in shares]
    return _average(means, shares) / (vocab_size - 1)


def compatibility_threshold(vocab_size: int, support_size: SupportSize) -> float:
    """Limit of ``d/m`` from which random distributions are compatible: ``E (S − 1) / (V − 1)``.

    Compatibility asks for ``Σ_j (S_j − 1)`` equations in ``d (V − 1)`` unknowns. That their count
    decides, as ``m`` grows, holds for supports that are drawn independently and treat all tokens
    alike; for given supports :func:`compatible_dimension` is exact.

    Parameters
    ----------
    vocab_size : int
    support_size : int or dict
        As in :func:`separability_threshold`.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        As :func:`separability_threshold`.

    References
    ----------
    T24 (002) Def. 1 and Lemma 1.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> round(thresholds.compatibility_threshold(5, {1: 0.5, 3: 0.5}), 9)
    0.25
    """
    vocab_size = as_integer("vocab_size", vocab_size)
    shares = _validated_shares(vocab_size, support_size)
    num_equations = [size - 1.0 for size in shares]
    return _average(num_equations, shares) / (vocab_size - 1)


def transition_width(vocab_size: int, support_size: SupportSize, num_contexts: int) -> float:
    """Conjectured standard deviation, over datasets, of the ``d/m`` where separability sets in.

    ``√(Var(S − 1 + k) / m) / (V − 1)``, where supports of unequal sizes are drawn independently.

    Parameters
    ----------
    vocab_size : int
    support_size : int or dict
        As in :func:`separability_threshold`.
    num_contexts : int
        ``m``.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        As :func:`separability_threshold`, or ``num_contexts`` is not a positive integer.

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> round(thresholds.transition_width(2, 1, num_contexts=100), 9)
    0.05
    """
    vocab_size = as_integer("vocab_size", vocab_size)
    num_contexts = as_integer("num_contexts", num_contexts, least=1)
    shares = _validated_shares(vocab_size, support_size)
    mean = separability_threshold(vocab_size, support_size) * (vocab_size - 1)
    squares = []
    for size in shares:
        codimension = _codimension(vocab_size, size)
        squares.append(codimension.variance + (codimension.mean - mean) ** 2)
    variance = _average(squares, shares)
    return float(np.sqrt(variance / num_contexts) / (vocab_size - 1))


class _Moments(NamedTuple):
    mean: float
    variance: float


@cache
def _codimension(vocab_size: int, support_size: int) -> _Moments:
    """Moments of ``S − 1 + k``: how many dimensions the face of the nearest scores lacks."""
    outside = vocab_size - support_size
    _require_tested_size(outside)
    law = level_law(outside, support_size)
    k = law.first + np.arange(len(law.probs))
    mean = law.probs @ k
    return _Moments(float(support_size - 1 + mean), float(law.probs @ (k - mean) ** 2))


def _require_tested_size(outside: int) -> None:
    """Raise if there are more tokens outside a support than the accuracy was measured for."""
    if outside > MOST_OUTSIDE:
        raise ValueError(f"{outside} tokens are out of support; there may be 0 to {MOST_OUTSIDE}")


def _average(values: Sequence[float], shares: Mapping[int, float]) -> float:
    """Mean of one value for each support size, weighted by the sizes' shares."""
    weighted = [share * value for share, value in zip(shares.values(), values, strict=True)]
    return float(sum(weighted))


def _validated_shares(vocab_size: int, support_size: SupportSize) -> Mapping[int, float]:
    """Sizes of supports with their shares."""
    if isinstance(support_size, Mapping):
        sizes = [as_integer("a size in support_size", size) for size in support_size]
        shares = as_array("the shares in support_size", list(support_size.values()), ndim=1)
    else:
        sizes = [as_integer("support_size", support_size)]
        shares = np.ones(1)
    if vocab_size < 2 or not all(1 <= size <= vocab_size for size in sizes):
        raise ValueError(
            f"support sizes are {sorted(sizes)} for {vocab_size} tokens; there must be at least "
            "two tokens, and sizes between 1 and their number"
        )
    if not (shares >= 0).all() or abs(shares.sum() - 1) > SUM_TOLERANCE:
        raise ValueError(f"shares of support sizes are {shares}; they must be >= 0 and sum to one")
    return dict(zip(sizes, shares.tolist(), strict=True))


# -- measurement ----------------------------------------------------------------------------------

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
    vocab_size = as_integer("vocab_size", vocab_size)
    num_contexts = as_integer("num_contexts", num_contexts, least=1)
    shares = _validated_shares(vocab_size, support_size)
    H = rng.standard_normal((num_contexts, num_contexts))
    place = rng.random((num_contexts, vocab_size)).argsort(axis=1)
    sizes = rng.choice(list(shares), num_contexts, p=list(shares.values()))
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
    widens in steps of the conjectured width, so that four or five verdicts are enough.

    Parameters
    ----------
    data : NextTokenData
        One-hot tokens; embeddings in as many dimensions as are to be tried.
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
    if not callable(holds):
        raise TypeError(f"holds is of type {type(holds).__name__}; a function is needed")
    vocab_size = data.vocab_size
    codimensions = [_codimension(vocab_size, int(size)) for size in data.support.sum(1)]
    mean, variance = np.sum(codimensions, axis=0)
    H = data.context_embeddings

    def holds_in(d: int) -> bool:
        return holds(NextTokenData(H[:, :d], data.target_probs))

    return first_true(
        holds_in,
        top=H.shape[1],
        guess=mean / (vocab_size - 1),
        step=np.sqrt(variance) / (vocab_size - 1),
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

    Examples
    --------
    >>> from ntpnb import thresholds
    >>> thresholds.first_true(lambda d: d * d >= 50, top=100, guess=10, step=2)
    Bracket(largest_false=7, smallest_true=8)
    """
    largest_false = 0
    smallest_true = top + 1
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
    try:
        from joblib import Parallel, delayed
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(
            "thresholds.sweep needs joblib and tqdm; install them with pip install 'ntpnb[sweep]'"
        ) from error

    watch = Watch(seconds, progress)
    counts = np.broadcast_to(trials, len(cells))
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
