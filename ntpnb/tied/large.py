"""The finite part of a linear decoder at real sizes: nothing as large as contexts × tokens."""

from functools import cached_property

import numpy as np

from ntpnb.basics.tolerances import HELD, NEGLIGIBLE
from ntpnb.basics.validation import BoolArray, FloatArray, require_dense
from ntpnb.basics.watch import Watch
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.products import combined_at, scores_at
from ntpnb.problem.table import LARGE, entries_of
from ntpnb.tied.entries import (
    CoreLoss,
    TieEntries,
    core_of,
    log_softmax,
    tie_entries,
)
from ntpnb.tied.newton import minimise, not_settled
from ntpnb.tied.smallest import SmallestFit
from ntpnb.tied.subspace import EqualSubspace, Whitening, equal_subspace


def is_large(data: NextTokenData) -> bool:
    """Whether the finite part of these data is found by :func:`large_finite_part`.

    Tokens are one-hot and all of them candidates, every row is a group of its own, and contexts
    times tokens are at least 2²⁰.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    bool

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.tied.large import is_large
    >>> is_large(ntpnb.datasets.toy())
    False
    """
    return data.is_linear_decoder and data.num_contexts * data.vocab_size >= LARGE


def large_finite_part(data: NextTokenData, watch: Watch) -> FloatArray:
    """Find the finite part from the supports alone.

    The core of the ties is fitted by Newton's method; every other token meets its target
    probabilities. That gives the log-odds of all ties, and the smallest W that has them is the
    finite part. Whether it is one is then asked of the data themselves.

    Parameters
    ----------
    data : NextTokenData
        With one-hot tokens, no candidate counts, and each row a group of its own.
    watch : Watch

    Returns
    -------
    ndarray, shape (V, q)
        ``W``, see :class:`ntpnb.FinitePart`.

    Raises
    ------
    ConvergenceError
        The proof was not reached in time, or not at all. The error's ``residual`` is the norm of
        the whitened gradient at its ``point``, a matrix in F.
    ValueError
        ``W`` would have more than 2**28 entries.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.tied.large import large_finite_part
    >>> from ntpnb.basics.watch import Watch
    >>> W = large_finite_part(ntpnb.NextTokenData([[1.0]], [[0.8, 0.2, 0.0]]), Watch())
    >>> W.round(6).tolist()  # ± ½ log 4
    [[0.693147], [-0.693147], [0.0]]
    """
    require_dense("W", data.shape, "use fewer dimensions, or a smaller vocabulary")
    entries = tie_entries(data)
    core = core_of(entries)
    watch.say(
        f"{len(entries.token)} entries of {entries.num_contexts} contexts tie; "
        f"{np.count_nonzero(core)} of them may have odds out of reach"
    )
    log_odds = np.log(entries.probs)
    known = np.zeros(data.shape)
    problem = CoreLoss(entries, core) if core.any() else None
    if problem is not None:
        best = minimise(problem, np.zeros((len(problem.tokens), data.shape[1])), watch)
        known[problem.tokens] = best.point
        log_odds[core] = problem.log_probs(best.point)
    W = SmallestFit(entries, core)(log_odds, known, watch)
    slope = _slope(W, entries, core, problem)
    watch.say(f"the gradient's norm, relative to the embeddings, is {slope:.1e}")
    if slope > NEGLIGIBLE:
        nearest = "" if problem is None else problem.weakest.contexts(data)
        raise not_settled(slope, W, watch, nearest)
    return W


# -- proof ----------------------------------------------------------------------------------------


def _slope(W: FloatArray, entries: TieEntries, core: BoolArray, problem: CoreLoss | None) -> float:
    """Bound of the gradient's norm in coordinates in which the embeddings have no scale.

    A gradient that comes from errors of the probabilities ``q_kv`` is, in these coordinates, at
    most as long as the errors times ``√π_k``. Errors outside the core vanish, and are bounded so.
    """
    errors = np.exp(log_softmax(entries.scores(W), entries.context)) - entries.probs
    context_probs = entries.context_probs[entries.context]
    slope = float(np.linalg.norm((np.sqrt(context_probs) * errors)[~core]))
    if problem is not None:
        of_core = problem.pull_back((context_probs * errors)[core])
        slope += float(np.linalg.norm(problem.whiten(of_core)))
    return slope


