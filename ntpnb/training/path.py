"""The regularization path ``W_B = argmin CE(W) subject to ‖W‖ ≤ B``, far past underflow."""

from dataclasses import dataclass

import numpy as np

from ntpnb.errors import ConvergenceError
from ntpnb.training.comparison import Comparison, compare_with
from ntpnb.training.coordinates import Coordinates, unit_scale
from ntpnb.validation import as_floats

SETTLED = 60.0  # from −log λ = 60 on, u differs from its limit by less than e^{-60}·60
NEWTON_STEPS = 60
TOLERANCE, ACCEPT = 1e-12, 1e-10  # wanted, and enough where rounding leaves no better


@dataclass(frozen=True, eq=False)
class PathTrace:
    """Constrained minimisers, one for each radius.

    Attributes
    ----------
    radii : ndarray, shape (r,)
    W : ndarray, shape (r, p, q)
    norm : ndarray, shape (r,)
    excess : ndarray, shape (r,)
        ``CE(W) − H`` in nats; it underflows to 0 near radius ``745 · ‖W^mm‖``.
    log_multiplier : ndarray, shape (r,)
        ``log λ`` of the Lagrange multiplier in ``−∇CE(W) = λ W``.
    multiplier : ndarray, shape (r,)
        ``λ``, which underflows where its logarithm does not.
    residual : ndarray, shape (r,)
        Of the optimality conditions: the larger of the largest coordinate of ``P_F(∇CE + λ W)``
        and the largest error of a strict candidate's ``log(a_k λ) = log(π_j q_jk)``, where
        ``P_⊥ W = Σ_k a_k P_⊥ D_k``; each is relative to the size of its own terms. ``λ W = −∇CE``
        is these two together.
    """

    radii: np.ndarray
    W: np.ndarray
    norm: np.ndarray
    excess: np.ndarray
    log_multiplier: np.ndarray
    multiplier: np.ndarray
    residual: np.ndarray
    _inside: np.ndarray  # P_F W, whose digits W itself loses as it grows

    def compare(self, finite, svm) -> Comparison:
        """Compare every point with the theory, as a run's :meth:`Trace.compare` does."""
        return compare_with(self.W, finite, svm, self._inside)


def regularization_path(data, radii):
    """Follow the minimisers of the cross-entropy over growing balls.

    The stationarity condition ``−∇CE = λ W`` is solved by Newton's method in the coordinates of
    :mod:`ntpnb.training.coordinates`, with the strict multipliers and ``λ`` in logarithms: the loss
    may be far below the smallest float.

    Parameters
    ----------
    data : NextTokenData
    radii : increasing sequence of positive floats

    Returns
    -------
    PathTrace

    Raises
    ------
    ValueError
        Radii that are not positive and increasing.
    NotSeparableError
        No max-margin direction exists; the path is then bounded.
    ConvergenceError
        The scaled residual at some radius stayed above 1e-10.

    References
    ----------
    T24 (002) Thm 1, Eq. (8); L24 (004) Thms 1 and 2.
    """
    radii = _increasing("radii", radii)
    if radii[0] <= 0:
        raise ValueError(f"radii[0] is {radii[0]:g}; radii must be positive")
    return _Path(data, "radius").trace(np.log(radii), radii)


def ridge_path(data, log_multipliers):
    """Minimise ``CE(W) + λ‖W‖²/2`` for decreasing ``λ``: the same path by its multiplier.

    Parameters
    ----------
    data : NextTokenData
    log_multipliers : decreasing sequence of float
        Natural logarithms of ``λ``.

    Returns
    -------
    PathTrace
        With ``radii`` the norms of the minimisers.

    Raises
    ------
    ValueError
        Multipliers that do not decrease.
    NotSeparableError
        No max-margin direction exists; the minimisers then converge.
    ConvergenceError
        The scaled residual at some multiplier stayed above its tolerance.

    References
    ----------
    T24 (002) Thm 1, second form.
    """
    R = _increasing("−log_multipliers", -as_floats("log_multipliers", log_multipliers))
    return _Path(data, "multiplier").trace(R)


def _increasing(name, values):
    values = as_floats(name, values)
    good = values.ndim == 1 and values.size and np.isfinite(values).all()
    if not (good and (np.diff(values) > 0).all()):
        raise ValueError(f"{name} must be a flat increasing sequence of finite numbers")
    return values


