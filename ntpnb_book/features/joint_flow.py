"""Gradient flow of word and context vectors at late times, in the clock ``s = log t``.

Late in training the in-support ties have settled: their logits are the log-odds up to ``1/t``. What
pulls is ``A = −t ∇CE(L)``. Its out-of-support entries ``−t π_j q_jv`` are computed in logarithms;
its in-support entries are what keeps the ties, a linear system. With them

    dW/ds = Aᵀ H,   dH/ds = A W,

and nothing over- or underflows at ``t = 10^1000``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.saving import Recorded
from ntpnb.basics.threads import one_thread
from ntpnb.basics.validation import FloatArray, as_increasing, require_number
from ntpnb.basics.watch import Progress, Watch
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.loss import log_sum_exp
from ntpnb.training.flow import System, integrate
from ntpnb_book.features.joint import JointStart, free_laws, start_of_runs


@dataclass(frozen=True, eq=False, repr=False)
class JointFlow(Recorded):
    """Word and context vectors along the late gradient flow.

    Attributes
    ----------
    log_times : ndarray, shape (r,)
        Natural logarithms of ``t``.
    W : ndarray, shape (r, V, d)
    H : ndarray, shape (r, m, d)
    logits : ndarray, shape (r, m, V)
        ``H Wᵀ`` with rows that sum to zero.
    certificate : ndarray, shape (r, m, V)
        ``A = −t ∇CE``. Divided by its largest singular value it is feasible for the dual of
        :func:`ntpnb_book.features.logit_margin`.
    tie_error : ndarray, shape (r,)
        Largest difference between a logit and the log-odds in support, both centred there.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> data = ntpnb.datasets.toy()
    >>> start = features.joint_init(data, dim=5, scale=0.1, seed=1)
    >>> run = features.descend_jointly(data, 0.5, 2000, start, record=[2000])
    >>> end = features.JointStart(run.W[0], run.H[0])
    >>> flow = features.late_joint_flow(data, end, log_start=6.9, log_times=[10.0, 230.0])
    >>> bool(flow.tie_error[-1] < 1e-6)
    True
    """

    log_times: FloatArray
    W: FloatArray
    H: FloatArray
    logits: FloatArray
    certificate: FloatArray
    tie_error: FloatArray


@one_thread
def late_joint_flow(
    data: NextTokenData,
    start: JointStart,
    log_start: float,
    log_times: npt.ArrayLike,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> JointFlow:
    """Follow the gradient flow of both factors from late to very late times.

    Parameters
    ----------
    data : NextTokenData
        Only ``target_probs`` and ``context_probs`` count.
    start : JointStart
        Vectors of one run at the time ``e^log_start``, when its in-support ties have settled; of
        ``k`` steps of size ``η`` the time is ``η k``. What they miss of the ties decays like
        ``1/t`` from there on.
    log_start : float
        Natural logarithm of that time.
    log_times : increasing sequence of float
        Where to record, from ``log_start`` on.
    seconds : float, optional
        Time limit. Default: none.
    progress : callable, optional
        Called with a line of text after each step; what it raises ends the computation.

    Returns
    -------
    JointFlow

    Raises
    ------
    TypeError
        ``data`` is no dataset, ``start`` no ``JointStart``, or a limit of the wrong type.
    ValueError
        Data or vectors that do not fit, or times that do not increase from ``log_start`` on.
    ConvergenceError
        The integrator gave up, or the time is over. Then ``.point`` is the flow at the times that
        were reached, None where there is none, and ``.residual`` its last ``tie_error``.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb_book import features
    >>> data = ntpnb.NextTokenData([[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> start = features.joint_init(data, dim=2, scale=1.0, seed=1)
    >>> run = features.descend_jointly(data, 0.5, 2000, start, record=[2000])
    >>> end = features.JointStart(run.W[0], run.H[0])
    >>> flow = features.late_joint_flow(data, end, 6.9, [1e4])
    >>> (flow.logits[0] / 1e4).round(3).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """
    watch = Watch(seconds, progress)
    targets = free_laws(data)
    W, H, single = start_of_runs(targets[None], start, "start")
    if not single:
        raise ValueError("start has an axis for runs; the flow takes one run")
    require_number("log_start", log_start, lambda x: True, "be a number")
    times = as_increasing("log_times", log_times)
    if times[0] < log_start:
        raise ValueError(f"log_times[0] is {times[0]:g}; log_start = {log_start:g} is the least")
    pulls = _Pulls(targets, data.context_probs)
    word_shape, context_shape = W[0].shape, H[0].shape
    num_word = W[0].size

    def velocity(s: float, state: FloatArray) -> FloatArray:
        words = state[:num_word].reshape(word_shape)
        contexts = state[num_word:].reshape(context_shape)
        A = pulls.at(s, words, contexts)
        return np.concatenate([(A.T @ contexts).ravel(), (A @ words).ravel()])

    start_state = np.concatenate([W.ravel(), H.ravel()])
    states = integrate(System("joint flow", velocity), log_start, start_state, times, watch)
    words = states[:, :num_word].reshape(-1, *word_shape)
    contexts = states[:, num_word:].reshape(-1, *context_shape)
    logits = contexts @ words.mT
    logits = logits - logits.mean(axis=-1, keepdims=True)
    reached = times[: len(states)]
    at_records = zip(reached, words, contexts, strict=True)
    flow = None
    if len(states):
        flow = JointFlow(
            log_times=reached,
            W=words,
            H=contexts,
            logits=logits,
            certificate=np.stack([pulls.at(s, w, h) for s, w, h in at_records]),
            tie_error=np.array([np.abs(pulls.missed_ties(L)).max() for L in logits]),
        )
    if flow is None or len(states) < len(times):
        raise ConvergenceError(
            f"{watch.stopped}: {len(states)} of {len(times)} times of the flow "
            "were reached" + ("; .point is the flow so far" if len(states) else ""),
            np.inf if flow is None else float(flow.tie_error[-1]),
            flow,
        )
    return flow


class _Pulls:
    """``A = −t ∇CE`` of given vectors, with in-support entries that keep the ties."""

    def __init__(self, targets: FloatArray, frequencies: FloatArray) -> None:
        self.inside = targets > 0
        self.rows, self.columns = np.nonzero(self.inside)
        self.log_pi = np.log(frequencies)[:, None]
        self.log_odds = np.log(targets[self.inside])
        num_contexts = len(targets)
        self.member = (self.rows[:, None] == np.arange(num_contexts)).astype(float)
        self.pairs_of_rows = np.ix_(self.rows, self.rows)
        self.pairs_of_columns = np.ix_(self.columns, self.columns)
        self.same_row = self.rows[:, None] == self.rows
        self.same_column = self.columns[:, None] == self.columns
        no_pairs = np.zeros_like(self.same_row, dtype=float)
        corner = np.zeros((num_contexts, num_contexts))
        self.system = np.block([[no_pairs, self.member], [self.member.T, corner]])

    def missed_ties(self, logits: FloatArray) -> FloatArray:
        """Logits minus log-odds in support, centred there, shape (in-support pairs,)."""
        missed = logits[self.inside] - self.log_odds
        mean = missed @ self.member / self.member.sum(axis=0)
        centred: FloatArray = missed - mean[self.rows]
        return centred

    def at(self, s: float, W: FloatArray, H: FloatArray) -> FloatArray:
        """``A`` at the time ``e^s``, shape (m, V).

        The logits change by ``H Hᵀ A + A W Wᵀ``. In support, that has to be a constant of each row,
        minus what the ties still miss; and the rows of ``A`` sum to zero.
        """
        logits = H @ W.T
        support_logits = np.where(self.inside, logits, -np.inf)
        log_sum = log_sum_exp(support_logits)[:, None]
        exponent = np.where(self.inside, -np.inf, s + self.log_pi + logits - log_sum)
        A = -np.exp(exponent)
        of_contexts, of_words = H @ H.T, W @ W.T
        change = (of_contexts @ A + A @ of_words)[self.inside]
        moved = of_contexts[self.pairs_of_rows] * self.same_column
        moved += of_words[self.pairs_of_columns] * self.same_row
        system = self.system.copy()
        system[: len(moved), : len(moved)] = moved
        wanted = np.concatenate([-change - self.missed_ties(logits), -A.sum(axis=1)])
        A[self.inside] = np.linalg.solve(system, wanted)[: len(self.rows)]
        return A
