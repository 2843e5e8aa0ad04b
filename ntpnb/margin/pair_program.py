"""Programs of any order on any token embeddings: one entry per pair.

``φ_k(W) = −(t_i − t_j) · W h_g / (‖t_i − t_j‖ ‖h_g‖)`` for the pair ``k = (g, i, j)``, named by its
place among the order's pairs. There are no columns and no common scores. Pairs of one group share
their context: what they combine to is a sum of token rows first, and a matrix only then. A Newton
system takes a dense matrix of the pairs in its mask, or of the entries of ``W`` where these are
fewer.

In a metric ``D`` the length of ``W`` is ``‖W‖_D = (Σ D_vi W_vi²)^½``, which is Frobenius' of
``√D W`` by entries. So the program is one for ``√D W``, with the pairs' matrices divided by ``√D``.
These are products of a token row and a context no longer, and are listed as flat rows.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import lapack
from scipy.sparse import csr_array

from ntpnb.basics.errors import PairWeights
from ntpnb.basics.linear_systems import upper_factor, woodbury_factors
from ntpnb.basics.validation import AnyPrecision, BoolArray, FloatArray, IntArray, require_dense
from ntpnb.margin.normal_form import (
    AllPairs,
    KKTSolver,
    MarginProgram,
    NewtonStep,
    PairMultipliers,
    positive_norms,
    without_zeros,
)
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import listed_weights
from ntpnb.problem.order import TokenPriority


class EveryPair(AllPairs):
    """All pairs of a dataset.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with strict pairs.
    """

    def __init__(self, data: NextTokenData, order: TokenPriority) -> None:
        self.order = order
        self.group, winner, loser = order.pairs
        self.num_ties = len(order.equal)
        self.num_strict = order.num_strict
        T = data.token_embeddings
        if T is None:
            tokens = sparse.eye_array(data.vocab_size, format="csr")
            self._differences = tokens[loser] - tokens[winner]
            token_norms = np.full(len(loser), 2**0.5)
        else:
            self._differences = T[loser] - T[winner]
            token_norms = positive_norms(self._differences)
        self._embeddings = data.group_embeddings
        with_pairs = np.unique(self.group)
        lengths = np.ones(len(self._embeddings))
        lengths[with_pairs] = positive_norms(self._embeddings[with_pairs])
        self.directions = self._embeddings / lengths[:, None]
        self.norms = token_norms * lengths[self.group]
        self.num_weights = data.shape[0] * data.shape[1]
        self.fits = True  # all pairs are listed already
        self.unit = float(self.norms[self.num_ties :].min())
        self.token_rows = sparse.diags_array(1 / token_norms) @ self._differences

    def rows(self, places: IntArray) -> csr_array:
        """The matrices ``−(t_i − t_j) h_gᵀ`` of some pairs as flat rows, shape (k, p q)."""
        differences = csr_array(self._differences[places])
        embeddings = np.repeat(
            self._embeddings[self.group[places]], np.diff(differences.indptr), axis=0
        )
        q = embeddings.shape[1]
        columns = differences.indices[:, None].astype(np.intp) * q + np.arange(q)
        values = differences.data[:, None] * embeddings
        return csr_array(
            (values.ravel(), columns.ravel(), q * differences.indptr.astype(np.intp)),
            shape=(len(places), self.num_weights),
        )

    def program(self, strict: IntArray) -> "PairProgram":
        """The program of some strict pairs."""
        return self._program_of(np.append(np.arange(self.num_ties), strict))

    def everything(self) -> "PairProgram":
        """The program of all strict pairs."""
        return self._everything

    @cached_property
    def _everything(self) -> "PairProgram":
        return self._program_of(np.arange(len(self.group)))

    def _program_of(self, places: IntArray) -> "PairProgram":
        return PairProgram(self, places)

    def missed(
        self, program: MarginProgram, weights: FloatArray, common: FloatArray, by: float
    ) -> IntArray:
        """Keys of strict pairs outside a program's set with a slack below ``−by``."""
        slack = self._everything.slack(weights, common)
        slack[program.keys] = np.inf
        return np.flatnonzero(slack < -by)

    def least_margin(self, weights: FloatArray, common: FloatArray) -> float:
        """The smallest ``−φ_k(W)`` of all strict pairs."""
        return float(self._everything.margins(weights, common)[self.num_ties :].min())

    def multipliers(self, program: MarginProgram, dual: FloatArray) -> PairMultipliers:
        """The multipliers of the data's pairs that a program's dual stands for."""
        values = -dual / (self.unit * self.norms[program.keys])
        strict = np.zeros(self.num_strict)
        strict[program.keys[program.ordered] - self.num_ties] = values[program.ordered]
        return PairMultipliers(strict, values[program.tied])

    def entries_of_strict(self, program: MarginProgram) -> IntArray:
        """Positions, among a program's entries, of the strict pairs that an order lists."""
        return np.flatnonzero(program.ordered)

    def pair_weights(self, program: MarginProgram, dual: FloatArray) -> PairWeights:
        """The strict pairs that a dual weighs, with their shares."""
        keys = program.keys[program.ordered]
        weights = -dual[program.ordered] / self.norms[keys]
        return listed_weights(self.order, keys - self.num_ties, weights)


