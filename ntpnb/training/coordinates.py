"""Coordinates in which training separates: ``u`` in the tied subspace, ``a`` off it.

Gradients of the loss lie in the span of the tied subspace F and of the matrices
``D_k = (t_z − t_v) h_jᵀ``, one for each row ``j`` (with an in-support token ``z``, the anchor) and
each candidate ``v`` that ``z`` strictly dominates. So a trajectory from ``W_0`` is
``W = P_⊥ W_0 + Σ_i u_i F_i + Σ_k a_k P_⊥ D_k``, where the ``F_i`` are an orthonormal basis of F,
and obeys equations in ``u`` and ``a`` alone. Differences between the scores of tied tokens depend
on ``u`` only, which is what keeps their digits when ``a`` is huge.

Coordinates are at unit scale. With embeddings ``h/κ``, of about unit smoothness, ``κ W`` scores as
the given data do with ``W``; the flow's time ``t`` becomes ``κ² t``, the path's ``λ`` becomes
``λ/κ²``, and ``W^mm`` and ``W*`` become ``κ`` times as long.
"""

from dataclasses import dataclass, field

import numpy as np

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Recorded
from ntpnb.basics.validation import FloatArray, require_dense
from ntpnb.basics.watch import Watch
from ntpnb.bias import ImplicitBias, implicit_bias
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData, counts_or_ones
from ntpnb.problem.loss import excess_of_logits
from ntpnb.problem.order import dominated
from ntpnb.problem.table import row_slices
from ntpnb.tied.finite import FinitePart
from ntpnb.training.comparison import Comparison, compare_with

_INSTEAD = "train with descend instead, or take fewer contexts or tokens"


def bias_within(data: NextTokenData | ImplicitBias, watch: Watch) -> ImplicitBias:
    """Return the bias of data, whose parts take their time from a watch.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
        A bias is returned as it is, with the limits that it was made with.
    watch : Watch

    Returns
    -------
    ImplicitBias

    Raises
    ------
    TypeError
        Something else.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.coordinates import bias_within
    >>> from ntpnb.basics.watch import Watch
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> bias_within(bias, Watch(seconds=1)) is bias
    True
    """
    if isinstance(data, ImplicitBias):
        return data
    return implicit_bias(data, seconds=watch.left, progress=watch.say)


def unit_scale(data: NextTokenData) -> float:
    """By how much embeddings of extraordinary length are too long for unit smoothness.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    float
        A power of two, so that nothing is rounded that is divided by it; one for ordinary data.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.coordinates import unit_scale
    >>> unit_scale(ntpnb.datasets.toy())
    1.0
    >>> unit_scale(ntpnb.NextTokenData([[2.0**20]], [[0.5, 0.5]]))
    1048576.0
    """
    if 1e-4 <= data.smoothness <= 1e4 or not data.smoothness:  # ordinary: kept in its own units
        return 1.0
    return float(2.0 ** np.round(np.log2(data.smoothness) / 2))


