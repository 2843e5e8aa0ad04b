"""The largest margin where singular values are bounded, by a semidefinite program.

A matrix ``Z`` of shape (r, c) has spectral norm at most one exactly where the matrix

    X = [[I, Z], [Zᵀ, I]]

has no negative eigenvalue, and nuclear norm at most one exactly where some ``X`` with ``Z`` in the
same place, any symmetric blocks on its diagonal and the trace two has none. Either way ``X`` is a
fixed matrix and a combination of others, ``X = C + Σ_i u_i F_i``, and the problem is

    maximise s  subject to  A u ≥ b s  and  X(u) ⪰ 0,

with one row of ``A`` for each strict pair; ties are met by the choice of the ``F_i``. Its dual has
``λ ≥ 0`` with ``Σ b λ = 1`` and ``Y ⪰ 0`` with ``(Aᵀλ)_i + ⟨F_i, Y⟩ = 0``. The method is the usual
predictor and corrector in the scaling of Nesterov and Todd, which treats ``X`` and ``Y`` alike.
"""

from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, null_space

from ntpnb.basics.linear_systems import finite
from ntpnb.basics.tolerances import NEWTON_STEPS, STOP
from ntpnb.basics.validation import FloatArray

RIDGE = 1e-14
"""What is added to the diagonal of Newton's matrix, scaled to ones, so that it has a factor."""

REFINEMENTS = 3
"""How often a system is solved, each time for what ridge and rounding left of it."""

TO_THE_EDGE = 0.98
"""Share of the way to where a slack or a multiplier would vanish that a step goes."""


class Optimum(NamedTuple):
    """A point and the multipliers that bound its margin from above.

    Attributes
    ----------
    Z : ndarray, shape (r, c)
        Of norm at most one.
    multipliers : ndarray, shape (k,)
        ``λ``, one for each strict row; weighted by the goals they sum to about one.
    combination : ndarray, shape (r, c)
        ``M``: the rows weighted by ``λ``, and the ties by what they need, to rounding.
    """

    Z: FloatArray
    multipliers: FloatArray
    combination: FloatArray


class _Program(NamedTuple):
    """``rows`` is ``A`` with a last column ``−b`` for ``s``; ``basis`` holds the ``F_i``."""

    rows: FloatArray
    fixed: FloatArray
    basis: FloatArray

    def point(self, unknowns: FloatArray) -> FloatArray:
        """``X``, from the unknowns of which the last is ``s``."""
        return self.fixed + np.tensordot(unknowns[:-1], self.basis, axes=1)


class _Iterate(NamedTuple):
    """``u`` with ``s`` as its last entry, ``λ`` and ``Y``."""

    unknowns: FloatArray
    multipliers: FloatArray
    dual: FloatArray


class _Move(NamedTuple):
    """What a step changes: all of an iterate, and slacks; ``X`` and ``Y`` in scaled coordinates."""

    unknowns: FloatArray
    slack: FloatArray
    multipliers: FloatArray
    point: FloatArray
    dual: FloatArray


def largest_margin_of_singular_values(
    strict: FloatArray,
    goals: FloatArray,
    equal: FloatArray,
    shape: tuple[int, int],
    norm: Literal["spectral", "nuclear"],
) -> Optimum:
    """Maximise the smallest margin of a matrix of norm at most one.

    Parameters
    ----------
    strict : ndarray, shape (k, r c)
        The matrices ``D_k`` as flat rows, of lengths about one.
    goals : ndarray, shape (k,)
        ``b``: a margin is the product with a row, divided by this.
    equal : ndarray, shape (l, r c)
        Those with which the product has to vanish.
    shape : tuple of int
        (r, c).
    norm : str
        The norm, ``"spectral"`` or ``"nuclear"``.

    Returns
    -------
    Optimum
        As exact as rounding allows, which whoever asked should measure.

    References
    ----------
    Nesterov & Todd, Math. Oper. Res. 22, 1997; Mehrotra, SIAM J. Optim. 2, 1992; the program for
    the nuclear norm: Recht, Fazel & Parrilo, SIAM Review 52, 2010, Section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.margin.singular_values import largest_margin_of_singular_values
    >>> rows = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])  # two diagonal entries
    >>> for norm in ("spectral", "nuclear"):
    ...     found = largest_margin_of_singular_values(rows, np.ones(2), rows[:0], (2, 2), norm)
    ...     print(found.Z.diagonal().round(6).tolist())
    [1.0, 1.0]
    [0.5, 0.5]
    """
    r, c = shape
    matrices = null_space(equal) if len(equal) else np.eye(r * c)
    program = _program(strict @ matrices, goals, matrices.T.reshape(-1, r, c), norm)
    found = _solve(program)
    X = program.point(found.unknowns)
    return Optimum(X[:r, r:], found.multipliers, -2 * found.dual[:r, r:])


def _program(rows: FloatArray, goals: FloatArray, matrices: FloatArray, norm: str) -> _Program:
    """Write the program down: its unknowns are multiples of the matrices, and of free blocks."""
    num, r, c = matrices.shape
    size = r + c
    free = _free_blocks(r, c) if norm == "nuclear" else np.zeros((0, size, size))
    basis = np.zeros((num + len(free), size, size))
    basis[:num, :r, r:] = matrices
    basis[:num, r:, :r] = np.swapaxes(matrices, 1, 2)
    basis[num:] = free
    last = [np.zeros((len(rows), len(free))), -goals[:, None]]
    trace = size if norm == "spectral" else 2
    return _Program(np.hstack([rows, *last]), np.eye(size) * trace / size, basis)


