"""How many dimensions random data need: two formulas, and the first dimension that is enough."""

from functools import cache

import numpy as np
from scipy.special import comb, dawsn, ndtr

from ntpnb.errors import ConvergenceError
from ntpnb.margin.solve import is_separable
from ntpnb.problem.data import NextTokenData
from ntpnb.tied.subspace import equal_subspace

STEP, REACH = 0.01, 900  # nodes of the quadrature: exact for smooth functions with Gaussian tails
LARGEST = 100  # tokens outside a support; beyond it the quadrature loses its ninth digit

# -- formulas -------------------------------------------------------------------------------------


@cache
def pooled_law(outside, support_size):
    """Law of the number of out-of-support tokens that the nearest separated scores tie.

    Let ``g ~ N(0, I)`` be the scores of a context, and ``c`` the common in-support score of the
    nearest ones that separate, ``min_c Σ_in (g − c)² + Σ_out max(g − c, 0)²``. The out-of-support
    tokens with ``g > c`` are moved to ``c``. That there are ``k`` of them has probability
    ``binom(n, k) A_k B_k``. With ``w = S + k`` and ``x ~ N(0, 1)``: ``A_k = E Φ(i x / √w)^k``
    (those k and the support are pooled), ``B_k = E Φ(x / √w)^(n − k)`` (the others lie below).

    Parameters
    ----------
    outside, support_size : int
        ``n ≤ 100`` and ``S ≥ 1``.

    Returns
    -------
    ndarray of shape (n + 1,)
        Sums to one within 1e-9; for n ≤ 40 within 1e-12.

    References
    ----------
    The level probabilities of the simple tree order: Robertson, Wright & Dykstra (1988), Order
    Restricted Statistical Inference, Ch. 2.
    """
    if not 0 <= outside <= LARGEST:
        raise ValueError(f"{outside} tokens are out of support; there may be 0 to {LARGEST}")
    step = STEP / np.sqrt(support_size)
    u = step * np.arange(-REACH, REACH + 1)
    k = np.arange(outside + 1)
    w = support_size + k
    # Φ(iu) exp(−u²/2) stays below one half, so that nothing overflows or cancels.
    tame = (np.exp(-(u**2) / 2) + 2j / np.sqrt(np.pi) * dawsn(u / np.sqrt(2))) / 2
    pooled = (np.exp(-support_size * u**2 / 2) * tame ** k[:, None]).real.sum(1)
    below = (np.exp(-w[:, None] * u**2 / 2) * ndtr(u) ** (outside - k)[:, None]).sum(1)
    law = comb(outside, k) * pooled * below * w * step**2 / (2 * np.pi)
    law.flags.writeable = False
    return law


def separability_threshold(vocab_size, support_size):
    """Conjectured ``d/m`` above which random data are separable, below which they are not.

    ``E min_c [Σ_{z∈S} (g_z − c)² + Σ_{v∉S} max(g_v − c, 0)²] / (V − 1)`` with ``g ~ N(0, I_V)``:
    the part of all dimensions that a support's cone lacks. Equal to ``(S − 1 + E k) / (V − 1)``
    with ``k`` from :func:`pooled_law`; ``1/2`` for two tokens and one-hot labels (Cover).

    Parameters
    ----------
    vocab_size : int
    support_size : int or dict
        The size of every support, or the share of each size: ``{1: 0.5, 3: 0.5}``.
        Sizes lie between 1 and ``vocab_size``.

    Returns
    -------
    float
        Accurate to nine digits; for up to 40 tokens to twelve.

    References
    ----------
    T24 (002) Sec. 7, first open question. Amelunxen, Lotz, McCoy & Tropp (2014).
    """
    return _mean(vocab_size, support_size, _codimension)


def compatibility_threshold(vocab_size, support_size):
    """Limit of ``d/m`` from which random laws are compatible: ``E (S − 1) / (V − 1)``.

    ``Σ (S_j − 1)`` equations for ``d (V − 1)`` numbers; arguments as in
    :func:`separability_threshold`.
    """
    return _mean(vocab_size, support_size, lambda V, S: (S - 1.0, 0.0))


def transition_width(vocab_size, support_size, num_contexts):
    """Conjectured standard deviation, over datasets, of the ``d/m`` where separability sets in.

    ``√(Var(S − 1 + k) / m) / (V − 1)``, where supports of unequal sizes are drawn independently.
    """
    sizes = _shares(vocab_size, support_size)
    mean = separability_threshold(vocab_size, support_size) * (vocab_size - 1)
    square = sum(
        share * (variance + (codimension - mean) ** 2)
        for size, share in sizes.items()
        for codimension, variance in [_codimension(vocab_size, size)]
    )
    return float(np.sqrt(square / num_contexts) / (vocab_size - 1))