class Coordinates:
    """Logits, probabilities and their derivatives in the coordinates ``(u, a)``.

    Arrays over candidates are flat: entry ``k`` is candidate ``token[k]`` of row ``row[k]``. There
    are ``n`` candidates in all rows, ``N`` of them dominated, and ``dim`` coordinates of the tied
    subspace. Logits are relative, so that only differences within a row have a meaning: that of the
    row's anchor, one of its in-support tokens, stays at ``log p``, and the embeddings of the other
    tokens enter by their difference to the anchor's.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
    init : ndarray, shape (p, q), optional
        Where training begins; default zeros. Only its part off F shifts the coordinates.
    watch : Watch, optional
        Its limit is that of what is computed of the theory, too, unless ``data`` is a bias.

    Attributes
    ----------
    data : NextTokenData
    scale : float
        ``κ``, a power of two; one for ordinary data.
    svm : MarginSolution
    finite : FinitePart
    row, token : ndarray of int, shape (n,)
        Row and token of each candidate, rows in order.
    first : ndarray of int, shape (m,)
        Position of each row's first candidate.
    dominated : ndarray of bool, shape (n,)
        Whether the candidate must lose against its row's in-support tokens.
    p, pi : ndarray, shape (n,)
        Target probability of each candidate, and the probability of its context.
    basis : ndarray, shape (dim, p, q)
        Orthonormal basis ``F_i`` of the tied subspace.
    strict : ndarray, shape (N, p, q)
        ``P_⊥ D_k/κ`` of each dominated candidate.
    slopes : ndarray, shape (n, dim)
        Derivatives of the logits along ``u``.
    gram : ndarray, shape (N, N)
        Inner products of ``strict``: minus the slopes of the dominated candidates' logits
        along ``a``.
    offset : ndarray, shape (p, q)
        ``P_⊥ κ W_0``.
    u_start, u_limit : ndarray, shape (dim,)
        Tied coordinates of ``κ W_0`` and of ``κ W*``.
    base, base_limit : ndarray, shape (n,)
        Logits at ``u = a = 0``, and at the limit of ``u`` with ``a = 0``.

    Raises
    ------
    NotSeparableError
        The strict orders cannot all hold, so training has no max-margin direction.
    ConvergenceError
        It is undecided whether they can, the finite part was not found, or the time is over.
    ValueError
        One of the arrays would have more than 2**28 entries; it is raised before the theory is
        computed where that can be known.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.training.coordinates import Coordinates
    >>> coords = Coordinates(ntpnb.datasets.toy())
    >>> len(coords.u_limit), len(coords.gram)
    (6, 6)
    """

    def __init__(
        self,
        data: NextTokenData | ImplicitBias,
        init: FloatArray | None = None,
        watch: Watch | None = None,
    ) -> None:
        watch = Watch() if watch is None else watch
        bias = bias_within(data, watch)
        self.data = bias.data
        self.scale = unit_scale(self.data)
        self._list_candidates(bias)
        self.svm = bias.require_max_margin()
        self.finite = bias.finite_part
        dim = self.finite.subspace.dim
        self._require_room(f" with {dim} tied dimensions", len(self.row), self.data.shape[0], dim)
        watch.tell(f"coordinates: {dim} in the tied subspace, {len(self.row)} candidates")
        self._span_directions()
        watch.tell("coordinates: the start and the limit")
        start = np.zeros(self.data.shape) if init is None else self.scale * init
        self.offset: FloatArray = self.finite.subspace.reject(start)
        self.u_start = self._tied_coordinates(start)
        self.u_limit = self._tied_coordinates(self.scale * self.finite.W)
        self._evaluate_base_logits()

    def _list_candidates(self, bias: ImplicitBias) -> None:
        data = self.data
        counts = data.sparse_candidate_counts
        num_candidates = data.num_contexts * data.vocab_size if counts is None else counts.nnz
        self._require_room("", num_candidates, data.shape[0])
        self.row, self.token = np.nonzero(data.candidates)
        self.first = np.searchsorted(self.row, np.arange(len(data.context_probs)))
        self.dominated = dominated(data, bias.order)[self.row, self.token]
        self.p = data.target_probs[self.row, self.token]
        self.pi = data.context_probs[self.row]
        num_strict = int(np.count_nonzero(self.dominated))
        self._require_room(f" with {num_strict} dominated candidates", num_strict, *data.shape)
        self._require_room(f" with {num_strict} dominated candidates", num_strict, num_strict)

    def _require_room(self, with_what: str, *shape: int) -> None:
        """Raise before memory is taken for an array of this shape."""
        require_dense(f"a flow or path{with_what}", shape, _INSTEAD)

    def _span_directions(self) -> None:
        """Directions of the coordinates, and how the logits change along them."""
        data = self.data
        H = data.context_embeddings / self.scale
        T = np.eye(data.vocab_size) if data.token_embeddings is None else data.token_embeddings
        relative = T[self.token] - T[data.anchors[self.row]]  # t_v − t_z, shape (n, p)
        losing = self.dominated
        D = np.einsum("np,nq->npq", -relative[losing], H[self.row[losing]])
        self.strict: FloatArray = self.finite.subspace.reject(D)
        self._flat_strict = self.strict.reshape(-1, data.shape[0] * data.shape[1])
        self.gram: FloatArray = self._flat_strict @ self._flat_strict.T
        self.basis: FloatArray = self.finite.subspace.basis
        along_basis = np.einsum("kpq,mq->mpk", self.basis, H)[self.row]
        self.slopes: FloatArray = np.einsum("npk,np->nk", along_basis, relative)

    def _tied_coordinates(self, W: FloatArray) -> FloatArray:
        u: FloatArray = np.einsum("kpq,pq->k", self.basis, W)
        return u

    def _evaluate_base_logits(self) -> None:
        """Logits at ``W = offset``, shifted so that each row's anchor token has ``log p``."""
        data = self.data
        counts = counts_or_ones(data)
        rows = np.arange(len(data.context_probs))
        p_anchor = data.target_probs[rows, data.anchors]
        at_anchor = np.log(p_anchor / counts[rows, data.anchors])
        self.base: FloatArray = np.log(counts[self.row, self.token]) + at_anchor[self.row]
        self.base[self.dominated] -= self._flat_strict @ self.offset.ravel()
        self.base_limit: FloatArray = self.base + self.slopes @ self.u_limit
        if self.finite.compatible:  # the log-odds are met: rounding shall not say otherwise
            tied = ~self.dominated
            self.base_limit[tied] = np.log(self.p[tied])

    def weights(self, u: FloatArray, a: FloatArray) -> FloatArray:
        """Return the matrices ``W`` of stacked coordinates, at the scale of the given data.

        Parameters
        ----------
        u : ndarray, shape (..., dim)
        a : ndarray, shape (..., N)

        Returns
        -------
        ndarray, shape (..., p, q)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
        >>> coords.weights([], [2.0]).ravel()
        array([ 2., -2.])
        """
        W: FloatArray = (self.offset + np.tensordot(a, self.strict, 1)) / self.scale
        return W + self.tied_weights(u)

    def tied_weights(self, u: FloatArray) -> FloatArray:
        """Return the tied parts ``P_F W`` of stacked coordinates, at the scale of the given data.

        Parameters
        ----------
        u : ndarray, shape (..., dim)

        Returns
        -------
        ndarray, shape (..., p, q)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.datasets.toy())
        >>> bool(abs(coords.tied_weights(coords.u_limit) - coords.finite.W).max() < 1e-12)
        True
        """
        return np.tensordot(u, self.basis, 1) / self.scale

    def logits(self, u: FloatArray | None, a: FloatArray) -> FloatArray:
        """Return the logits of all candidates.

        Parameters
        ----------
        u : ndarray, shape (dim,), or None
            None stands for its limit, where the logits of tied tokens are known exactly.
        a : ndarray, shape (N,)

        Returns
        -------
        ndarray, shape (n,)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
        >>> coords.logits(None, [2.0])
        array([ 0., -4.])
        """
        x = self.base_limit.copy() if u is None else self.base + self.slopes @ u
        x[self.dominated] -= self.gram @ a
        return x

    def log_probs(self, x: FloatArray) -> FloatArray:
        """Return the log-probabilities of all candidates from their logits.

        Parameters
        ----------
        x : ndarray, shape (n,)

        Returns
        -------
        ndarray, shape (n,)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
        >>> np.exp(coords.log_probs(np.array([5.0, 5.0]))).round(6)
        array([0.5, 0.5])
        """
        return x - self.log_totals(x)[self.row]

    def log_totals(self, x: FloatArray) -> FloatArray:
        """Return the logarithm of each row's sum of exponentials.

        Parameters
        ----------
        x : ndarray, shape (n,)
            Logits, ``−inf`` where a candidate is left out.

        Returns
        -------
        ndarray, shape (m,)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
        >>> coords.log_totals(np.array([5.0, -np.inf]))
        array([5.])
        """
        largest = np.maximum.reduceat(x, self.first)
        total = np.add.reduceat(np.exp(x - largest[self.row]), self.first)
        log_totals: FloatArray = largest + np.log(total)
        return log_totals

    def slope_u(self, q: FloatArray) -> FloatArray:
        """Gradient of the loss along ``u``.

        Parameters
        ----------
        q : ndarray, shape (n,)
            Probabilities of the candidates.

        Returns
        -------
        ndarray, shape (dim,)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.datasets.toy())
        >>> coords.slope_u(coords.p)
        array([0., 0., 0., 0., 0., 0.])
        """
        slope: FloatArray = self.slopes.T @ (self.pi * (q - self.p))
        return slope

    def centred(self, q: FloatArray, dx: FloatArray) -> FloatArray:
        """Derivatives of log-probabilities: those of the logits, less their mean in each row.

        Parameters
        ----------
        q : ndarray, shape (n,)
            Probabilities of the candidates.
        dx : ndarray, shape (n, k)
            Derivatives of the logits in k directions.

        Returns
        -------
        ndarray, shape (n, k)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
        >>> coords.centred(np.array([0.75, 0.25]), np.array([[1.0], [0.0]])).ravel()
        array([ 0.25, -0.75])
        """
        mean = np.add.reduceat(q[:, None] * dx, self.first, axis=0)
        derivatives: FloatArray = dx - mean[self.row]
        return derivatives

    def along_a(self) -> FloatArray:
        """Return derivatives of the logits along ``a``.

        Returns
        -------
        ndarray, shape (n, N)

        Examples
        --------
        >>> import ntpnb
        >>> from ntpnb.training.coordinates import Coordinates
        >>> Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]])).along_a().ravel() + 0.0
        array([ 0., -2.])
        """
        dx = np.zeros((len(self.row), len(self.gram)))
        dx[self.dominated] = -self.gram
        return dx

    def excess(self, x: FloatArray) -> FloatArray:
        """Cross-entropy minus entropy, in nats, from the logits of all candidates.

        Parameters
        ----------
        x : ndarray, shape (r, n)

        Returns
        -------
        ndarray, shape (r,)

        Examples
        --------
        >>> import ntpnb
        >>> import numpy as np
        >>> from ntpnb.training.coordinates import Coordinates
        >>> coords = Coordinates(ntpnb.NextTokenData([[1.0]], [[1.0, 0.0]]))
        >>> coords.excess(np.array([[0.0, 0.0]])).round(4)
        array([0.6931])
        """
        excess = np.empty(len(x))
        shape = (len(x), self.data.num_contexts, self.data.vocab_size)
        for part in row_slices(shape):
            table = np.full((len(x[part]), *shape[1:]), -np.inf)
            table[:, self.row, self.token] = x[part]
            excess[part] = excess_of_logits(table, self.data)
        return excess


