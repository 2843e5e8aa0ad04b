"""The regularization path ``W_B = argmin CE(W) subject to ‖W‖ ≤ B``, far past underflow."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.linear_systems import finite
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import ACCEPT, EPS, NEGLIGIBLE, NEWTON_STEPS, STOP
from ntpnb.basics.validation import (
    FloatArray,
    as_array,
    as_increasing,
    require_increasing,
)
from ntpnb.basics.watch import OutOfTime, Progress, Watch
from ntpnb.bias import ImplicitBias
from ntpnb.problem.data import NextTokenData
from ntpnb.training.coordinates import Coordinates, ExactTrace, require_all_reached
from ntpnb.training.flow import slowest_rate


@dataclass(frozen=True, eq=False, repr=False)
class PathTrace(ExactTrace):
    """Constrained minimisers, one for each radius.

    Attributes
    ----------
    radii : ndarray, shape (r,)
        Radii ``B`` of the balls; of :func:`ntpnb.ridge_path` the norms of the minimisers.
    W : ndarray, shape (r, p, q)
    norm : ndarray, shape (r,)
        Frobenius norm of ``W``.
    excess : ndarray, shape (r,)
        ``CE(W) − H`` in nats; it underflows to 0 near radius ``745 · ‖W^mm‖``.
    log_multiplier : ndarray, shape (r,)
        ``log λ`` of the Lagrange multiplier in ``−∇CE(W) = λ W``.
    multiplier : ndarray, shape (r,)
        ``λ``, which underflows where its logarithm does not.
    residual : ndarray, shape (r,)
        Of the optimality conditions: the larger of the largest coordinate of ``P_F(∇CE + λ W)``
        and the largest error of a dominated candidate's ``log(a_k λ) = log(π_j q_jk)``, where
        ``P_⊥ W = Σ_k a_k P_⊥ D_k``; each is relative to the size of its own terms. ``λ W = −∇CE``
        is these two together.

    Examples
    --------
    >>> import ntpnb
    >>> path = ntpnb.regularization_path(ntpnb.datasets.toy(), [1.0, 100.0, 1e4])
    >>> path.log_multiplier.round(1).tolist()
    [-1.4, -51.9, -4431.8]
    """

    radii: FloatArray
    norm: FloatArray
    excess: FloatArray
    log_multiplier: FloatArray
    multiplier: FloatArray
    residual: FloatArray


@one_thread
def regularization_path(
    data: NextTokenData | ImplicitBias,
    radii: npt.ArrayLike,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> PathTrace:
    """Follow the minimisers of the cross-entropy over growing balls.

    The stationarity condition ``−∇CE = λ W`` is solved by Newton's method in the coordinates of
    :mod:`ntpnb.training.coordinates`, with the coordinates ``a`` and ``λ`` in logarithms: the loss
    may be far below the smallest float.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
    radii : increasing sequence of positive floats
    seconds : float, optional
        Time limit; it includes what is computed of the theory, unless ``data`` is a bias, which has
        a limit of its own. Default: none.
    progress : callable, optional
        Called with a line of text now and then; what it raises ends the computation.

    Returns
    -------
    PathTrace

    Raises
    ------
    ValueError
        Radii that are not positive and increasing.
    NotSeparableError
        No max-margin direction exists; the path is then that of ``implicit_bias(data).twin``, which
        may be given in place of the data.
    ConvergenceError
        The scaled residual at some radius stayed above 1e-10, the finite part was not found, or it
        is undecided whether a max-margin direction exists. Where the time is over on the way,
        ``.point`` is the trace of the radii that were reached, None where there is none, and
        ``.residual`` the scaled residual at the last of them.

    References
    ----------
    T24 (002) Thm 1, Eq. (8); L24 (004) Thms 1 and 2.

    Examples
    --------
    >>> import ntpnb
    >>> path = ntpnb.regularization_path(ntpnb.datasets.toy(), [1.0, 10.0])
    >>> path.norm.round(9)
    array([ 1., 10.])
    >>> path.excess.round(4)
    array([0.4042, 0.0015])
    """
    increasing_radii = as_increasing("radii", radii)
    if increasing_radii[0] <= 0:
        raise ValueError(f"radii[0] is {increasing_radii[0]:g}; radii must be positive")
    watch = Watch(seconds, progress)
    return _follow(data, "radius", np.log(increasing_radii), increasing_radii, watch)


@one_thread
def ridge_path(
    data: NextTokenData | ImplicitBias,
    log_multipliers: npt.ArrayLike,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> PathTrace:
    """Minimise ``CE(W) + λ‖W‖²/2`` for decreasing ``λ``: the same path by its multiplier.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
    log_multipliers : decreasing sequence of float
        Natural logarithms of ``λ``.
    seconds, progress : optional
        As in :func:`ntpnb.regularization_path`.

    Returns
    -------
    PathTrace
        With ``radii`` the norms of the minimisers.

    Raises
    ------
    ValueError
        Multipliers that do not decrease.
    NotSeparableError
        No max-margin direction exists; the minimisers are then those of
        ``implicit_bias(data).twin``, which may be given in place of the data.
    ConvergenceError
        The scaled residual at some multiplier stayed above 1e-10, the finite part was not found, or
        it is undecided whether a max-margin direction exists. Where the time is over, as for
        :func:`ntpnb.regularization_path`.

    References
    ----------
    T24 (000) Sec. 1 on the NTP-SVM: the direction as the ridge's weight vanishes. T24 (002) Thm 1
    and Eq. (8) state it for balls, which have the same minimisers.

    Examples
    --------
    >>> import ntpnb
    >>> ntpnb.ridge_path(ntpnb.datasets.toy(), [0.0, -100.0, -1e6]).norm.round(1).tolist()
    [0.3, 207.1, 2262701.5]
    """
    R = 0.0 - as_array("log_multipliers", log_multipliers, ndim=1)
    require_increasing("−log_multipliers", R)
    return _follow(data, "multiplier", R, None, Watch(seconds, progress))


def _follow(
    data: NextTokenData | ImplicitBias,
    by: Literal["radius", "multiplier"],
    positions: FloatArray,
    radii: FloatArray | None,
    watch: Watch,
) -> PathTrace:
    """Go to increasing positions, and say so where the end was not reached in time."""
    coords = Coordinates(data, watch=watch)
    # At unit scale the minimisers are κ W and the multipliers are λ/κ².
    log_scale = np.log(coords.scale)
    shift = log_scale if by == "radius" else 2 * log_scale
    path = _Path(coords, by, watch)
    solutions = list(path.visit(positions + shift))
    z = np.reshape([solution.z for solution in solutions], (len(solutions), len(path.at.z)))
    u, a, R = path.split(z.T)
    u, a, R = u.T, a.T, R - 2 * log_scale
    W = coords.weights(u, a)
    norm = np.linalg.norm(W, axis=(-2, -1))
    trace = PathTrace(
        radii=norm if radii is None else radii[: len(z)],
        W=W,
        norm=norm,
        excess=np.array([coords.excess(path.logits(each)[None])[0] for each in z]),
        log_multiplier=-R,
        multiplier=np.exp(-R),
        residual=np.array([solution.residual for solution in solutions]),
        _inside=coords.tied_weights(u),
    )
    require_all_reached(watch, "points of the path", len(positions), trace, trace.residual)
    return trace


class _Equations(NamedTuple):
    """The equations at one ``z``: values, Jacobian, and the sizes to which values are compared."""

    values: FloatArray
    jacobian: FloatArray
    sizes: FloatArray


class _Solution(NamedTuple):
    """A solution ``z`` at one position, how it changes with the position, and its residual."""

    z: FloatArray
    tangent: FloatArray
    residual: float


class _Path:
    """Newton's method with a tangent predictor in the position ``s`` along the path.

    Unknowns are ``z = (u, y, R)`` with ``a = e^y`` and ``λ = e^{−R}``. The equations are
    ``∂_u CE + λ u = 0``, ``y − R − log π − log q = 0`` on the dominated candidates, and
    ``log ‖W‖ = s`` or ``R = s``. Once ``u`` has settled, it stays at its limit. All of this is at
    unit scale.
    """

    def __init__(
        self, coords: Coordinates, by: Literal["radius", "multiplier"], watch: Watch
    ) -> None:
        self.watch = watch
        self.coords = coords
        self.by = by
        self.dim = len(coords.u_limit)
        self.log_pi: FloatArray = np.log(coords.pi[coords.dominated])
        # Where the slowest tie has a Hessian of one, u differs from its limit by less than R e^{-R}
        # at R = −log λ; slower ones need as much more.
        self.settling = 60 - float(np.log(slowest_rate(coords)))
        self.step = 0.5
        self._start_in_a_tiny_ball()

    def _start_in_a_tiny_ball(self) -> None:
        """Begin where ``W = −∇CE(0)/λ`` to first order, and ``log ‖W‖`` moves with ``R``."""
        coords = self.coords
        log_q = coords.log_probs(coords.base)
        slope = coords.slope_u(np.exp(log_q))
        log_mass = self.log_pi + log_q[coords.dominated]
        radius = 1e-3 * coords.scale / float(np.sqrt(coords.data.smoothness or 1.0))
        if not len(log_mass):
            radius = min(radius, 0.1 * float(np.linalg.norm(coords.u_limit)))
        gradient_norm = self._norm(-slope, np.exp(log_mass))
        R = 0.0  # where the radius or the gradient is zero: W = 0 solves for every λ
        if radius and gradient_norm:
            R = np.log(radius / gradient_norm)
        u = -slope * np.exp(R)
        self.at = _Solution(
            z=np.concatenate([u, log_mass + R, [R]]),
            tangent=np.concatenate([u, np.ones(len(log_mass) + 1)]),
            residual=np.inf,  # not solved yet
        )
        self.position = np.log(radius) if self.by == "radius" and radius else R

    def visit(self, positions: FloatArray) -> Iterator[_Solution]:
        """Go to increasing positions, as far as the time allows."""
        try:
            for position in positions:
                yield self._advance(position)
        except OutOfTime:
            return

    def split(self, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The parts ``u``, ``a`` and ``R`` of ``z``."""
        return z[: self.dim], np.exp(z[self.dim : -1]), z[-1]

    def logits(self, z: FloatArray) -> FloatArray:
        """Logits of all candidates; those of settled ties are known exactly."""
        u, a, R = self.split(z)
        return self.coords.logits(None if R > self.settling else u, a)

    def _advance(self, target: float) -> _Solution:
        """Move to a position, in steps that grow where Newton's method settles."""
        u_limit = self.coords.u_limit
        is_bounded = self.by == "radius" and not len(self.log_pi)  # nothing is ordered
        if is_bounded and np.linalg.norm(u_limit) <= np.exp(target):  # W* is in the ball: λ = 0
            return _Solution(
                z=np.append(u_limit, np.inf), tangent=np.zeros(self.dim + 1), residual=0.0
            )
        while self.position != target or self.at.residual == np.inf:
            self.watch.check()
            self.watch.say(f"path: log λ = {-self.at.z[-1]:.4g}, next point at {target:.4g}")
            move = np.clip(target - self.position, -self.step, self.step)
            goal = target if abs(move) < self.step else self.position + move
            found = self._correct(self.at.z + move * self.at.tangent, goal)
            if found is not None:
                self.at = found
                self.position = goal
                self.step = 2 * self.step
                continue
            self.step = abs(move) / 2
            if self.step < NEGLIGIBLE:
                raise ConvergenceError(
                    f"the path stopped at log λ = {-self.at.z[-1]:g}: Newton's method settles on "
                    "no further point, as where a radius or a multiplier is extreme",
                    np.inf,
                )
        self._require_digits(target)
        return self.at

    def _norm(self, u: FloatArray, a: FloatArray) -> np.float64:
        """Frobenius norm of ``W``."""
        strict_square = max(0.0, float(a @ self.coords.gram @ a))
        norm: np.float64 = np.sqrt(np.float64(u @ u + strict_square))
        return norm

    def _correct(self, z: FloatArray, goal: float) -> _Solution | None:
        """Newton's method at a fixed position; None where it does not settle."""
        best = np.inf
        position_moves = np.eye(len(z))[-1]  # the right-hand side of the tangent's equations
        for _ in range(NEWTON_STEPS):
            self.watch.check()
            with np.errstate(all="ignore"):  # a wild step overflows, and is rejected below
                equations = self._equations(z, goal)
                residual = np.abs(equations.values / equations.sizes).max()
            if not np.isfinite(residual) or residual > 1e3 * best:
                return None
            right = np.stack([equations.values, position_moves], axis=1)
            try:
                solved = finite(np.linalg.solve(equations.jacobian, right))
            except np.linalg.LinAlgError:  # the last step was too wild
                return None
            step = solved[:, 0]
            tangent = solved[:, 1]
            # Acceptable for the second time and still not at the goal: rounding is reached.
            if residual < STOP or max(residual, best) < ACCEPT:
                return _Solution(z, tangent, residual)
            best = min(best, residual)
            z = z - step
        return None

    def _require_digits(self, position: float) -> None:
        """Raise where rounding of the equations moves the logits of ties by more than 1e-6."""
        equations = self._equations(self.at.z, position)
        rounding = np.abs(np.linalg.inv(equations.jacobian)) @ (EPS * equations.sizes)
        moved = float((np.abs(self.coords.slopes) @ rounding[: self.dim]).max(initial=0.0))
        if not moved <= 1e-6:
            raise ConvergenceError(
                f"near log λ = {-self.at.z[-1]:g} rounding alone moves logits of tied tokens by "
                f"{moved:.1e}: some of them settle so slowly that their gradient is rounding",
                moved,
            )

    def _equations(self, z: FloatArray, goal: float) -> _Equations:
        """The equations at ``z``, in three blocks: ties, dominated candidates, position."""
        coords = self.coords
        losing = coords.dominated
        u, a, R = self.split(z)
        settled = R > self.settling
        off_limit = u - coords.u_limit
        u = coords.u_limit if settled else u
        lam = np.exp(-R)
        norm = self._norm(u, a)
        log_q = coords.log_probs(self.logits(z))
        q = np.exp(log_q)

        # Values, and the size of the terms that each of them is a difference of.
        tied_values = off_limit if settled else coords.slope_u(q) + lam * u
        strict_values = z[self.dim : -1] - R - self.log_pi - log_q[losing]
        position = np.log(norm) if self.by == "radius" else R
        tied_terms = np.abs(coords.slopes).T @ (coords.pi * (q + coords.p)) + lam * np.abs(u)
        tied_sizes = np.where(tied_terms > 0, tied_terms, 1.0)
        strict_sizes = np.maximum(1, np.abs(log_q[losing]) + abs(R))

        # Jacobian: its rows are the equations, its columns the unknowns u, y and R.
        along_y = coords.centred(q, coords.along_a() * a)
        if settled:
            tied = np.eye(self.dim, len(z))
            strict_along_u = np.zeros((len(a), self.dim))
        else:
            along_u = coords.centred(q, coords.slopes)
            weighted = (coords.pi * q)[:, None] * coords.slopes
            hessian = weighted.T @ along_u + lam * np.eye(self.dim)
            tied = np.column_stack([hessian, weighted.T @ along_y, -lam * u])
            strict_along_u = -along_u[losing]
        strict_along_y = np.eye(len(a)) - along_y[losing]
        strict = np.column_stack([strict_along_u, strict_along_y, -np.ones(len(a))])
        last = np.eye(len(z))[-1]
        if self.by == "radius":
            last = np.concatenate([u, (coords.gram @ a) * a, [0.0]]) / norm**2

        return _Equations(
            values=np.concatenate([tied_values, strict_values, [position - goal]]),
            jacobian=np.vstack([tied, strict, last]),
            sizes=np.concatenate([tied_sizes, strict_sizes, np.ones(1)]),
        )