def _mean(vocab_size, support_size, moments):
    sizes = _shares(vocab_size, support_size)
    total = sum(share * moments(vocab_size, size)[0] for size, share in sizes.items())
    return float(total / (vocab_size - 1))


def _codimension(vocab_size, size):
    """Mean and variance of the codimension ``S − 1 + k`` of the face that holds the nearest."""
    law = pooled_law(vocab_size - size, size)
    k = np.arange(len(law))
    mean = law @ k
    return size - 1 + mean, law @ (k - mean) ** 2


def _shares(vocab_size, support_size):
    """Sizes of supports with their shares, validated."""
    sizes = support_size if isinstance(support_size, dict) else {support_size: 1.0}
    if vocab_size < 2 or not all(1 <= size <= vocab_size for size in sizes):
        raise ValueError(
            f"support sizes are {sorted(sizes)} for {vocab_size} tokens; there must be at least "
            "two tokens, and sizes between 1 and their number"
        )
    shares = np.array(list(sizes.values()), dtype=float)
    if not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-8:
        raise ValueError(f"shares of support sizes are {shares}; they must be >= 0 and sum to one")
    return sizes


# -- measurement ----------------------------------------------------------------------------------


def random_data(rng, vocab_size, support_size, num_contexts):
    """Draw standard normal embeddings in as many dimensions as contexts, and random supports.

    Supports of ``support_size`` tokens (or independent sizes with these shares, see
    :func:`separability_threshold`), probabilities uniform on their simplex.
    """
    sizes = _shares(vocab_size, support_size)
    H = rng.standard_normal((num_contexts, num_contexts))
    place = rng.random((num_contexts, vocab_size)).argsort(axis=1)
    size = rng.choice(list(sizes), num_contexts, p=list(sizes.values()))
    P = np.where(place < size[:, None], rng.standard_exponential(place.shape), 0.0)
    return NextTokenData(H, P / P.sum(1, keepdims=True))


def independent_equations(data):
    """Whether the equations of T24's Definition 1 are independent: then every law is compatible."""
    return equal_subspace(data).dim == (data.support.sum(1) - 1).sum()


def first_dimension(data, holds=is_separable):
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
    (int, int)
        The largest ``d`` where it fails (0 if none) and the smallest where it holds (one more
        than there are, if none). Only undecided ``d`` lie between.
    """
    V = data.vocab_size
    moments = np.sum([_codimension(V, int(size)) for size in data.support.sum(1)], axis=0)
    H, P = data.context_embeddings, data.target_probs
    return first_true(
        lambda d: holds(NextTokenData(H[:, :d], P)),
        top=H.shape[1],
        guess=moments[0] / (V - 1),
        step=np.sqrt(moments[1]) / (V - 1),
    )


def first_true(holds, top, guess, step):
    """Bracket the first of 1 … top where a monotone condition holds (see :func:`first_dimension`).

    The brackets do not depend on where the search starts, ``guess``, nor on its first ``step``.
    """
    fails, true, undecided, aim, step = 0, top + 1, set(), guess, max(1.0, step)
    while untried := set(range(fails + 1, true)) - undecided:
        d = min(untried, key=lambda n: (abs(n - aim), n))
        try:
            verdict = holds(d)
        except ConvergenceError:
            undecided.add(d)
            continue
        fails, true = (fails, d) if verdict else (d, true)
        if fails and true <= top:
            aim = (fails + true) / 2
        else:
            aim, step = (d - step, 2 * step) if verdict else (d + step, 2 * step)
    return fails, true


def sweep(cells, trials, seed=0, holds=is_separable, draw=random_data, n_jobs=None):
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

    Returns
    -------
    list of ndarray of shape (trials, 2)
        For each cell the brackets of :func:`first_dimension`. In a terminal a bar shows the
        progress.
    """
    from joblib import Parallel, delayed  # in the extra `book`, like tqdm
    from tqdm import tqdm

    counts = np.broadcast_to(trials, len(cells))
    owner = np.repeat(np.arange(len(cells)), counts)
    jobs = (delayed(_trial)(draw, cells[c], holds, [seed, i]) for i, c in enumerate(owner))
    results = Parallel(n_jobs=n_jobs, return_as="generator")(jobs)
    brackets = np.array(list(tqdm(results, total=len(owner), disable=None)), dtype=int)
    return np.split(brackets.reshape(-1, 2), np.cumsum(counts)[:-1])


def _trial(draw, cell, holds, seed):
    return first_dimension(draw(np.random.default_rng(seed), *cell), holds)