# -- curves in these coordinates ------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ExactTrace(Recorded):
    """Matrices of a curve that is known beyond what ``W`` can hold, such as a flow or a path.

    Attributes
    ----------
    W : ndarray, shape (r, p, q)
    """

    W: FloatArray
    _inside: FloatArray = field(repr=False)  # P_F W, whose digits W itself loses as it grows

    def compare(
        self, finite: FinitePart | ImplicitBias, svm: MarginSolution | None = None
    ) -> Comparison:
        """Compare every point with the theory, as a run's :meth:`Trace.compare` does.

        Parameters
        ----------
        finite : FinitePart or ImplicitBias
            A bias holds both parts.
        svm : MarginSolution, optional
            Needed beside a finite part; beside a bias it takes the place of the bias's own.

        Returns
        -------
        Comparison

        Raises
        ------
        TypeError
            A finite part without a max-margin solution.
        NotSeparableError, ConvergenceError
            The refusal of a bias that has no max-margin solution.

        References
        ----------
        T24 (002) Thms 1 and 2; L24 (004) Thms 1 to 4.

        Examples
        --------
        >>> import ntpnb
        >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
        >>> ntpnb.gradient_flow(bias, [10.0, 1000.0]).compare(bias).angle.round(3)
        array([0.155, 0.001])
        >>> ntpnb.regularization_path(bias, [10.0, 1e4]).compare(bias).angle.round(2)
        array([0.22, 0.  ])
        """
        return compare_with(self.W, finite, svm, inside=self._inside)