def _free_blocks(r: int, c: int) -> FloatArray:
    """A basis of the symmetric matrices with two blocks and the trace zero."""
    size = r + c
    is_above = np.arange(size) < r
    row, column = np.nonzero(np.triu(np.equal.outer(is_above, is_above), 1))
    pairs = np.arange(len(row))
    between = np.zeros((len(row), size, size))
    between[pairs, row, column] = between[pairs, column, row] = 1
    on_diagonal = null_space(np.ones((1, size))).T
    return np.concatenate([between, on_diagonal[:, :, None] * np.eye(size)])


def _solve(program: _Program) -> _Iterate:
    """Follow the central path from a point inside, until complementarity is that of rounding.

    As a rule that ends it before, at some 1e-11, after ten to thirty steps; the best point counts.
    """
    num_rows, num_unknowns = program.rows.shape
    size = len(program.fixed)
    start = np.zeros(num_unknowns)
    start[-1] = -1.0
    now = _Iterate(start, np.full(num_rows, 1 / num_rows), np.eye(size) / size)
    best, least = now, np.inf
    for _ in range(NEWTON_STEPS):
        error = _error(program, now)
        if error < least:
            best, least = now, error
        if error < STOP or not error < 1e3 * least:
            break
        try:
            with np.errstate(all="ignore"):  # what overflows has no factor either
                now = _step(program, now)
        except np.linalg.LinAlgError:  # a matrix that is positive has no factor in floating point
            break
    return best


def _error(program: _Program, now: _Iterate) -> float:
    """How far a point is from the optimum: its complementarity and what its dual misses."""
    slack = program.rows @ now.unknowns
    products = slack @ now.multipliers + np.vdot(program.point(now.unknowns), now.dual)
    missed = np.abs(_missed(program, now)).max()
    return float((products + missed) / max(abs(now.unknowns[-1]), products))


def _missed(program: _Program, now: _Iterate) -> FloatArray:
    """What the conditions of the dual miss: zero where ``λ`` and ``Y`` are feasible."""
    missed = program.rows.T @ now.multipliers
    missed[:-1] += np.tensordot(program.basis, now.dual, axes=2)
    missed[-1] += 1
    return missed


def _step(program: _Program, now: _Iterate) -> _Iterate:
    """Predict, correct, and go nearly to the edge; LinAlgError where rounding allows no step."""
    slack = program.rows @ now.unknowns
    if not min(slack.min(), now.multipliers.min()) > 0:
        raise np.linalg.LinAlgError("rounding took a slack or a multiplier to zero")
    lower = finite(np.linalg.cholesky(program.point(now.unknowns)))
    _, scaled, right = np.linalg.svd(finite(np.linalg.cholesky(now.dual)).T @ lower)
    # In the coordinates that `to` leads to, X and Y are one diagonal matrix, `scaled`.
    back = lower @ right.T / np.sqrt(scaled)
    to = finite(np.linalg.inv(back))
    weights = now.multipliers / slack
    turned = to @ program.basis @ to.T
    flat = turned.reshape(len(turned), -1)
    system = (program.rows * weights[:, None]).T @ program.rows
    system[:-1, :-1] += flat @ flat.T
    scale = 1 / np.sqrt(finite(system).diagonal())
    scaled_system = system * scale * scale[:, None]
    factor = cho_factor(scaled_system + RIDGE * np.eye(len(scale)))
    missed = _missed(program, now)

    def direction(products: FloatArray, matrix: FloatArray) -> _Move:
        """Solve for a step after which slacks times multipliers are changed by so much."""
        wanted = 2 * matrix / np.add.outer(scaled, scaled)
        right_side = program.rows.T @ (products / slack) + missed
        right_side[:-1] += flat @ wanted.ravel()
        unknowns = np.zeros_like(right_side)
        for _ in range(REFINEMENTS):
            left = scale * (right_side - system @ unknowns)
            unknowns = unknowns + scale * cho_solve(factor, left)
        of_slack = program.rows @ unknowns
        of_point = np.tensordot(unknowns[:-1], turned, axes=1)
        return _Move(
            unknowns=unknowns,
            slack=of_slack,
            multipliers=products / slack - weights * of_slack,
            point=of_point,
            dual=wanted - of_point,
        )

    root = np.sqrt(np.outer(scaled, scaled))

    def way(move: _Move) -> float:
        """The largest part of a step, at most all of it, within which nothing turns negative."""
        shares = [
            -(move.slack / slack).min(),
            -(move.multipliers / now.multipliers).min(),
            -np.linalg.eigvalsh(move.point / root)[0],
            -np.linalg.eigvalsh(move.dual / root)[0],
        ]
        return float(1 / max(1.0, *shares))

    mean = (slack @ now.multipliers + scaled @ scaled) / (len(slack) + len(scaled))
    diagonal = np.diag(scaled)
    predicted = direction(-slack * now.multipliers, -(diagonal**2))
    centring = (1 - way(predicted)) ** 3 * mean
    second = predicted.point @ predicted.dual
    corrected = direction(
        centring - slack * now.multipliers - predicted.slack * predicted.multipliers,
        centring * np.eye(len(scaled)) - diagonal**2 - (second + second.T) / 2,
    )
    length = TO_THE_EDGE * way(corrected)
    return _Iterate(
        now.unknowns + length * corrected.unknowns,
        now.multipliers + length * corrected.multipliers,
        now.dual + length * to.T @ (corrected.dual + corrected.dual.T) @ to / 2,
    )
