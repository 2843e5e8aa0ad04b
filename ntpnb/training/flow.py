"""Gradient flow in logarithmic time, and the term next to ``W^mm log t`` that it tends to."""

import warnings
from dataclasses import dataclass
from itertools import count

import numpy as np
import scipy.linalg as sla
from scipy.integrate import solve_ivp

from ntpnb.errors import ConvergenceError
from ntpnb.problem.loss import as_weights
from ntpnb.training.comparison import Comparison, compare_with
from ntpnb.training.coordinates import Coordinates, unit_scale
from ntpnb.validation import as_floats

SLAVED = np.log(1e13)  # settling times after which the tied coordinates lag by rounding only
RELATIVE, ABSOLUTE = 1e-8, 1e-10
EVALUATIONS = 50_000  # ordinary flows take some hundreds, difficult ones some thousands
TIGHT = 1e-7  # margins of tight pairs are one to 1e-9; generic others are further away
NEWTON_STEPS = 200


@dataclass(frozen=True, eq=False)
class FlowTrace:
    """Points of a gradient flow.

    Attributes
    ----------
    log_times : ndarray, shape (r,)
        Natural logarithms of ``t``.
    W : ndarray, shape (r, p, q)
    loss : ndarray, shape (r,)
        Cross-entropy in nats.
    excess : ndarray, shape (r,)
        Cross-entropy minus entropy in nats, without cancellation.
    norm : ndarray, shape (r,)
    """

    log_times: np.ndarray
    W: np.ndarray
    loss: np.ndarray
    excess: np.ndarray
    norm: np.ndarray
    _inside: np.ndarray  # P_F W, whose digits W itself loses as it grows

    def compare(self, finite, svm) -> Comparison:
        """Compare every point with the theory, as a run's :meth:`Trace.compare` does."""
        return compare_with(self.W, finite, svm, self._inside)


def gradient_flow(data, log_times, init=None):
    """Integrate ``dW/dt = −∇CE(W)`` up to times that no iteration could reach.

    In the coordinates of :mod:`ntpnb.training.coordinates` the flow reads ``du/dt = −∂_u CE`` and
    ``da_k/dt = π_j q_jk``. It is integrated in ``log(1 + t)`` by an implicit method; once the
    tied coordinates have settled, only the logarithmically slow ``a`` are.

    Parameters
    ----------
    data : NextTokenData
    log_times : increasing sequence of float
        Natural logarithms of the times to record; large values (``log t = 230`` is ``t = 1e100``)
        cost little more than small ones.
    init : array_like, shape (p, q), optional
        Default: zeros.

    Returns
    -------
    FlowTrace

    Raises
    ------
    ValueError
        Times that are not increasing, or an ``init`` of the wrong shape.
    NotSeparableError
        No max-margin direction exists; the flow then converges.
    ConvergenceError
        The integrator failed.

    References
    ----------
    T24 (002) Thm 2 and L24 (004) Thm 3, in the limit of small steps.
    """
    log_times = as_floats("log_times", log_times)
    if log_times.ndim != 1 or not log_times.size or not (np.diff(log_times) > 0).all():
        raise ValueError("log_times must be an increasing sequence of numbers")
    if not np.isfinite(log_times).all():
        raise ValueError("log_times has entries that are not finite")
    if init is not None:
        init = as_weights("init", init, data)
        if init.ndim != 2:
            raise ValueError(f"init has shape {init.shape}; it needs {data.shape}")
    scale, unit = unit_scale(data)
    at = Coordinates(unit, init if init is None else scale * init)
    given, log_times = log_times, log_times + 2 * np.log(scale)
    n, N = len(at.u_limit), len(at.gram)
    u, a = np.empty((len(log_times), n)), np.empty((len(log_times), N))
    slaved = SLAVED - np.log(_slowest_rate(at))
    early = log_times <= slaved
    last = min(slaved, log_times[-1])
    times = np.append(log_times[early], last)
    start = np.concatenate([at.u_start, np.zeros(N)])
    states = _integrate(lambda s, z: _early(at, s, z), 0.0, start, np.logaddexp(0.0, times))
    u[early], a[early] = states[:-1, :n], states[:-1, n:]
    if not early.all():
        u[~early] = at.u_limit
        late = log_times[~early]
        a[~early] = _integrate(lambda s, z: _late(at, s, z), last, states[-1, n:], late)
    excess = np.array(
        [
            at.excess(at.logits(x if known else None, y))
            for known, x, y in zip(early, u, a, strict=True)
        ]
    )
    W = at.weights(u, a) / scale
    norm = np.linalg.norm(W, axis=(-2, -1))
    return FlowTrace(given, W, data.entropy + excess, excess, norm, at.tied_weights(u) / scale)


def _slowest_rate(at):
    """Rate, at most one, at which the slowest tied coordinate settles at the limit."""
    q = np.where(at.out, 0.0, np.exp(at.log_probs(np.where(at.out, -np.inf, at.base_limit))))
    curvature = ((at.pi * q)[:, None] * at.slopes).T @ at.centred(q, at.slopes)
    return max(np.finfo(float).tiny, sla.eigvalsh(curvature).min(initial=1.0))


def _early(at, s, z):
    """Velocity and Jacobian of ``(u, a)`` in ``s = log(1 + t)``."""
    n, t = len(at.u_limit), np.exp(s)
    q = np.exp(at.log_probs(at.logits(z[:n], z[n:])))
    mass = at.pi * q
    velocity = t * np.concatenate([-at.slope_u(q), mass[at.out]])

    def jacobian():
        along = at.centred(q, np.concatenate([at.slopes, at.along_a()], axis=1))
        rows = np.concatenate([-at.slopes.T * mass, np.diag(mass)[at.out]])
        return t * (rows @ along)

    return velocity, jacobian


