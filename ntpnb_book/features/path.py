"""The ridge path of joint training: ``CE(L) + λ‖L‖_*`` for ``λ`` far below the smallest float.

Since ``‖L‖_*`` is the smallest ``(‖W‖² + ‖H‖²)/2`` of factors with ``H Wᵀ = L``, these are the
logits of the joint problem ``CE(H Wᵀ) + λ(‖W‖² + ‖H‖²)/2`` in enough dimensions. The method solves
the dual,

    maximise ``Σ_j π_j H(p_j − λ A_j / π_j) / λ``  subject to  ``Σ_v A_jv = 0``, ``‖A‖_op ≤ 1``

with the entropy ``H``. At its maximum ``A = −∇CE(L)/λ``. The out-of-support entries
``−π_j q_jv/λ`` stay of order one as ``λ`` vanishes; they are solved for, so nothing underflows.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Recorded
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import FloatArray, as_floats
from ntpnb.basics.watch import OutOfTime, Progress, Watch
from ntpnb.problem.data import NextTokenData
from ntpnb_book.features.joint import free_laws
from ntpnb_book.features.spectral_ball import (
    Derivatives,
    barrier_gradient,
    last_centre,
    orthogonal_to,
    require_gap,
    require_small,
)

UNPOLISHED_GAP = 1e-5  # as in the nuclear module, for minimisers as the barriers leave them
LEAST_FREQUENCY = 1e-150  # of a context and its next token: the method divides by its square


@dataclass(frozen=True, eq=False, repr=False)
class NuclearPath(Recorded):
    """Minimisers of ``CE(L) + λ‖L‖_*``, one for each ``λ``.

    Attributes
    ----------
    log_multipliers : ndarray, shape (r,)
        Natural logarithms of ``λ``.
    logits : ndarray, shape (r, m, V)
        Each row sums to zero.
    norm : ndarray, shape (r,)
        Nuclear norms.
    certificate : ndarray, shape (r, m, V)
        ``A = −∇CE(L)/λ`` up to the gap's size, with ``‖A‖_op ≤ 1``.
    gap : ndarray, shape (r,)
        ``1 − ⟨A, L⟩ / ‖L‖_*``, and zero where the logits are. With ``‖A‖_op ≤ 1`` it bounds by how
        much the objective misses its minimum, in units of ``λ‖L‖_*``.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> path = features.nuclear_path(ntpnb.datasets.toy(), [-10.0, -1000.0])
    >>> path.norm.round(1).tolist()
    [23.5, 2959.7]
    """

    log_multipliers: FloatArray
    logits: FloatArray
    norm: FloatArray
    certificate: FloatArray
    gap: FloatArray


@one_thread
def nuclear_path(
    data: NextTokenData,
    log_multipliers: npt.ArrayLike,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> NuclearPath:
    """Minimise ``CE(L) + λ‖L‖_*`` over logits, for any ``λ``.

    Parameters
    ----------
    data : NextTokenData
        Only ``target_probs`` and ``context_probs`` count.
    log_multipliers : sequence of float
        Natural logarithms of ``λ``, such as −1e6; all at most −1.
    seconds : float, optional
        Time limit. Default: none.
    progress : callable, optional
        Called with a line of text after each minimiser; what it raises ends the computation.

    Returns
    -------
    NuclearPath

    Raises
    ------
    ValueError
        Other data than a linear decoder's, more than 1500 pairs of a context and a token, one that
        follows with a frequency below 1e-150, or a logarithm above −1.
    ConvergenceError
        The gap stayed above 1e-5, or the time is over. ``.point`` is the path as far as it was
        reached, None where no minimiser was, and ``.residual`` its largest gap.

    References
    ----------
    T24 (002) Thm 1 has the path of the Frobenius norm; Zhao et al. (arXiv:2408.15417) that of the
    nuclear norm as ``λ`` vanishes.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> path = features.nuclear_path(ntpnb.datasets.toy(), [-1e6])
    >>> best = features.logit_margin(ntpnb.datasets.toy().support)
    >>> bool(abs(path.logits[0] / 1e6 - best.logits).max() < 1e-4)
    True
    """
    watch = Watch(seconds, progress)
    targets = free_laws(data)
    num_contexts, vocab_size = targets.shape
    require_small(
        f"data has {num_contexts} contexts and {vocab_size} tokens", (num_contexts, vocab_size)
    )
    rarest = (data.context_probs[:, None] * targets)[targets > 0].min()
    if rarest < LEAST_FREQUENCY:
        raise ValueError(
            f"data has a context and a next token with the frequency {rarest:.3g}; at least "
            f"{LEAST_FREQUENCY:g} is needed"
        )
    logarithms = np.atleast_1d(as_floats("log_multipliers", log_multipliers))
    allowed = np.isfinite(logarithms) & (logarithms <= -1)
    if logarithms.ndim != 1 or not logarithms.size or not allowed.all():
        raise ValueError("log_multipliers must be a flat sequence of finite numbers of at most -1")
    points: list[_Point] = []
    try:
        for x in logarithms.tolist():
            points.append(_Point(targets, data.context_probs, -x, watch))
            watch.say(f"nuclear path: {len(points)} of {len(logarithms)} multipliers")
    except OutOfTime:
        path = _path_of(points, logarithms)
        raise ConvergenceError(
            f"{watch.stopped}: {len(points)} of {len(logarithms)} points "
            "of the path were reached" + ("; .point is the path so far" if points else ""),
            np.inf if path is None else float(path.gap.max()),
            path,
        ) from None
    path = _path_of(points, logarithms)
    assert path is not None  # there is a multiplier
    require_gap(float(path.gap.max()), UNPOLISHED_GAP, path)
    return path


def _path_of(points: "list[_Point]", logarithms: FloatArray) -> NuclearPath | None:
    """Put the minimisers that were found together; None where there is none."""
    if not points:
        return None
    return NuclearPath(
        log_multipliers=logarithms[: len(points)],
        logits=np.stack([point.logits for point in points]),
        norm=np.array([point.norm for point in points]),
        certificate=np.stack([point.certificate for point in points]),
        gap=np.array([point.gap for point in points]),
    )


class _Point:
    """The minimiser for one ``λ = e^{−depth}``.

    Attributes
    ----------
    logits, certificate : ndarray, shape (m, V)
    norm, gap : float
    """

    def __init__(
        self, targets: FloatArray, frequencies: FloatArray, depth: float, watch: Watch
    ) -> None:
        self._watch = watch
        self.targets = targets
        self.log_pi = np.log(frequencies)[:, None]
        self.depth = depth
        self.inside = targets > 0
        basis = orthogonal_to(np.ones(targets.shape[1]))
        B, mu = last_centre(self._entries, self._start() @ basis, basis)
        A = B @ basis.T
        log_probs = self._log_probs(A)
        # Where a margin exceeds that of the others, −A falls like a power of λ, and the barrier
        # holds it up. There the primal matrix knows better.
        slack = ~self.inside & (-A < np.sqrt(mu))
        primal = depth * mu * barrier_gradient(B) @ basis.T
        size = self.inside.sum(axis=1, keepdims=True)
        offset = np.where(self.inside, log_probs - primal, 0.0).sum(axis=1, keepdims=True) / size
        log_probs = np.where(slack, primal + offset, log_probs)
        A = np.where(slack, -np.exp(np.minimum(log_probs + depth + self.log_pi, 0.0)), A)
        A = A - np.where(self.inside, A.sum(axis=1, keepdims=True) / size, 0.0)
        self.logits = log_probs - log_probs.mean(axis=1, keepdims=True)
        self.certificate = A / max(1.0, float(np.linalg.norm(A, 2)))
        self.norm = float(np.linalg.norm(self.logits, "nuc"))
        matched = float(np.sum(self.certificate * self.logits))
        self.gap = 1 - matched / self.norm if self.norm > 1e-6 else 0.0

    def _start(self) -> FloatArray:
        """A small multiple of the centred supports: inside the ball, and all laws positive."""
        centred = self.inside - self.inside.mean(axis=1, keepdims=True)
        # p − λ A / π > 0 in support
        room = np.log(np.where(self.inside, self.targets, 1.0)) + self.log_pi + self.depth
        small = min(
            0.5 / max(1.0, float(np.linalg.norm(centred, 2))), 0.5 * np.exp(min(room.min(), 0))
        )
        start: FloatArray = small * centred
        return start

    def _log_probs(self, A: FloatArray) -> FloatArray:
        """Logarithm of ``p − λ A / π``: the model's probabilities."""
        moved = A * np.exp(-self.depth - self.log_pi)
        inside = np.where(self.inside, self.targets - moved, 1.0)
        outside = np.where(self.inside, 1.0, -A)
        log_outside = np.log(outside) - self.depth - self.log_pi
        log_probs: FloatArray = np.where(self.inside, np.log(inside), log_outside)
        return log_probs

    def _entries(self, A: FloatArray, weight: float) -> Derivatives | None:
        """Derivatives of the dual function over ``depth``, and of the logarithmic barrier."""
        self._watch.check()
        shrink = np.exp(-self.depth - self.log_pi)
        left = np.where(self.inside, self.targets - A * shrink, -A)
        if left.min() <= 0:
            return None
        first = (self._log_probs(A) + 1) / self.depth
        second = -np.where(self.inside, shrink, 1.0) / left / self.depth
        # A logarithmic barrier holds up what would fall below rounding.
        held = np.where(self.inside, 0.0, weight)
        return Derivatives(first - held / left, second - held / left**2)