def require_all_reached(
    watch: Watch, what: str, asked: int, trace: ExactTrace, residuals: FloatArray
) -> None:
    """Raise where the time was over before the end of a curve, with the points so far.

    Parameters
    ----------
    watch : Watch
    what : str
        What the points are, in the plural.
    asked : int
        How many were asked for.
    trace : ExactTrace
        Those that were reached.
    residuals : ndarray, shape (r,)
        Of each of them.

    Raises
    ------
    ConvergenceError
        With the trace as its ``point``, None where no point was reached.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.watch import Watch
    >>> from ntpnb.training.coordinates import require_all_reached
    >>> flow = ntpnb.gradient_flow(ntpnb.datasets.toy(), [0.0, 1.0])
    >>> require_all_reached(Watch(seconds=9), "times", 3, flow, flow.excess)
    Traceback (most recent call last):
    ...
    ntpnb.basics.errors.ConvergenceError: stopped after 9 seconds: 2 of 3 times were reached; ...
    """
    reached = len(trace.W)
    if reached == asked:
        return
    message = f"{watch.stopped}: {reached} of {asked} {what} were reached"
    if not reached:
        raise ConvergenceError(message, np.inf)
    raise ConvergenceError(f"{message}; .point is the trace so far", float(residuals[-1]), trace)