def _late(at, s, a):
    """Velocity and Jacobian of ``a`` in ``s = log t`` with the tied coordinates at their limit."""
    log_q = at.log_probs(at.logits(None, a))
    velocity = np.exp(s + np.log(at.pi[at.out]) + log_q[at.out])
    return velocity, lambda: -velocity[:, None] * at.gram


def _integrate(system, start, state, times):
    """States at ``times``, repeated ones included, shape (len(times), size)."""
    times, repeat = np.unique(times, return_inverse=True)
    if not state.size or times[-1] == start:  # nothing can move
        return np.tile(state, (len(repeat), 1))
    evaluations = count(1)

    def velocity(s, z):
        if next(evaluations) > EVALUATIONS:
            raise ConvergenceError(
                f"the flow came to log t = {s:g} in {EVALUATIONS} evaluations of its velocity and "
                "no further; ties that settle over many decades of time are the usual cause",
                np.inf,
            )
        return system(s, z)[0]

    reached, why = start, "steps too wild for floating point"
    try:
        # A wild trial step overflows or meets a singular matrix, and is rejected.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", sla.LinAlgWarning)
            solution = solve_ivp(
                velocity,
                (start, times[-1]),
                state,
                method="BDF",
                t_eval=times,
                jac=lambda s, z: system(s, z)[1](),
                rtol=RELATIVE,
                atol=ABSOLUTE,
            )
        if solution.success and np.isfinite(solution.y).all():
            return solution.y.T[repeat]
        reached, why = max(solution.t, default=start), solution.message
    except ValueError:  # a Jacobian that is not finite
        pass
    raise ConvergenceError(f"the flow stopped near log t = {reached:g}: {why}", np.inf)


def next_order_term(data):
    r"""Compute in advance the limit ``W̃`` of the path's ``W_B − (R − log R) W^mm``.

    Here ``R = −log λ``. The tied part of ``W̃`` is the finite part. Its strict part lies in the
    span of the tight pairs and minimises ``Σ_k π_j q̃_k exp(−⟨D_k, W̃⟩) + ⟨W^mm, W̃⟩`` over the
    tight ``k``, with ``q̃_k`` the odds of candidate ``k`` against the tied tokens at the finite
    part: there the velocity ``Σ_k π_j q_jk D_k`` of a flow equals ``W^mm``. Along the flow,
    ``W(t) − W^mm log t`` has the same limit on F and on the tight pairs; it also keeps what the
    other pairs contributed while they were not yet negligible.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    ndarray, shape (p, q)

    Raises
    ------
    NotSeparableError
        No max-margin direction exists.
    ConvergenceError
        Newton's method did not settle: some tight pair has no multiplier, for example.
    """
    scale, unit = unit_scale(data)
    at = Coordinates(unit)
    flat = at.strict.reshape(-1, at.svm.W.size)
    direction = at.svm.W.ravel()
    tight = flat @ direction < 1 + TIGHT
    logits = at.base_limit
    tied = np.where(at.out, -np.inf, logits)
    top = np.maximum.reduceat(tied, at.first)
    total = top + np.log(np.add.reduceat(np.exp(tied - top[at.row]), at.first))
    log_odds = (np.log(at.pi) + logits - total[at.row])[at.out][tight]
    _, s, span = sla.svd(flat[tight], full_matrices=False)
    span = span[s > 1e-9 * s[:1].sum()]
    D, goal = flat[tight] @ span.T, span @ direction
    # Independent tight pairs have one set of multipliers, and this start solves the equations. From
    # zero the odds may span more decades than there are digits.
    pull = np.linalg.lstsq(D.T, goal)[0]
    pull = np.maximum(pull, max(1e-6 * pull.max(initial=0.0), np.finfo(float).tiny))
    c = np.linalg.lstsq(D, log_odds - np.log(pull))[0]
    slope, change = np.full(len(c), np.inf), np.inf
    for _ in range(NEWTON_STEPS):
        with np.errstate(over="ignore", invalid="ignore"):
            e = np.exp(log_odds - D @ c)
            hessian = D.T @ (e[:, None] * D)
        if not np.isfinite(hessian).all():
            break
        slope = goal - e @ D
        try:
            step = np.linalg.solve(hessian, slope)
        except np.linalg.LinAlgError:  # odds far apart
            break
        with np.errstate(over="ignore", invalid="ignore"):
            change = np.abs(D @ step).max(initial=0.0)
        if not np.isfinite(change):
            break
        if np.linalg.norm(slope) <= 1e-12 * np.linalg.norm(goal):
            if change > 1e-3:  # e^{-x} has no minimum, though its slope becomes as small as we like
                break
            # For κ times the W of unit scale, R is larger by 2 log κ.
            strict = c @ span + 2 * np.log(scale) * direction
            return (at.finite.W + strict.reshape(data.shape)) / scale
        # The objective is an exponential along each row: a unit change of exponent is safe.
        c = c - step / max(1.0, change)
    raise ConvergenceError(
        f"the next-order term still moves exponents by {change:.1e} a step at a gradient of "
        f"{np.linalg.norm(slope):.1e}; a tight pair without a multiplier is the usual cause: the "
        "limit is then infinite",
        float(np.linalg.norm(slope)),
    )