def evidence(W: FloatArray, data: NextTokenData) -> tuple[float, float]:
    """Gradient norm and residual of :class:`ntpnb.FinitePart`, from the data themselves."""
    table = data.sparse_target_probs
    several = np.flatnonzero(np.diff(table.indptr) > 1)
    if not len(several):
        return 0.0, 0.0
    context, token, probs = entries_of(table[several])
    embeddings = data.context_embeddings[several]
    log_q = log_softmax(scores_at(embeddings, W, context, token), context)

    errors = data.context_probs[several][context] * (np.exp(log_q) - probs)
    gradient = combined_at(errors, context, token, embeddings, data.vocab_size)
    log_odds_errors = log_q - np.log(probs)
    starts = np.flatnonzero(np.diff(context, prepend=-1))
    highest = np.maximum.reduceat(log_odds_errors, starts)
    lowest = np.minimum.reduceat(log_odds_errors, starts)
    return float(np.linalg.norm(gradient)), float((highest - lowest).max())


# -- the tied subspace ----------------------------------------------------------------------------


class LargeSubspace(EqualSubspace):
    """The tied subspace F of a large linear decoder; nothing is computed before it is needed.

    Projections take conjugate gradients and fit at any size. The dimension, a basis, a fit of
    targets and the whitening come from dense factors, and are refused where these are too large.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.tied.large import LargeSubspace
    >>> F = LargeSubspace(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5]]))
    >>> F.project([[3.0], [1.0]]).round(6).tolist()
    [[1.0], [-1.0]]
    """

    def _checked(self) -> "LargeSubspace":
        if not self._data.is_linear_decoder:
            raise ValueError("LargeSubspace needs data of a linear decoder")
        return LargeSubspace(self._data)

    @property
    def dim(self) -> int:
        """Dimension of the subspace."""
        return self._dense.dim

    def fit(self, targets: FloatArray) -> FloatArray:
        """Fit targets of shape (m, V), see :meth:`EqualSubspace.fit`."""
        return self._dense.fit(targets)

    def whitening(self) -> Whitening:
        """Undo the scales, see :meth:`EqualSubspace.whitening`."""
        return self._dense.whitening()

    def _project(self, W: FloatArray) -> FloatArray:
        each = np.vectorize(self._project_one, signature="(p,q)->(p,q)")
        projected: FloatArray = each(W)
        return projected

    def _project_one(self, W: FloatArray) -> FloatArray:
        """The smallest matrix with the same scores of tied tokens, up to common ones."""
        scores = self._entries.scores(W)
        size = float(np.abs(scores).max(initial=0.0))
        if size == 0:
            return np.zeros_like(W)
        # The fit's accuracy is absolute, in scores.
        return size * self._smallest(scores / size, W / size, Watch())

    def _basis(self) -> FloatArray:
        return self._dense._basis()

    @cached_property
    def _entries(self) -> TieEntries:
        return tie_entries(self._data)

    @cached_property
    def _smallest(self) -> SmallestFit:
        return SmallestFit(self._entries, core_of(self._entries))

    @cached_property
    def _dense(self) -> EqualSubspace:
        """The same subspace with dense factors."""
        data = self._data
        num_tied = int(np.count_nonzero(np.diff(data.sparse_target_probs.indptr) > 1))
        num_entries = num_tied * max(num_tied, data.vocab_size)
        if num_entries > HELD:
            raise ValueError(
                f"the dense factors of the tied subspace of {num_tied} contexts and "
                f"{data.vocab_size} tokens have {num_entries} entries, more than {HELD}; "
                "use project and reject, which need none"
            )
        return equal_subspace(data)
