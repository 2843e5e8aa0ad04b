"""Gradient flow in logarithmic time, up to times that no iteration could reach."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.linalg as sla
from scipy.integrate import BDF

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import EPS
from ntpnb.basics.validation import FloatArray, as_increasing
from ntpnb.basics.watch import Progress, Watch
from ntpnb.bias import ImplicitBias
from ntpnb.problem.data import NextTokenData
from ntpnb.training.coordinates import Coordinates, ExactTrace, bias_within, require_all_reached
from ntpnb.training.descent import start_at

EVALUATIONS = 50_000  # ordinary flows take some hundreds, difficult ones some thousands

Velocity = Callable[[float, FloatArray], FloatArray]


@dataclass(frozen=True, eq=False, repr=False)
class FlowTrace(ExactTrace):
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
        Frobenius norm of ``W``.

    Examples
    --------
    >>> import ntpnb
    >>> flow = ntpnb.gradient_flow(ntpnb.datasets.toy(), [0.0, 10.0, 230.0])
    >>> flow.loss.round(3)
    array([1.475, 0.881, 0.881])
    """

    log_times: FloatArray
    loss: FloatArray
    excess: FloatArray
    norm: FloatArray


@one_thread
def gradient_flow(
    data: NextTokenData | ImplicitBias,
    log_times: npt.ArrayLike,
    init: npt.ArrayLike | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> FlowTrace:
    """Integrate ``dW/dt = −∇CE(W)`` up to times that no iteration could reach.

    In the coordinates of :mod:`ntpnb.training.coordinates` the flow reads ``du/dt = −∂_u CE`` and
    ``da_k/dt = π_j q_jk``. It is integrated in ``log(1 + t)`` by an implicit method; once the
    tied coordinates have settled, only the logarithmically slow ``a`` are.

    Gradient descent with steps ``η`` up to ``1/L`` is near ``W(t)`` after ``t/η`` steps, when there
    are many of them. Its first step goes along the first gradient, as the flow does at once: after
    few steps ``k`` it is about where the flow is after ``k − 1``, so that a number of steps that is
    read off the flow is too low, by half of two steps, a fifth of five and a tenth of ten.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
    log_times : increasing sequence of float
        Natural logarithms of the times to record; large values (``log t = 230`` is ``t = 1e100``)
        cost little more than small ones.
    init : array_like, shape (p, q), optional
        Default: zeros.
    seconds : float, optional
        Time limit; it includes what is computed of the theory, unless ``data`` is a bias, which has
        a limit of its own. Default: none.
    progress : callable, optional
        Called with a line of text now and then; what it raises ends the computation.

    Returns
    -------
    FlowTrace

    Raises
    ------
    ValueError
        Times that are not increasing or not finite, or an ``init`` of the wrong shape.
    NotSeparableError
        No max-margin direction exists; the flow is then that of ``implicit_bias(data).twin``, which
        may be given in place of the data.
    ConvergenceError
        The integrator failed or took too long, the finite part was not found, or it is undecided
        whether a max-margin direction exists. Where the time is over on the way, ``.point`` is the
        trace of the times that were reached, None where there is none, and ``.residual`` the loss
        above the entropy at the last of them.

    References
    ----------
    T24 (002) Thm 2 and L24 (004) Thm 3, in the limit of small steps.

    Examples
    --------
    >>> import ntpnb
    >>> flow = ntpnb.gradient_flow(ntpnb.datasets.toy(), [0.0, 10.0, 230.0])
    >>> flow.norm.round(1).tolist()
    [0.4, 14.2, 511.5]
    """
    watch = Watch(seconds, progress)
    bias = bias_within(data, watch)
    times = as_increasing("log_times", log_times)
    start = start_at([bias.data], init, single=True)
    coords = Coordinates(bias, start[0], watch)
    u, a, logits = _follow(coords, times + 2 * np.log(coords.scale), watch)
    excess = coords.excess(logits)
    W = coords.weights(u, a)
    num_reached = len(W)
    trace = FlowTrace(
        log_times=times[:num_reached],
        W=W,
        loss=bias.data.entropy + excess,
        excess=excess,
        norm=np.linalg.norm(W, axis=(-2, -1)),
        _inside=coords.tied_weights(u),
    )
    require_all_reached(watch, "times of the flow", len(times), trace, excess)
    return trace


def _follow(
    coords: Coordinates, log_times: FloatArray, watch: Watch
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Integrate all coordinates until the tied ones have settled, then the others alone.

    Return the coordinates ``u`` and ``a`` at the r times, and the logits of all candidates there.
    Where the time is over, the points end with the last time that was reached.
    """
    dim = len(coords.u_limit)
    log_settled = _log_settling_time(coords)
    early = log_times[log_times <= log_settled]
    late = log_times[log_times > log_settled]

    # The first phase begins at t = 0 and so runs in log(1 + t), the second in log t.
    stops = np.append(early, log_settled) if len(late) else early
    start = np.concatenate([coords.u_start, np.zeros(len(coords.gram))])
    states = integrate(_until_settled(coords), 0.0, start, np.logaddexp(0.0, stops), watch)
    points = states[: len(early)]
    if len(states) > len(early):
        a_late = integrate(_once_settled(coords), log_settled, states[-1, dim:], late, watch)
        u_late = np.tile(coords.u_limit, (len(a_late), 1))
        points = np.concatenate([points, np.column_stack([u_late, a_late])])
    u, a = np.split(points, [dim], axis=1)
    logits = [
        coords.logits(tied if k < len(early) else None, strict)
        for k, (tied, strict) in enumerate(zip(u, a, strict=True))
    ]
    return u, a, np.reshape(logits, (len(points), len(coords.row)))


def _log_settling_time(coords: Coordinates) -> float:
    """When the tied coordinates reach their limit to rounding, as a natural logarithm.

    Where candidates are dominated, the tied coordinates lag behind their limit by the mass that
    still moves them, which falls as ``1/t``: in units of the slowest tie's time it is rounding
    after 1e13. The mass of a candidate is ``1/(t ‖P_⊥ D_k‖²)``, and pulls with ``‖P_F D_k‖``. Where
    a short embedding makes the quotient of the two large, the ties wait for that candidate, until
    the integrator can tell its pull from none no more, at 1e-10.

    Where nothing is dominated the lag falls exponentially, and later a velocity is rounding alone,
    in which the integrator's Newton method goes astray. Far from the minimum a logistic loss is
    less curved: with a slowest rate ``μ``, logits that are ``S`` off their limit approach it by
    ``μ (1 − e^{−S})`` at least. So a time ``S/μ`` brings them within one of it, and ``1 − log EPS``
    times ``1/μ`` more to rounding. The bound on ``S``, the largest length times the way, is far too
    large where embeddings differ much in length and a long way lies along the short ones. There a
    hundred times ``1/μ``, and as many for each unit by which logits are off, have always been
    enough, though no proof says so.
    """
    if len(coords.gram):
        pulls = np.linalg.norm(coords.slopes[coords.dominated], axis=1)
        times = max(1e13, 1e10 * (pulls / np.diag(coords.gram)).max())
    else:
        lengths = np.linalg.norm(coords.slopes, axis=1)
        way = coords.u_start - coords.u_limit
        off = 2 * lengths.max(initial=0.0) * np.linalg.norm(way)
        logits_off = np.abs(coords.slopes @ way).max(initial=0.0)
        times = min(off + 1 - np.log(EPS), 100 * (1 + logits_off))
    return float(np.log(times) - np.log(slowest_rate(coords)))


def slowest_rate(coords: Coordinates) -> float:
    """Rate, capped at one, at which the slowest tied coordinate settles at the limit.

    Without the cap it is the least eigenvalue of the Hessian along ``u`` of the loss of the tied
    tokens alone.
    """
    tied_logits = np.where(coords.dominated, -np.inf, coords.base_limit)
    q = np.where(coords.dominated, 0.0, np.exp(coords.log_probs(tied_logits)))
    weighted = (coords.pi * q)[:, None] * coords.slopes
    curvature = weighted.T @ coords.centred(q, coords.slopes)
    slowest: float = sla.eigvalsh(curvature).min(initial=1.0)
    return max(float(np.finfo(float).tiny), slowest)


class System(NamedTuple):
    """An ordinary differential equation in logarithmic time ``s``.

    ``velocity(s, state)`` is the derivative of a state along ``s``, and ``jacobian(s, state)`` that
    of the velocity along the state; by differences where it is None.

    Examples
    --------
    >>> from ntpnb.training.flow import System
    >>> System("decay", lambda s, x: -x).velocity(0.0, 3.0)
    -3.0
    """

    name: str
    velocity: Velocity
    jacobian: Velocity | None = None


def _until_settled(coords: Coordinates) -> System:
    """The flow of ``(u, a)`` in ``s = log(1 + t)``."""
    dim = len(coords.u_limit)

    def probabilities(state: FloatArray) -> FloatArray:
        q: FloatArray = np.exp(coords.log_probs(coords.logits(state[:dim], state[dim:])))
        return q

    def velocity(s: float, state: FloatArray) -> FloatArray:
        q = probabilities(state)
        du_dt = -coords.slope_u(q)
        da_dt = (coords.pi * q)[coords.dominated]
        dt_ds = np.exp(s)
        velocity: FloatArray = dt_ds * np.concatenate([du_dt, da_dt])
        return velocity

    def jacobian(s: float, state: FloatArray) -> FloatArray:
        q = probabilities(state)
        mass = coords.pi * q
        logit_slopes = np.concatenate([coords.slopes, coords.along_a()], axis=1)
        rows = np.concatenate([-coords.slopes.T * mass, np.diag(mass)[coords.dominated]])
        dt_ds = np.exp(s)
        jacobian: FloatArray = dt_ds * (rows @ coords.centred(q, logit_slopes))
        return jacobian

    return System("gradient flow", velocity, jacobian)


def _once_settled(coords: Coordinates) -> System:
    """The flow of ``a`` in ``s = log t``, with the tied coordinates at their limit."""
    losing = coords.dominated

    def velocity(s: float, state: FloatArray) -> FloatArray:
        log_q = coords.log_probs(coords.logits(None, state))
        velocity: FloatArray = np.exp(s + np.log(coords.pi[losing]) + log_q[losing])
        return velocity

    def jacobian(s: float, state: FloatArray) -> FloatArray:
        # The dominated mass is so small that its part in each row's total does not count.
        return -velocity(s, state)[:, None] * coords.gram

    return System("gradient flow", velocity, jacobian)


def integrate(
    system: System, start: float, state: FloatArray, times: FloatArray, watch: Watch
) -> FloatArray:
    """Follow a flow in logarithmic time.

    Parameters
    ----------
    system : System
        Its name says for whom it is told of progress.
    start : float
        The ``s`` to begin at.
    state : ndarray, shape (n,)
    times : ndarray, shape (r,)
        Values of ``s`` that do not decrease, from ``start`` on.
    watch : Watch

    Returns
    -------
    ndarray, shape (r, n)
        Fewer rows where the time is over: those of the times that were reached.

    Raises
    ------
    ConvergenceError
        The integrator gave up, or took too many evaluations of the velocity.

    Examples
    --------
    >>> import numpy as np
    >>> from ntpnb.training.flow import System, integrate
    >>> from ntpnb.basics.watch import Watch
    >>> decay = System("decay", lambda s, x: -x)
    >>> integrate(decay, 0.0, np.ones(1), np.array([1.0, 2.0]), Watch()).round(6)
    array([[0.367879],
           [0.135335]])
    """
    if not state.size or times[-1] == start:  # nothing can move
        return np.tile(state, (len(times), 1))
    states = np.empty((len(times), len(state)))
    reached = start
    num_known = 0
    why: str | None = None
    try:
        # A wild trial step overflows or meets a singular matrix, and is rejected.
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", sla.LinAlgWarning)
            solver = BDF(
                system.velocity,
                start,
                state,
                times[-1],
                jac=system.jacobian,
                rtol=1e-8,
                atol=1e-10,
            )
            while solver.status == "running":
                if watch.expired:
                    return states[:num_known]
                watch.say(f"{system.name}: log t = {solver.t:.4g} of {times[-1]:.4g}")
                if solver.nfev > EVALUATIONS:
                    raise ConvergenceError(
                        f"the {system.name} came to log t = {solver.t:g} in {EVALUATIONS} "
                        "evaluations of its velocity and no further; ties that settle over many "
                        "decades of time are the usual cause",
                        np.inf,
                    )
                why = solver.step()
                reached = solver.t
                passed = int(np.searchsorted(times, reached, side="right"))
                if why is None and passed > num_known:
                    between = slice(num_known, passed)
                    states[between] = solver.dense_output()(times[between]).T
                    num_known = passed
        if solver.status == "finished" and np.isfinite(states).all():
            return states
    except ValueError as error:  # a Jacobian that is not finite
        if error is watch.raised:
            raise
    why = why or "steps too wild for floating point"
    raise ConvergenceError(f"the {system.name} stopped near log t = {reached:g}: {why}", np.inf)