class PairProgram(MarginProgram):
    """The program by pair on a set.

    Parameters
    ----------
    pairs : EveryPair
    keys : ndarray of int
        Places of pairs, increasing, all ties among them.
    """

    def __init__(self, pairs: EveryPair, keys: IntArray) -> None:
        tied = keys < pairs.num_ties
        super().__init__(
            keys=keys,
            tied=tied,
            rhs=np.where(tied, 0.0, pairs.unit / pairs.norms[keys]),
            roots=np.ones(len(keys)),
            column=np.zeros_like(keys),
            num_columns=0,
        )
        self._pairs = pairs
        self._group = pairs.group[keys]
        self._directions = pairs.directions
        self._token_rows = pairs.token_rows[keys]

    def weights(self, dual: AnyPrecision) -> AnyPrecision:
        """``W = Σ_k A_k φ_k``, shape (p, q)."""
        shares = csr_array(
            (dual, (self._group, np.arange(len(dual)))), shape=(len(self._directions), len(dual))
        )
        weights: AnyPrecision = (shares @ self._token_rows).T @ self._directions
        return weights

    def scores(self, weights: AnyPrecision) -> AnyPrecision:
        """``φ_k(W)`` of the entries."""
        along_tokens = (self._directions @ weights.T)[self._group]
        if sparse.issparse(self._token_rows):
            return np.asarray(self._token_rows.multiply(along_tokens).sum(axis=1))
        scores: AnyPrecision = np.einsum("kp,kp->k", self._token_rows, along_tokens)
        return scores

    def kkt_solver(self, mask: BoolArray, diagonal: float | FloatArray) -> KKTSolver:
        """Factor the Newton system, see :meth:`MarginProgram.kkt_solver`."""
        tight = mask.nonzero()[0]
        solve = self._inverse(tight, np.broadcast_to(diagonal, mask.shape)[tight])

        def solver(residual: FloatArray, imbalance: FloatArray) -> NewtonStep:
            step = np.zeros(len(mask))
            if len(tight):
                step[tight] = solve(residual[tight])
            return NewtonStep(step, imbalance)  # of no columns, as the common scores are

        return solver

    def _inverse(self, tight: IntArray, theta: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The inverse of ``R Rᵀ + Θ`` for the rows ``R`` of the tight pairs.

        By a factor as large as there are pairs, or entries of ``W`` where these are fewer.
        """
        if len(tight) > self._token_rows.shape[1] * self._directions.shape[1]:
            rows = self._pairs.rows(self.keys[tight]).toarray()
            rows /= self._pairs.norms[self.keys[tight], None]
            woodbury = woodbury_factors(rows[None], theta[None])[0]
            return lambda r: r / theta - woodbury @ (r @ woodbury)
        factor = upper_factor(self._inner_products(tight), theta)
        return lambda r: lapack.dpotrs(factor, r)[0]

    def _inner_products(self, tight: IntArray) -> FloatArray:
        """``⟨φ_k, φ_l⟩`` of some entries."""
        token_rows = self._token_rows[tight]
        matrix = token_rows @ token_rows.T
        if sparse.issparse(matrix):
            matrix = matrix.toarray()
        context_rows = self._directions[self._group[tight]]
        matrix *= context_rows @ context_rows.T
        return np.asarray(matrix)


def require_listable(data: NextTokenData, order: TokenPriority, what: str, instead: str) -> None:
    """Raise ``ValueError`` where all pairs' matrices, as sparse rows, have more than 2**28 entries.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.margin.pair_program import require_listable
    >>> data = ntpnb.datasets.toy()
    >>> require_listable(data, ntpnb.token_priority(data), "the program", "use fewer contexts")
    """
    p, q = data.shape
    num_pairs = len(order.equal) + order.num_strict
    num_tokens = 2 if data.token_embeddings is None else p  # that a pair's matrix has rows of
    require_dense(what, (num_pairs, num_tokens, q), instead)


class PairsInMetric(EveryPair):
    """All pairs of a dataset, for the smallest ``W`` in a metric.

    Parameters
    ----------
    data : NextTokenData
    order : TokenPriority
        The order of ``data``, with strict pairs.
    metric : ndarray, shape (p, q)
        ``D``, positive.
    """

    def __init__(self, data: NextTokenData, order: TokenPriority, metric: FloatArray) -> None:
        require_listable(data, order, "the program in a metric", "leave metric out")
        super().__init__(data, order)
        self._inverse_root = sparse.diags_array(1 / np.sqrt(metric.ravel()))
        rows = self.rows(np.arange(len(self.group)))
        self.norms = without_zeros(sparse.linalg.norm(rows, axis=1))
        self.unit = float(self.norms[self.num_ties :].min())
        self.unit_rows = sparse.diags_array(1 / self.norms) @ rows

    def rows(self, places: IntArray) -> csr_array:
        """The pairs' matrices, divided by ``√D``, as flat rows, shape (k, p q)."""
        return super().rows(places) @ self._inverse_root

    def _program_of(self, places: IntArray) -> "ProgramInMetric":
        return ProgramInMetric(self, places)


class ProgramInMetric(PairProgram):
    """The program by pair on a set, whose ``W`` is ``√D W`` of the data's.

    Parameters
    ----------
    pairs : PairsInMetric
    keys : ndarray of int
        Places of pairs, increasing, all ties among them.
    """

    def __init__(self, pairs: PairsInMetric, keys: IntArray) -> None:
        super().__init__(pairs, keys)
        self._rows = pairs.unit_rows[keys]

    def weights(self, dual: AnyPrecision) -> AnyPrecision:
        """``W = Σ_k A_k φ_k``, shape (p q,)."""
        weights: AnyPrecision = dual @ self._rows
        return weights

    def scores(self, weights: AnyPrecision) -> AnyPrecision:
        """``φ_k(W)`` of the entries."""
        scores: AnyPrecision = self._rows @ weights
        return scores

    def _inner_products(self, tight: IntArray) -> FloatArray:
        rows = self._rows[tight]
        return np.asarray((rows @ rows.T).toarray())