class _Path:
    """Newton's method with a tangent predictor in the position ``s`` along the path.

    Unknowns are ``z = (u, y, R)`` with ``a = e^y`` and ``λ = e^{−R}``. The equations are
    ``∂_u CE + λ u = 0``, ``y − R − log π − log q = 0`` on the strict candidates, and
    ``log ‖W‖ = s`` or ``R = s``. Past ``R = SETTLED``, ``u`` stays at its limit.
    """

    def __init__(self, data, by):
        self.scale, unit = unit_scale(data)
        self.at, self.by = Coordinates(unit), by
        at = self.at
        self.n = len(at.u_limit)
        self.log_pi = np.log(at.pi[at.out])
        log_q = at.log_probs(at.base)
        slope = at.slope_u(np.exp(log_q))
        y = self.log_pi + log_q[at.out]
        # In a tiny ball W = −∇CE(0)/λ to first order, and log ‖W‖ moves with R.
        tiny = 1e-3 / np.sqrt(at.data.smoothness or 1.0)
        if not len(y):
            tiny = min(tiny, 0.1 * np.linalg.norm(at.u_limit))
        size = self._norm(-slope, np.exp(y))
        R = np.log(tiny / size) if tiny and size else 0.0  # W = 0 solves for every λ
        self.z = np.concatenate([-slope * np.exp(R), y + R, [R]])
        self.tangent = np.concatenate([self.z[: self.n], np.ones(len(y) + 1)])
        self.position = np.log(tiny) if by == "radius" and tiny else R
        self.step, self.residual = 0.5, np.inf

    def trace(self, positions, radii=None):
        """Visit increasing positions and record them."""
        move = np.log(self.scale) * (1 if self.by == "radius" else 2)
        points = [self._advance(s + move) for s in positions]
        u, a, R, residual, excess = (np.stack(x) for x in zip(*points, strict=True))
        W = self.at.weights(u, a) / self.scale
        norm = np.linalg.norm(W, axis=(-2, -1))
        radii = norm if radii is None else radii
        inside = self.at.tied_weights(u) / self.scale
        R = R - 2 * np.log(self.scale)
        return PathTrace(radii, W, norm, excess, -R, np.exp(-R), residual, inside)

    def _advance(self, target):
        """Return ``(u, a, R, residual, excess)`` at a position."""
        at, none = self.at, np.zeros(0)
        bounded = self.by == "radius" and not len(self.log_pi)
        if bounded and np.linalg.norm(at.u_limit) <= np.exp(target):  # the ball is not active
            return at.u_limit, none, np.inf, 0.0, at.excess(at.logits(None, none))
        while self.position != target or self.residual == np.inf:
            move = np.clip(target - self.position, -self.step, self.step)
            goal = target if abs(move) < self.step else self.position + move
            found = self._correct(self.z + move * self.tangent, goal)
            if found is not None:
                self.z, self.tangent, self.residual = found
                self.position, self.step = goal, 2 * self.step
                continue
            self.step = abs(move) / 2
            if self.step < 1e-6:
                raise ConvergenceError(f"the path stopped at log λ = {-self.z[-1]:g}", np.inf)
        u, y, R = self._split(self.z)
        a = np.exp(y)
        return u, a, R, self.residual, at.excess(at.logits(None if R > SETTLED else u, a))

    def _split(self, z):
        return z[: self.n], z[self.n : -1], z[-1]

    def _norm(self, u, a):
        return np.sqrt(u @ u + max(0.0, a @ self.at.gram @ a))

    def _correct(self, z, goal):
        """Newton's method at a fixed position: the new ``(z, tangent, residual)``, or None."""
        best = np.inf
        for _ in range(NEWTON_STEPS):
            with np.errstate(all="ignore"):  # a wild step overflows, and is rejected below
                f, J, scale = self._equations(z, goal)
                residual = np.abs(f / scale).max()
            if not np.isfinite(residual) or residual > 1e3 * best:
                return None
            right = np.stack([f, np.eye(len(z))[-1]], axis=1)
            try:
                step, tangent = np.linalg.solve(J, right).T
            except np.linalg.LinAlgError:  # the last step was too wild
                return None
            if residual < TOLERANCE or max(residual, best) < ACCEPT:
                return z, tangent, residual
            best = min(best, residual)
            z = z - step
        return None

    def _equations(self, z, goal):
        """Residuals, their Jacobian, and the size of the terms each residual is a difference of."""
        at, n = self.at, self.n
        u, y, R = self._split(z)
        settled = R > SETTLED
        if settled:
            u = at.u_limit
        a = np.exp(y)
        log_q = at.log_probs(at.logits(None if settled else u, a))
        q, out = np.exp(log_q), at.out
        norm = self._norm(u, a)
        ties = at.slope_u(q) + np.exp(-R) * u
        strict = y - R - self.log_pi - log_q[out]
        place = np.log(norm) if self.by == "radius" else R
        f = np.concatenate([ties, strict, [place - goal]])
        size = np.maximum(1, np.abs(log_q[out]) + abs(R))
        terms = np.abs(at.slopes).T @ (at.pi * (q + at.p)) + np.exp(-R) * np.abs(u)
        scale = np.concatenate([np.where(terms > 0, terms, 1.0), size, np.ones(1)])
        J = np.zeros((len(z), len(z)))
        along_y = at.centred(q, at.along_a() * a)
        J[n:-1, n:-1] = np.eye(len(y)) - along_y[out]
        J[n:-1, -1] = -1.0
        if self.by == "radius":
            J[-1, :n], J[-1, n:-1] = u / norm**2, (at.gram @ a) * a / norm**2
        else:
            J[-1, -1] = 1.0
        if settled:
            f[:n] = z[:n] - u
            J[:n, :n] = np.eye(n)
        else:
            along_u = at.centred(q, at.slopes)
            weighted = (at.pi * q)[:, None] * at.slopes
            J[:n, :n] = weighted.T @ along_u + np.exp(-R) * np.eye(n)
            J[:n, n:-1] = weighted.T @ along_y
            J[:n, -1] = -np.exp(-R) * u
            J[n:-1, :n] = -along_u[out]
        return f, J, scale
