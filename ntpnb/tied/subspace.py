"""The tied subspace F, spanned by the ties: T24's data subspace, L24's cyclic subspace S_cyc."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg as sla
from numpy.typing import ArrayLike

from ntpnb.basics.linear_systems import nonzero_norms, unit_rows
from ntpnb.basics.saving import Result
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import HALF_THE_DIGITS, HELD, UNCLEAR, decomposition_error
from ntpnb.basics.validation import DENSE_LIMIT, FloatArray, IntArray, require_dense
from ntpnb.basics.watch import Progress, Watch
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import as_weights
from ntpnb.problem.order import TokenPriority, listed_tokens, order_of

KEEPS_DIGITS = 1e-3  # eigenvalues above this, relative to the largest, keep their digits

# From and to arrays of shape (p, q), see EqualSubspace.whitening.
Whitening = Callable[[FloatArray], FloatArray]


@one_thread
def equal_subspace(
    data: NextTokenData,
    order: TokenPriority | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> "EqualSubspace":
    """Span the generators ``(t_i − t_j) h_gᵀ`` of all ties ``i ≍ j`` of all groups ``g``.

    This is the tied subspace F: the part of W that the differences between tied tokens' scores
    depend on. Embeddings that are linearly dependent but for their last digits count as dependent.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority, optional
        ``token_priority(data)``, where it is at hand already.
    seconds : float, optional
        Time limit of the decompositions, from which it follows. Default: none.
    progress : callable, optional
        Called with a line of text after each of them; what it raises ends the computation.

    Returns
    -------
    EqualSubspace
        With ``dim``, ``project``, ``reject``, ``fit``, ``whitening`` and ``basis``.

    Raises
    ------
    TypeError
        ``data`` is no dataset, or ``order`` no order.
    ValueError
        The data have token embeddings, and the generators of all ties more than 2**28 entries; or
        they have none, and more than 2**28 groups times tokens. Or contexts, which the message
        names, are so nearly dependent that rounding hides whether they are.
    ConvergenceError
        The time is over; the message says how far it came. There is no part of the answer then:
        ``.point`` is None, and ``.residual`` is ``inf``.

    References
    ----------
    T24 (002) Eq. (5): the data subspace F. L24 (004) Def. 3: the cyclic subspace S_cyc.

    Examples
    --------
    >>> import ntpnb
    >>> F = ntpnb.equal_subspace(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]))
    >>> F.dim
    1
    >>> F.project([[1.0], [0.0], [5.0]]).round(6).tolist()
    [[0.5], [-0.5], [0.0]]
    """
    watch = Watch(seconds, progress)
    order = order_of(data, order)
    if data.token_embeddings is None:
        return _TokenwiseSubspace(data, order, watch)
    watch.tell("the tied subspace: none of its one decomposition is done")
    return _DenseSubspace(data, data.token_embeddings, order)


class EqualSubspace(Result, ABC):
    """A tied subspace F of ``p × q`` matrices (see :func:`equal_subspace`).

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.equal_subspace(ntpnb.datasets.toy()).dim
    6
    """

    def __init__(self, data: NextTokenData) -> None:
        self._data = data
        self.weakest = NO_DEPENDENCE  # so far; what costs most digits

    def _require_clear(self, near: "NearDependence") -> None:
        """Refuse the data where rounding hides whether they depend, and keep what is worst."""
        near.require(UNCLEAR, self._data)
        self.weakest = max(self.weakest, near, key=by_error)

    def __repr__(self) -> str:
        p, q = self._data.shape
        return f"EqualSubspace(dim: {self.dim}, W: {p} × {q})"

    def _saved(self) -> dict[str, NextTokenData]:
        """What a file holds: the factors are large, and follow from the data."""
        return {"_data": self._data}

    def _checked(self) -> "EqualSubspace":
        """The subspace that a file describes, made anew from its data."""
        return equal_subspace(self._data)

    @property
    @abstractmethod
    def dim(self) -> int:
        """Dimension of the subspace.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.equal_subspace(ntpnb.NextTokenData([[1.0]], [[0.5, 0.25, 0.25]])).dim
        2
        """

    @one_thread
    def project(self, W: ArrayLike) -> FloatArray:
        """Orthogonal projection onto the subspace.

        Parameters
        ----------
        W : array_like, shape (..., p, q)

        Returns
        -------
        ndarray, shape (..., p, q)

        Raises
        ------
        ValueError
            ``W`` has the wrong shape or is not finite.

        Examples
        --------
        >>> import ntpnb
        >>> F = ntpnb.equal_subspace(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5]]))
        >>> F.project([[3.0], [1.0]]).round(6).tolist()
        [[1.0], [-1.0]]
        """
        return self._project(as_weights("W", W, self._data))

    @one_thread
    def reject(self, W: ArrayLike) -> FloatArray:
        """Orthogonal projection onto the complement of the subspace.

        Parameters
        ----------
        W : array_like, shape (..., p, q)

        Returns
        -------
        ndarray, shape (..., p, q)

        Raises
        ------
        ValueError
            ``W`` has the wrong shape or is not finite.

        Examples
        --------
        >>> import ntpnb
        >>> F = ntpnb.equal_subspace(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5]]))
        >>> F.reject([[3.0], [1.0]]).round(6).tolist()
        [[2.0], [2.0]]
        """
        weights = as_weights("W", W, self._data)
        return weights - self._project(weights)

    @property
    @one_thread
    def basis(self) -> FloatArray:
        """An orthonormal basis, shape (dim, p, q), computed anew each time.

        Raises
        ------
        ValueError
            The basis would have more than 2**26 entries.

        Examples
        --------
        >>> import ntpnb
        >>> F = ntpnb.equal_subspace(ntpnb.datasets.toy())
        >>> F.basis.shape
        (6, 5, 2)
        """
        p, q = self._data.shape
        num_entries = self.dim * p * q
        if num_entries > HELD:
            raise ValueError(
                f"a basis of {self.dim} matrices of shape ({p}, {q}) has {num_entries} entries, "
                f"more than {HELD}; use project and reject, which need none"
            )
        return self._basis().reshape(self.dim, p, q)

    @abstractmethod
    def fit(self, targets: FloatArray) -> FloatArray:
        """Smallest W whose tied scores differ as ``targets`` do.

        Parameters
        ----------
        targets : ndarray, shape (G, V)
            A wanted score of every token in every group; only its differences between tied tokens
            count. Entries of other tokens may be NaN.

        Returns
        -------
        ndarray, shape (p, q)
            Where no W meets all targets, some approximate fit inside the subspace, which is good
            as a starting point only.

        Examples
        --------
        >>> import numpy as np, ntpnb
        >>> F = ntpnb.equal_subspace(ntpnb.NextTokenData([[2.0]], [[0.5, 0.5]]))
        >>> F.fit(np.array([[1.0, -3.0]])).round(6).tolist()
        [[1.0], [-1.0]]
        """

    def whitening(self) -> Whitening:
        """Return a symmetric linear map ``A`` of ``p × q`` matrices that undoes the scales.

        The loss restricted to ties, as a function of ``A⁻¹ W``, has a Hessian of size one in all
        directions of the subspace, however long or rare the contexts are, unless the model's
        distribution itself is degenerate.

        Returns
        -------
        callable
            From and to arrays of shape (..., p, q). It raises a ``ValueError`` where its argument
            has the wrong shape or is not finite.

        Raises
        ------
        ValueError
            Contexts, which the message names, are so short beside others that rounding hides what
            they add.

        Examples
        --------
        >>> import numpy as np, ntpnb
        >>> F = ntpnb.equal_subspace(ntpnb.NextTokenData([[0.01]], [[0.5, 0.5]]))
        >>> F.whitening()(np.array([[1.0], [-1.0]])).round(6).tolist()
        [[100.0], [-100.0]]
        """
        whiten = self._whitening()
        return lambda W: whiten(as_weights("W", W, self._data))

    def _scaled_svd(
        self,
        directions: FloatArray,
        lengths: FloatArray,
        probs: FloatArray,
        rank: int,
        rows: IntArray,
    ) -> "ThinSVD":
        """Thin SVD of directions times ``lengths √probs``, or an error that names the short ones.

        Row k belongs to row ``rows[k]`` of the data; ``rank`` is that of the directions.
        """
        weights = lengths * np.sqrt(probs)
        svd = thin_svd(weights[:, None] * directions)
        if svd.rank < rank and thin_svd(lengths[:, None] * directions).rank < rank:
            points = directions.any(axis=1)  # those of zeros have no length of their own
            longest = lengths[points].max()
            short = np.unique(rows[points & (lengths <= longest * HALF_THE_DIGITS)])
            raise ValueError(
                f"the embeddings of {named_contexts(self._data, short)} are so short beside others "
                "that rounding hides what they add; others of more equal scale are needed"
            )
        return svd

    @abstractmethod
    def _whitening(self) -> Whitening:
        """:meth:`whitening` of weights that are known to fit."""

    @abstractmethod
    def _project(self, W: FloatArray) -> FloatArray:
        """:meth:`project` of weights that are known to fit."""

    @abstractmethod
    def _basis(self) -> FloatArray:
        """An orthonormal basis with p·q entries for each of its elements, in any shape."""


def named_contexts(data: NextTokenData, rows: IntArray) -> str:
    """Some rows of the data in words."""
    names = [data.label(row) for row in rows.tolist()]
    return f"context{'s' if len(names) > 1 else ''} {', '.join(names)}"


class NearDependence(NamedTuple):
    """Weights of unit embeddings whose sum is short.

    Attributes
    ----------
    size : float
        Norm of the sum, relative to the longest.
    error : float
        Sine of the angle by which rounding may turn what the embeddings span.
    weights : ndarray, shape (n,)
    rows : ndarray of int, shape (n,)
        The embeddings' rows in the data; an embedding may occur several times.
    """

    size: float
    error: float
    weights: FloatArray
    rows: IntArray

    def contexts(self, data: NextTokenData) -> str:
        """The rows that take part, in words."""
        sizes = np.abs(self.weights)
        return named_contexts(data, np.unique(self.rows[sizes > 0.01 * sizes.max()]))

    def require(self, most: float, data: NextTokenData) -> None:
        """Raise ``ValueError``, naming the rows that take part, where rounding may turn more."""
        if self.error > most:
            raise ValueError(
                f"the embeddings of {self.contexts(data)} are linearly dependent but for "
                f"{self.size:.1e} of their length, so that rounding may turn what their ties span "
                f"by {self.error:.1e}; merge_tolerance makes one of nearly equal contexts, and "
                "others need directions of more equal scale"
            )


NO_DEPENDENCE = NearDependence(1.0, 0.0, np.zeros(0), np.zeros(0, dtype=np.intp))


def by_error(near: NearDependence) -> float:
    """The key by which the worst is found."""
    return near.error


# -- general token embeddings ---------------------------------------------------------------------


class _Ties(NamedTuple):
    """Ties ``i ≍ j`` in the groups at the positions ``group``, as arrays of shape (n,)."""

    group: IntArray
    i: IntArray
    j: IntArray


class _DenseSubspace(EqualSubspace):
    """General token embeddings: an orthonormal basis in the coordinates that W can use.

    A generator ``(t_i − t_j) h_gᵀ`` only sees the row spaces of T and H, so that ``p × q``
    matrices are represented by their coordinates in orthonormal bases of these spaces.
    """

    def __init__(self, data: NextTokenData, T: FloatArray, order: TokenPriority) -> None:
        super().__init__(data)
        H = data.group_embeddings
        self._ties = _ties_to_shortest(T, order)
        # Differences of nearly equal tokens are exact, and what spans the tokens is not.
        pairs = np.unique(np.stack([self._ties.i, self._ties.j], axis=1), axis=0)
        self._token_space = thin_svd(unit_rows(T[pairs[:, 0]] - T[pairs[:, 1]])).Vt
        self._context_space = thin_svd(unit_rows(H)).Vt
        self._require_room()

        # Generators of norm one: a long embedding must not decide what counts as rounding.
        differences = (T[self._ties.i] - T[self._ties.j]) @ self._token_space.T
        contexts = (unit_rows(H) @ self._context_space.T)[self._ties.group]
        self._generator_norms = nonzero_norms(differences) * nonzero_norms(H)[self._ties.group]
        self._generators = flat_outer_products(unit_rows(differences), contexts)
        self._svd = thin_svd(self._generators)
        self._rows = data._first_rows[self._ties.group]
        self._require_clear(self._svd.weakest(self._rows))

    @property
    def dim(self) -> int:
        return self._svd.rank

    def fit(self, targets: FloatArray) -> FloatArray:
        group, i, j = self._ties
        wanted = (targets[group, i] - targets[group, j]) / self._generator_norms
        U, s, Vt = self._svd
        return self._from_coordinates(wanted @ U / s @ Vt)

    def _whitening(self) -> Whitening:
        tie_probs = _group_probs(self._data)[self._ties.group]
        lengths = self._generator_norms
        svd = self._scaled_svd(self._generators, lengths, tie_probs, self._svd.rank, self._rows)

        def whiten(G: FloatArray) -> FloatArray:
            return self._from_coordinates(svd.without_scales(self._to_coordinates(G)))

        return whiten

    def _project(self, W: FloatArray) -> FloatArray:
        Vt = self._svd.Vt
        return self._from_coordinates(self._to_coordinates(W) @ Vt.T @ Vt)

    def _basis(self) -> FloatArray:
        return self._from_coordinates(self._svd.Vt)

    def _require_room(self) -> None:
        num_ties = len(self._ties.group)
        tokens_dim = len(self._token_space)
        contexts_dim = len(self._context_space)
        size = num_ties * tokens_dim * contexts_dim
        if size > DENSE_LIMIT:
            raise ValueError(
                f"{num_ties} ties between tokens embedded in {tokens_dim} × {contexts_dim} "
                f"dimensions need {size} numbers, more than {DENSE_LIMIT}; "
                "use fewer contexts, or token_embeddings=None where tokens are one-hot"
            )

    def _to_coordinates(self, W: FloatArray) -> FloatArray:
        A: FloatArray = self._token_space @ W @ self._context_space.T
        return A.reshape(*A.shape[:-2], len(self._token_space) * len(self._context_space))

    def _from_coordinates(self, flat: FloatArray) -> FloatArray:
        A = flat.reshape(*flat.shape[:-1], len(self._token_space), len(self._context_space))
        return self._token_space.T @ A @ self._context_space


def _ties_to_shortest(T: FloatArray, order: TokenPriority) -> _Ties:
    """Tie every token to the shortest of its component.

    A difference of two short embeddings would lose its digits if it were taken through a long one.
    """
    group, token, component = listed_tokens(order)
    ranked = np.lexsort((nonzero_norms(T)[token], component))  # by component, and by length in each
    _, first, inverse = np.unique(component[ranked], return_index=True, return_inverse=True)
    shortest = ranked[first[inverse]]
    is_other = shortest != ranked
    shortest = shortest[is_other]
    other = ranked[is_other]
    return _Ties(group[shortest], token[other], token[shortest])


# -- one-hot tokens -------------------------------------------------------------------------------


class _TokenwiseSubspace(EqualSubspace):
    """One-hot tokens: given the common score of each component, the rows of W decouple.

    Component ``k`` of group ``g`` has the embedding ``h_k = h_g`` and the unknown common score
    ``c_k``. Row ``i`` of the smallest W with prescribed differences solves
    ``H_i w_i = y_i + c`` over the components that hold token ``i``, whose embeddings are the rows
    of ``H_i``; the best ``c`` solves one system as large as the number of components. A basis of F
    is formed only where a caller asks for one.
    """

    def __init__(self, data: NextTokenData, order: TokenPriority, watch: Watch) -> None:
        super().__init__(data)
        require_dense("equal_subspace", order.shape, "use fewer contexts or a smaller vocabulary")
        self._order = order
        self._owner, self._holders = _tied_components(order)
        self._rows = data._first_rows[self._owner]
        lengths = nonzero_norms(data.group_embeddings)
        self._lengths = lengths[self._owner]
        self._directions = data.group_embeddings[self._owner] / self._lengths[:, None]
        self._alike = _first_alike(self._holders)
        self._cached_svds: dict[int, ThinSVD] = {}
        self._num_cached_entries = 0

        self._ranks = self._row_ranks(watch)
        watch.tell("the tied subspace: all tokens are decomposed, and the common scores are not")
        self._common = self._split_common_scores()
        self._range_of_common = self._range_of_common_scores(self._common)

        q = data.shape[1]
        # The complement consists of free common scores and of the null spaces of the H_i.
        dim_complement = self._common.free.shape[1] + sum(q - rank for rank in self._ranks)
        self._dim = int(data.vocab_size * q - dim_complement)

    @property
    def dim(self) -> int:
        return self._dim

    def fit(self, targets: FloatArray) -> FloatArray:
        wanted = targets[self._owner].T / self._lengths
        if self._common.bound.shape[1]:
            wanted = wanted - self._nearest_common_scores(wanted)
        rows = [
            wanted[i, holders] @ svd.U / svd.s
            for i, (holders, svd) in enumerate(zip(self._holders, self._row_svds(), strict=True))
        ]
        return self._without_common_scores(rows)

    def _whitening(self) -> Whitening:
        probs = _group_probs(self._data)[self._owner]
        svds = [
            self._scaled_svd(
                self._directions[holders],
                self._lengths[holders],
                probs[holders],
                rank,
                self._rows[holders],
            )
            for holders, rank in zip(self._holders, self._ranks, strict=True)
        ]

        def whiten(G: FloatArray) -> FloatArray:
            rows = [svd.without_scales(G[..., i, :]) for i, svd in enumerate(svds)]
            return np.stack(rows, axis=-2)

        return whiten

    def _project(self, W: FloatArray) -> FloatArray:
        rows = [W[..., i, :] @ svd.Vt.T for i, svd in enumerate(self._row_svds())]
        return self._without_common_scores(rows)

    def _basis(self) -> FloatArray:
        pairs = self._order.equal
        one_hot = np.eye(self._data.vocab_size)
        contexts = unit_rows(self._data.group_embeddings)[self._order.positions(pairs)]
        generators = flat_outer_products(one_hot[pairs[:, 1]] - one_hot[pairs[:, 2]], contexts)
        Vt: FloatArray = sla.svd(generators, full_matrices=False)[2]
        return Vt[: self.dim]

    def _row_svd(self, i: int) -> "ThinSVD":
        """Thin SVD of ``H_i``, with rows of unit length."""
        first = self._alike[i]
        svd = self._cached_svds.get(first)
        if svd is None:
            svd = thin_svd(self._directions[self._holders[i]])
            if self._num_cached_entries <= HELD:
                self._cached_svds[first] = svd
                self._num_cached_entries += svd.U.size + svd.Vt.size
        return svd

    def _row_ranks(self, watch: Watch) -> list[int]:
        """Ranks of all ``H_i``; their decompositions are what takes time."""
        ranks: list[int] = []
        for i, holders in enumerate(self._holders):
            watch.tell(f"the tied subspace: {i} of {len(self._holders)} tokens are decomposed")
            svd = self._row_svd(i)
            ranks.append(svd.rank)
            self._require_clear(svd.weakest(self._rows[holders]))
        return ranks

    def _row_svds(self) -> Iterator["ThinSVD"]:
        """Thin SVDs of all ``H_i`` in turn, so that few need to be held at one time."""
        for i in range(len(self._holders)):
            yield self._row_svd(i)

    def _unattainable(self, i: int, scores: FloatArray) -> FloatArray:
        """Part of the scores of token ``i``, shape (holders, ...), that no row of W can produce."""
        U = self._row_svd(i).U
        return scores - U @ (U.T @ scores)

    def _split_common_scores(self) -> "_CommonScores":
        """Which common scores of the components the rows of W can produce, and which they cannot.

        They can produce ``c`` where the quadratic form ``Σ_i ‖(I − U_i U_iᵀ) c_i‖²`` vanishes,
        with ``c_i`` the part of ``c`` that belongs to the components that hold token ``i``.
        """
        num_components = len(self._owner)
        form = np.zeros((num_components, num_components))
        nearest = NO_DEPENDENCE  # of the H_i that restrict common scores
        number_alike = Counter(self._alike)  # by the first token of each kind
        for i, number in number_alike.items():
            holders = self._holders[i]
            svd = self._row_svd(i)
            if svd.rank < len(holders):
                projection = np.eye(len(holders)) - svd.U @ svd.U.T
                form[np.ix_(holders, holders)] += number * projection
                nearest = max(nearest, svd.weakest(self._rows[holders]), key=by_error)
        if not form.any():
            return _CommonScores(
                free=np.eye(num_components),
                bound=np.zeros((num_components, 0)),
                bound_values=np.zeros(0),
            )
        values, vectors = sla.eigh(form)
        bound = values > KEEPS_DIGITS
        if not bound.all():
            # The eigenvalues are squares of sines. Small sines need the projections themselves.
            uncertain = vectors[:, ~bound]
            # Tokens that are alike miss the same: one counts for all of them, by its root.
            missed = [
                number**0.5 * self._unattainable(i, uncertain[self._holders[i]])
                for i, number in number_alike.items()
            ]
            _, sines, Vt = sla.svd(np.concatenate(missed), full_matrices=False)
            values[~bound] = sines**2
            vectors[:, ~bound] = uncertain @ Vt.T
            # V projections may be off. Where only embeddings that are zero restrict common scores
            # nothing is nearly dependent, and rounding is still what it is.
            error = max(nearest.error, decomposition_error(num_components))
            noise = error * np.sqrt(len(self._holders))
            bound[~bound] = sines > noise
            if noise > HALF_THE_DIGITS and not bound.all():
                nearest.require(0.0, self._data)
            if bound.any():
                least = np.argmin(np.where(bound, values, np.inf))
                sine = float(np.sqrt(values[least]))
                self._require_clear(
                    NearDependence(sine, noise / sine, vectors[:, least], self._rows)
                )
        return _CommonScores(vectors[:, ~bound], vectors[:, bound], values[bound])

    def _range_of_common_scores(self, common: "_CommonScores") -> FloatArray | None:
        """Orthonormal basis of what free common scores make of the rows of W, if any are free."""
        if not common.free.shape[1]:
            return None
        # QR and no normal equations: nearly parallel contexts make this ill-conditioned.
        Q: FloatArray = sla.qr(self._rows_made_by(common.free), mode="economic")[0]
        if common.bound.shape[1]:
            # Rows w and common scores c are a null vector of H_i w_i = c_i. Bound scores b with the
            # rows that come nearest miss by their sine: that over their length is how small
            # singular values of these equations are, and what rounding is divided by.
            sines = np.sqrt(common.bound_values)
            lengths = np.linalg.norm(self._rows_made_by(common.bound), axis=0)
            errors = decomposition_error(len(self._owner)) * lengths / sines
            k = int(errors.argmax())
            self._require_clear(NearDependence(sines[k], errors[k], common.bound[:, k], self._rows))
        return Q

    def _rows_made_by(self, scores: FloatArray) -> FloatArray:
        """Rows of W, one after the other, by which common scores are produced or nearly so."""
        rows = [
            (svd.U / svd.s).T @ scores[holders]
            for holders, svd in zip(self._holders, self._row_svds(), strict=True)
        ]
        return np.concatenate(rows)

    def _nearest_common_scores(self, wanted: FloatArray) -> FloatArray:
        """Bound common scores that come nearest to what the targets ask for, shape (components,).

        ``wanted`` has the shape (V, components).
        """
        missed = np.zeros(len(self._owner))
        for i, holders in enumerate(self._holders):
            missed[holders] += self._unattainable(i, wanted[i, holders])
        _, bound, values = self._common
        return bound @ (bound.T @ missed / values)

    def _without_common_scores(self, rows: list[FloatArray]) -> FloatArray:
        """Subspace part of a W whose rows are given in the right singular vectors of the ``H_i``.

        What common scores make of the rows is the range of a matrix with orthonormal columns.
        Removing it divides by no singular value, which would cost the digits that nearly parallel
        contexts lack.
        """
        flat = np.concatenate(rows, axis=-1)
        if self._range_of_common is not None:
            flat = flat - flat @ self._range_of_common @ self._range_of_common.T
        rows = np.split(flat, np.cumsum(self._ranks)[:-1], axis=-1)
        lifted = [row @ svd.Vt for row, svd in zip(rows, self._row_svds(), strict=True)]
        return np.stack(lifted, axis=-2)


class _CommonScores(NamedTuple):
    """Orthonormal bases of the components' common scores, shape (components, …).

    The rows of W can produce the columns of ``free`` exactly. Of those of ``bound``, which are not
    free, they miss a part whose squared norm is ``bound_values``, shape (bound ones,).
    """

    free: FloatArray
    bound: FloatArray
    bound_values: FloatArray


def _first_alike(holders: list[IntArray]) -> list[int]:
    """For each token the first one that the same components hold."""
    first_of: dict[bytes, int] = {}
    return [first_of.setdefault(held.tobytes(), i) for i, held in enumerate(holders)]


def _tied_components(order: TokenPriority) -> tuple[IntArray, list[IntArray]]:
    """Number the components that hold two or more tokens.

    Returns the position of each component's group, and for each token the components that hold it.
    """
    group, token, label = listed_tokens(order)
    _, index, sizes = np.unique(label, return_inverse=True, return_counts=True)
    is_tied = sizes > 1
    number = np.cumsum(is_tied) - 1  # of each label, read for those that are tied
    tied = is_tied[index]
    component = number[index[tied]]
    owner = np.zeros(np.count_nonzero(is_tied), dtype=int)
    owner[component] = group[tied]
    by_token = np.argsort(token[tied], kind="stable")
    ends = np.cumsum(np.bincount(token[tied], minlength=order.shape[1]))
    return owner, np.split(component[by_token], ends[:-1])


# -- linear algebra -------------------------------------------------------------------------------


class ThinSVD(NamedTuple):
    """``U diag(s) Vᵀ``, without the part of rounding size."""

    U: FloatArray
    s: FloatArray
    Vt: FloatArray

    @property
    def rank(self) -> int:
        """Number of singular values that are not rounding."""
        return len(self.s)

    def without_scales(self, row: FloatArray) -> FloatArray:
        """Apply the pseudo-inverse of ``(AᵀA)^½`` to a row."""
        scaled: FloatArray = row @ self.Vt.T / self.s @ self.Vt
        return scaled

    def weakest(self, rows: IntArray) -> NearDependence:
        """The shortest combination of rows, whose numbers in the data are given, not rounding."""
        if self.rank == 0:
            return NO_DEPENDENCE
        size = float(self.s[-1] / self.s[0])
        error = decomposition_error(len(self.U)) / size
        return NearDependence(size, error, self.U[:, -1], rows)


def thin_svd(A: FloatArray) -> ThinSVD:
    """Singular value decomposition of ``A`` without the part that is rounding."""
    if A.size == 0:
        return ThinSVD(np.zeros((len(A), 0)), np.zeros(0), np.zeros((0, A.shape[1])))
    U, s, Vt = sla.svd(A, full_matrices=False)
    rank = np.count_nonzero(s > decomposition_error(len(A)) * s[0])
    return ThinSVD(U[:, :rank], s[:rank], Vt[:rank])


def flat_outer_products(A: FloatArray, B: FloatArray) -> FloatArray:
    """Outer product of each row of ``A`` with that of ``B``, flat; right also for no rows."""
    products: FloatArray = np.einsum("np,nq->npq", A, B)
    return products.reshape(len(A), A.shape[1] * B.shape[1])


def _group_probs(data: NextTokenData) -> FloatArray:
    """Probability of each group of contexts, shape (G,)."""
    probs = np.bincount(data.group_index, weights=data.context_probs)
    return np.asarray(probs, dtype=np.float64)  # numpy's stubs take every count for an integer
