"""What is known of late training before it begins: the next-order term and what follows from it.

Late in a gradient flow W(t) is W^mm log t + W̃ on F and on the span of the tight pairs, and what
the start and the other pairs left there is off both. Chapter 15 and its evidence pages compare
training with the numbers computed here. `euler_bound` says how far the steps of gradient descent
can lead off the flow.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ntpnb.basics.validation import FloatArray
from ntpnb.margin.solution import MarginSolution
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import gradient
from ntpnb.tied.finite import FinitePart
from ntpnb.training.coordinates import Coordinates
from ntpnb.training.flow import gradient_flow
from ntpnb.training.late_time import next_order_term, tight_pairs
from ntpnb_book.vocabulary import frobenius_norm, inner, orthogonal_part

__all__ = ["NextOrder", "euler_bound", "next_order"]


@dataclass(frozen=True)
class NextOrder:
    """The next-order term of a problem, and the rates that its neighbourhood gives.

    Attributes
    ----------
    data : NextTokenData
    svm : MarginSolution
        W^mm and its norm.
    fin : FinitePart
        W* and the tied subspace F.
    term : ndarray, shape (p, q)
        W̃, the limit of W(t) − W^mm log t as far as F and tight pairs can see it.
    pairs : ndarray, shape (K, p·q)
        The tight pairs' matrices, projected off F and flattened.
    pull : ndarray, shape (K,)
        How hard each of them pulls at W̃, times t: multipliers of the max-margin problem.
    span : ndarray, shape (r, p·q)
        Orthonormal basis of the tight pairs' span.
    mu : float
        Smallest curvature at W̃ of the function that W̃ minimises, on that span.
    delta : float
        By how much the smallest margin of a pair that is not tight exceeds one; inf without one.
    kappa : float
        Norm of W̃'s part orthogonal to W^mm.
    ahead : float
        Length of W̃ along W^mm.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import next_order
    >>> found = next_order(ntpnb.datasets.toy())
    >>> round(found.kappa, 2), round(found.rho, 2)
    (2.2, 0.6)

    The flow from zero ends on the line, and nothing of it is out of sight.

    >>> W = ntpnb.gradient_flow(found.data, [50.0]).W[0]
    >>> bool(found.distance(W, 50.0) < 1e-6), bool(found.unseen(W) < 1e-6)
    (True, True)
    >>> found.seen(W).shape, round(float(found.full_offset(W)), 2)
    ((5, 2), 2.2)

    One degree takes about 26 decades of time.

    >>> power = found.log10_time(1.0, found.kappa)
    >>> print(power.round(1), found.angle(power * 2.302585, found.kappa).round(3))
    25.9 1.0
    """

    data: NextTokenData
    svm: MarginSolution
    fin: FinitePart
    term: FloatArray = field(repr=False)
    pairs: FloatArray = field(repr=False)
    pull: FloatArray = field(repr=False)
    span: FloatArray = field(repr=False)
    mu: float
    delta: float
    kappa: float
    ahead: float

    @property
    def rho(self) -> float:
        """The power of 1/t with which W̃ is reached, the smallest of ``mu``, ``delta`` and one."""
        return min(self.mu, self.delta, 1.0)

    def seen(self, W: npt.ArrayLike) -> FloatArray:
        """Project on F and on the span of the tight pairs.

        Parameters
        ----------
        W : array_like, shape (..., p, q)

        Returns
        -------
        ndarray, shape (..., p, q)
        """
        W = np.asarray(W, dtype=float)
        flat = W.reshape(*W.shape[:-2], -1)
        strict = (flat @ self.span.T @ self.span).reshape(W.shape)
        projected: FloatArray = self.fin.subspace.project(W) + strict
        return projected

    def distance(self, W: npt.ArrayLike, log_t: npt.ArrayLike) -> FloatArray:
        """Distance of W from ``W^mm log t + W̃``, seen on F and on the tight pairs.

        Parameters
        ----------
        W : array_like, shape (..., p, q)
        log_t : array_like, shape (...)

        Returns
        -------
        ndarray, shape (...)
        """
        log_t = np.asarray(log_t, dtype=float)[..., None, None]
        return frobenius_norm(self.seen(np.asarray(W) - log_t * self.svm.W - self.term))

    def unseen(self, W: npt.ArrayLike) -> FloatArray:
        """Norm of what neither F nor the tight pairs see of W.

        Parameters
        ----------
        W : array_like, shape (..., p, q)

        Returns
        -------
        ndarray, shape (...)
        """
        return frobenius_norm(np.asarray(W) - self.seen(W))

    def full_offset(self, W: npt.ArrayLike) -> FloatArray:
        """Distance from the axis to which a run with iterate W tends, if its unseen part stays.

        Parameters
        ----------
        W : array_like, shape (..., p, q)

        Returns
        -------
        ndarray, shape (...)
            ``√(κ² + ‖unseen part‖²)``.
        """
        offset: FloatArray = np.hypot(self.kappa, self.unseen(W))
        return offset

    def angle(self, log_t: npt.ArrayLike, offset: float) -> FloatArray:
        """Angle to W^mm, in degrees, of a line that misses the origin by ``offset``.

        Parameters
        ----------
        log_t : array_like
        offset : float
            `kappa` for the regularization path's constant, more for a flow's.

        Returns
        -------
        ndarray, of the same shape
        """
        length = self.svm.norm * np.asarray(log_t, dtype=float) + self.ahead
        degrees: FloatArray = np.degrees(np.arctan2(offset, length))
        return degrees

    def log10_time(self, degrees: npt.ArrayLike, offset: float) -> FloatArray:
        """Decimal logarithm of the time t at which that angle is reached.

        Parameters
        ----------
        degrees : array_like
        offset : float

        Returns
        -------
        ndarray, of the same shape
        """
        length = offset / np.tan(np.radians(degrees)) - self.ahead
        power: FloatArray = length / (self.svm.norm * np.log(10))
        return power


def next_order(data: NextTokenData) -> NextOrder:
    """Compute a problem's next-order term, and the numbers that say how soon it is reached.

    Parameters
    ----------
    data : NextTokenData

    Returns
    -------
    NextOrder

    Raises
    ------
    ValueError
        Nothing is ordered, so that training ends at W*.
    NotSeparableError
        No max-margin direction exists.
    ConvergenceError
        Some tight pair has no multiplier, for example.

    References
    ----------
    Sharpens T24 (002) Thm 2 and L24 (004) Thm 3, which stop at the direction.

    Examples
    --------
    One context, one certain token: the margin is reached at W̃ = (log 2)/2 in the first row.

    >>> import ntpnb
    >>> from ntpnb_book import next_order
    >>> found = next_order(ntpnb.NextTokenData([[1.0]], [[1, 0]]))
    >>> found.kappa < 1e-12, round(found.ahead, 6)
    (True, 0.490129)
    """
    at = Coordinates(data)
    if not len(at.gram):
        raise ValueError("data order nothing, W^mm is zero; a token that must lose is needed")
    tight = tight_pairs(at)
    term = next_order_term(data)
    pull = np.exp(tight.log_odds - tight.matrices @ term.ravel())
    on_span = tight.matrices @ tight.span.T
    hessian = (on_span.T * pull) @ on_span
    return NextOrder(
        data=data,
        svm=at.svm,
        fin=at.finite,
        term=term,
        pairs=tight.matrices,
        pull=pull,
        span=tight.span,
        mu=float(np.linalg.eigvalsh(hessian)[0]),
        delta=tight.next_margin - 1,
        kappa=float(frobenius_norm(orthogonal_part(term, at.svm.W))),
        ahead=float(inner(term, at.svm.W) / at.svm.norm),
    )


def euler_bound(
    data: NextTokenData, start: npt.ArrayLike, step: float, log_time: float
) -> FloatArray:
    """Bound on the distance between gradient descent and the gradient flow at equal time.

    Over one step the flow differs from a step along its tangent by at most ``η ∫ ‖W″‖ dt``, and a
    step ``η <= 2/L`` on a convex loss takes two matrices no further apart. So the errors add up to
    at most η times the length of the way that the flow's velocity makes. The way is measured
    between 560 times, which can only make it shorter.

    Parameters
    ----------
    data : NextTokenData
    start : array_like, shape (p, q)
        W at time zero, of both.
    step : float
        η, at most ``2 / data.smoothness``.
    log_time : float
        log t of the comparison, above −2; gradient descent is there after ``t / η`` steps.

    Returns
    -------
    ndarray, a scalar

    Examples
    --------
    >>> import numpy as np, ntpnb
    >>> from ntpnb_book import distance, euler_bound
    >>> data, start = ntpnb.datasets.toy(), np.zeros((5, 2))
    >>> descent = ntpnb.descend(data, ntpnb.GD(0.5), 100).W[-1]
    >>> flow = ntpnb.gradient_flow(data, [np.log(50)]).W[0]
    >>> bool(distance(descent, flow) < euler_bound(data, start, 0.5, np.log(50)))
    True
    """
    start = np.asarray(start, dtype=float)
    clock = np.append(np.linspace(-8, -2, 60), np.linspace(-2, log_time, 500)[1:])
    flow = gradient_flow(data, clock, start).W
    velocity = gradient(np.concatenate([start[None], flow]), data)
    bound: FloatArray = step * frobenius_norm(np.diff(velocity, axis=0)).sum()
    return bound
