"""Everything the theory says of a dataset, each part computed once, when asked for."""

from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import softmax

from ntpnb.basics.errors import ConvergenceError, NotSeparableError
from ntpnb.basics.saving import Result, in_short, written
from ntpnb.basics.threads import one_thread
from ntpnb.basics.tolerances import ACCEPT, HALF_THE_DIGITS, HELD, VANISHES
from ntpnb.basics.validation import FloatArray, IntArray, as_array, require_type
from ntpnb.basics.watch import OutOfTime, Progress, Watch
from ntpnb.bias.floor import LossFloor, loss_floor
from ntpnb.bias.partition import (
    MOST_WORK,
    SETTLED,
    USUAL_STEPS,
    Contradiction,
    contradiction,
    largest_gradient,
    partition_pairs,
    require_memory,
)
from ntpnb.margin.normal_form import positive_norms
from ntpnb.margin.solution import MarginSolution, measured_on
from ntpnb.margin.solve import MarginSearch, max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.equivalent import Collapse, collapsed
from ntpnb.problem.loss import cross_entropy, gradient, logits
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.problem.pairs import combined_pairs, pair_lengths
from ntpnb.tied.finite import FinitePart, finite_part, restrict
from ntpnb.tied.large import is_large
from ntpnb.tied.subspace import EqualSubspace, equal_subspace

# Attributes that are not pickled or saved; what follows from the data at once is computed again.
TEMPORARY = {"_limits", "_watch", "order", "original_order", "_contradiction"}


# What a bias may hold besides, by name, and of which type.
PARTS: dict[str, type | tuple[type, ...]] = {
    "finite_part": FinitePart,
    "floor": LossFloor,
    "_max_margin_or_refusal": (MarginSolution, NotSeparableError, ConvergenceError),
}


class ImplicitBias(Result):
    """What next-token training on a dataset tends to (made by :func:`implicit_bias`).

    Where the data are separable and some token is strictly dominated, the weights of training grow
    without bound along the max-margin direction ``W^mm``. Their part in the tied subspace F settles
    at the finite part ``W*``. Each of the two is computed when it is first asked for and then kept,
    so that one object can be handed to everything that needs the theory.

    Parameters
    ----------
    data : NextTokenData
    seconds : float, optional
        Time limit of all that is computed, counted from the first part that is asked for; beyond it
        separability is undecided. Default: none.
    progress : callable, optional
        Called with a line of text that says what is known; what it raises ends the computation.

    Attributes
    ----------
    data : NextTokenData

    Raises
    ------
    TypeError
        Anything else than data, a limit that is no number, or a ``progress`` that cannot be called.
    ValueError
        A negative limit.

    References
    ----------
    T24 (002) Defs 1–2, Thms 1–2; L24 (004) Secs 3–5.

    Examples
    --------
    >>> import ntpnb
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> bias.separable, bias.finite_part.compatible
    (True, True)
    >>> bias.max_margin is bias.max_margin
    True
    """

    _limits: tuple[float | None, Progress | None] = (None, None)

    def __init__(
        self,
        data: NextTokenData,
        *,
        seconds: float | None = None,
        progress: Progress | None = None,
    ) -> None:
        require_type("data", data, NextTokenData)
        self.data = data
        if seconds is not None or progress is not None:
            Watch(seconds, progress)  # explains what cannot be used
            self._limits = (seconds, progress)

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name not in TEMPORARY}

    def _checked(self) -> Self:
        """The bias that a file describes, whose parts are of its data and whose proofs hold."""
        known = vars(self)
        if strange := known.keys() & TEMPORARY:
            raise ValueError(f"{type(self).__name__}.{min(strange)} is never saved")
        require_type("data", known.get("data"), NextTokenData)
        for name, kind in PARTS.items():
            if name in known and not isinstance(known[name], kind):
                raise ValueError(f"{type(self).__name__}.{name} is {in_short(known[name])}")
        if "finite_part" in known and not _are_same(self.finite_part.subspace._data, self.data):
            raise ValueError(f"{type(self).__name__}.finite_part is one of other data")
        answer = known.get("_max_margin_or_refusal")
        if isinstance(answer, MarginSolution):
            solution = measured_on(self.data, answer)
            if not solution.kkt_residual <= ACCEPT:
                raise ValueError(
                    f"{type(self).__name__}'s margin solution is none: its KKT residual is "
                    f"{solution.kkt_residual:.1e}"
                )
            known["_max_margin_or_refusal"] = solution
        if isinstance(answer, NotSeparableError):
            _require_certificate(self.data, self.order, answer)
        return self

    @property
    def has_time_limit(self) -> bool:
        """Whether somebody said how long all that is computed may take."""
        return self._limits[0] is not None

    def say(self, text: str) -> None:
        """Tell who wanted to know of progress, and end the computation where its time is over.

        Raises
        ------
        ConvergenceError
            The time is over.

        Examples
        --------
        >>> import ntpnb
        >>> ntpnb.implicit_bias(ntpnb.datasets.toy(), progress=print).say("step 1")
        step 1
        """
        self._watch.tell(text)

    @cached_property
    def _watch(self) -> Watch:
        """The time limit, which begins when the first part is asked for."""
        return Watch(*self._limits)

    @cached_property
    def order(self) -> TokenPriority:
        """Which tokens must tie and which must win, see :func:`ntpnb.token_priority`."""
        return token_priority(self.data)

    @cached_property
    def finite_part(self) -> FinitePart:
        """Where training settles on the tied tokens, see :func:`ntpnb.finite_part`.

        That of data that are not separable settles at their :attr:`twin`'s, which ties more.

        Raises
        ------
        ConvergenceError
            It was not found to the accuracy promised.
        ValueError
            The tied subspace is too large, see :func:`ntpnb.equal_subspace`.
        """
        # Large data need no order, which would be as large as contexts × tokens.
        order = None if is_large(self.data) else self.order
        watch = self._watch
        return finite_part(self.data, order=order, seconds=watch.left, progress=watch.say)

    @property
    def equal_subspace(self) -> EqualSubspace:
        """The tied subspace F that holds :attr:`finite_part`; it raises what that raises."""
        return self.finite_part.subspace

    @cached_property
    def floor(self) -> LossFloor:
        """Bounds of the infimum of the loss, see :func:`ntpnb.loss_floor`."""
        watch = self._watch
        return loss_floor(self.data, seconds=watch.left, progress=watch.say)

    @cached_property
    def _max_margin_or_refusal(self) -> MarginSolution | NotSeparableError | ConvergenceError:
        # With an order no token could stand for others, and large data would have to form it.
        collapse = collapsed(self.data)
        order = self.order if collapse.is_trivial and not is_large(self.data) else None
        watch = self._watch
        try:
            self._refute_by_floor(collapse)
            return max_margin(self.data, order=order, seconds=watch.left, progress=watch.say)
        except (NotSeparableError, ConvergenceError) as refusal:
            if refusal is watch.raised:
                raise
            return refusal

    def _refute_by_floor(self, collapse: Collapse) -> None:
        """Raise ``NotSeparableError`` where large data are compatible and their loss has a floor.

        What a few frequent tokens do not refute takes systems of as many rows as there are
        contexts. Where these are minutes of work, the floor is asked, which takes a hundred passes
        over the contexts.
        """
        data = self.data
        if USUAL_STEPS * data.num_contexts**3 <= MOST_WORK:
            return
        if not data.shape[1] < data.num_contexts <= HELD / data.vocab_size:
            return
        try:
            MarginSearch(collapse, None, self._watch).refute_by_parts()
            compatible = self.finite_part.compatible
        except NotSeparableError:
            raise
        except (OutOfTime, ConvergenceError, ValueError) as error:
            if error is self._watch.raised:
                raise
            return
        if compatible and self.floor.refutes:
            raise NotSeparableError(
                "no W keeps all strict pairs at a positive margin, for every loss is at least "
                f"{self.floor.lower:.6g} nats, and the entropy is {data.entropy:.6g}",
                self.floor,
            )

    @property
    def max_margin(self) -> MarginSolution | None:
        """The max-margin solution ``W^mm``; None where there is a :attr:`refusal` instead."""
        answer = self._max_margin_or_refusal
        return answer if isinstance(answer, MarginSolution) else None

    @property
    def refusal(self) -> NotSeparableError | ConvergenceError | None:
        """The proof that the data are not separable, or why that is undecided; else None."""
        answer = self._max_margin_or_refusal
        return None if isinstance(answer, MarginSolution) else answer

    @property
    def separable(self) -> bool | None:
        """Whether some ``W`` scores tied tokens alike and the winner of each strict pair higher.

        None where that is undecided.
        """
        if isinstance(self.refusal, ConvergenceError):
            return None
        return self.refusal is None

    @cached_property
    def twin(self) -> "Twin":
        """The data, separable and compatible, on which training is the same; see :class:`Twin`.

        This is the theory's answer where there is a :attr:`refusal`: which pairs are won, and in
        which direction, and which stay finite, and where.

        Raises
        ------
        ConvergenceError
            Which pairs can be won was not proved, or not in time, or memory is not enough:
            contexts × tokens are more than 2²⁶, or, with token embeddings, these times the entries
            of ``W``; or so many pairs tie beside those that are won that the direction of these is
            not looked for.
        ValueError
            The tied subspace is too large, see :func:`ntpnb.equal_subspace`.
        """
        return _twin_of(self)

    def require_max_margin(self) -> MarginSolution:
        """Return :attr:`max_margin`, or raise the :attr:`refusal`.

        Returns
        -------
        MarginSolution

        Raises
        ------
        NotSeparableError
            The strict orders cannot all hold, so that no max-margin direction exists.
        ConvergenceError
            It is undecided whether one exists.

        Examples
        --------
        >>> import ntpnb
        >>> bias = ntpnb.implicit_bias(ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]]))
        >>> bias.max_margin is None
        True
        >>> bias.require_max_margin()  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        ...
        ntpnb.basics.errors.NotSeparableError: no W keeps all 2 strict pairs at a positive margin
        """
        answer = self._max_margin_or_refusal
        if isinstance(answer, MarginSolution):
            return answer
        raise answer

    def __repr__(self) -> str:
        """Name the data and what is known of them so far; nothing is computed for it."""
        known = self._shown()
        parts = [f"{name}: {text}" for name, text in known.items() if name != "data"]
        return f"{type(self).__name__}({', '.join([known['data'], *parts])})"

    def _shown(self) -> dict[str, str]:
        """The data, and what is known of them so far, in a few words each."""
        known = vars(self)  # where a cached property appears once it has been computed
        tied = "not asked yet"
        if "finite_part" in known:
            tied = "compatible" if self.finite_part.compatible else "not compatible"
        margin = "not asked yet"
        if "_max_margin_or_refusal" in known:
            answer = self._max_margin_or_refusal
            if isinstance(answer, MarginSolution):
                margin = f"norm {answer.norm:.4g}"
            elif isinstance(answer, NotSeparableError):
                margin = "refused, not separable"
            else:
                margin = "undecided"
        return {"data": repr(self.data), "finite part": tied, "max margin": margin}


class Twin(ImplicitBias):
    """The separable and compatible data on which training is the same (``implicit_bias(…).twin``).

    The distributions of a dataset enter the loss through one matrix, ``M = Σ_j π_j Σ_z p_jz t_z
    h_jᵀ``. Data with other distributions and the same ``M`` have the same gradient at every ``W``
    and train alike, step by step. Among them the twin is the one that is separable and compatible:

    - *Pairs that stay finite.* A strict pair ``k = (g, i, j)`` has ``D_k = (t_i − t_j) h_gᵀ``. It
      contradicts others if it has a positive weight in some certificate, ``λ ≥ 0`` with
      ``(I − P_F) Σ_k λ_k D_k = 0``. These pairs join the ties, and so the tied subspace grows to
      ``F' = F + span{D_k}`` of them.
    - *Pairs that are won.* All others: some ``W`` has ``⟨D_k, W⟩ ≥ 1`` on each of these and zero on
      ties and on the pairs that stay finite, which it does not touch. ``max_margin`` is the
      smallest one, ``W^mm`` of the twin; zero where no pair is won.
    - *The finite part.* ``W*`` minimises over ``F'`` the loss restricted, in each context, to the
      tokens that follow, tie, or stay finite. The probabilities that it gives to these are the
      twin's distributions ``q_j``.

    So training on the data, by gradient descent with steps of at most ``1/(2L)``, tends to
    ``P_F' W → W*`` and, if any pair is won, to the direction ``W^mm``. The loss tends to
    :attr:`loss_limit`: the twin's entropy, where no candidate counts.

    *Proof.* Certificates add up, so that one of them, ``λ``, is positive on all pairs that any
    contains; by the theorem of the alternative (Tucker's strict form of Farkas' lemma) a ``W`` as
    above exists for the others. At ``W*`` the restricted loss has no slope within ``F'``, and its
    gradient, ``M(q) − M(p)``, lies in ``F'``; so it vanishes and ``M(q) = M(p)``. The twin's
    strict pairs are the ones that are won, so that it is separable, and ``W*`` meets its log-odds,
    so that it is compatible. T24's theorems hold for it, and what they say of its training is said
    of the data's.

    A twin is an :class:`ImplicitBias`, of the twin's data: whatever takes a bias takes it, such as
    :func:`ntpnb.compare`, :func:`ntpnb.gradient_flow` and :func:`ntpnb.regularization_path`, which
    refuse data that are not separable. Data that are separable and compatible are their own twin.

    Parameters
    ----------
    data : NextTokenData
        The twin's.
    original : NextTokenData
    correction : float
        See the attributes.

    Attributes
    ----------
    data : NextTokenData
        The original data with the target probabilities ``q``.
    original : NextTokenData
        The data whose twin this is.
    original_order : TokenPriority
        Their order, to whose ``strict`` the certificate and the pairs belong.
    certificate : ndarray, shape (len(original_order.strict),)
        ``λ``, positive exactly on the pairs that stay finite, with sum one; all zero where every
        pair is won. ``λ_k`` is in proportion to the probability ``π_j q_jv`` that the loser ``v``
        of the pair has in the twin.
    residual : float
        Proof that the finite pairs contradict each other: ``‖M(q) − M(p)‖``, over the sum of
        ``π_j q_jv ‖h_j‖ max_u ‖t_u‖`` over the losers. It is at most 1e-8, and below 1e-12 as a
        rule, which is rounding. A ``W`` that meets all ties keeps the finite pairs at a mean
        margin, with the weights ``λ``, of at most this times ``‖W‖ max_j ‖h_j‖ max_u ‖t_u‖``.
        Smaller margins are not ruled out by it.
    correction : float
        The share by which the last of Newton's steps would change any ``q_jv``, so that positive
        weights are positive beyond doubt: below 1e-2, and 1e-8 as a rule.

    Raises
    ------
    TypeError
        ``data`` is no dataset.

    References
    ----------
    Z. Ji and M. Telgarsky, The implicit bias of gradient descent on nonseparable data (COLT 2019),
    for two classes: the maximal separable part gives the direction, the rest a finite offset.
    A. Albert and J. A. Anderson, On the existence of maximum likelihood estimates in logistic
    regression models (Biometrika 1984). T24 (002) Thms 1–2 on the twin.

    Examples
    --------
    Two contexts with one embedding contradict each other about the tokens 0 and 1, which therefore
    tie, and agree that token 2 loses:

    >>> import ntpnb
    >>> data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0, 0], [0, 1, 0]])
    >>> twin = ntpnb.implicit_bias(data).twin
    >>> twin.finite.tolist(), twin.won.tolist()
    ([[0, 0, 1], [1, 1, 0]], [[0, 0, 2], [1, 1, 2]])
    >>> twin.data.target_probs.round(6).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]
    >>> twin.max_margin.W.round(6).tolist()
    [[0.333333], [0.333333], [-0.666667]]
    >>> bool(twin.residual < 1e-12)
    True
    """

    def __init__(
        self, data: NextTokenData, original: NextTokenData, correction: float = 0.0
    ) -> None:
        super().__init__(data)
        self.original = original
        self.correction = correction

    def _checked(self) -> Self:
        """The twin that a file describes; what proves the finite pairs is computed anew."""
        require_type("Twin.original", self.original, NextTokenData)
        probs = self.data.context_probs
        common = {"target_probs": self.data.sparse_target_probs, "context_probs": probs}
        # Those of the twin were divided once more by their sum, which is one but for rounding.
        moved = np.abs(probs - self.original.context_probs).max()
        are_same = _are_same(*(x.replace(**common) for x in (self.data, self.original)))
        if not (are_same and moved <= VANISHES):
            raise ValueError("Twin.data and Twin.original differ in more than distributions")
        at_zero = np.zeros(self.data.shape)
        slope = gradient(at_zero, self.original)
        missed = np.linalg.norm(gradient(at_zero, self.data) - slope)
        if not missed <= HALF_THE_DIGITS * largest_gradient(self.data, self.data.context_probs):
            raise ValueError("Twin.data do not train as Twin.original do")
        if not 0 <= self.correction <= SETTLED:
            raise ValueError(f"Twin.correction is {self.correction!r}; a small share is needed")
        given, kept = (x.sparse_target_probs > 0 for x in (self.original, self.data))
        if (given > kept).nnz:
            raise ValueError("Twin.data lack tokens that follow in Twin.original")
        checked = super()._checked()
        # Gradients know nothing of candidate counts; they decide which distributions some W has.
        if self.data.candidate_counts is not None and not checked.finite_part.compatible:
            raise ValueError("Twin.data are not compatible with their candidate counts")
        return checked

    @cached_property
    def original_order(self) -> TokenPriority:
        """The order of ``original``, to whose ``strict`` the certificate and the pairs belong."""
        return token_priority(self.original)

    @cached_property
    def _contradiction(self) -> Contradiction:
        return contradiction(self.original, self.original_order, self.data.target_probs)

    @property
    def certificate(self) -> FloatArray:
        """``λ``, positive exactly on the pairs that stay finite; see the class."""
        return self._contradiction.certificate

    @property
    def residual(self) -> float:
        """Proof that the finite pairs contradict each other; see the class."""
        return self._contradiction.residual

    @property
    def won(self) -> IntArray:
        """The strict pairs of the original data that are won, as rows ``(group, i, j)``."""
        pairs: IntArray = self.original_order.strict[self.certificate == 0]
        return pairs

    @property
    def finite(self) -> IntArray:
        """The strict pairs of the original data that stay finite, as rows ``(group, i, j)``."""
        pairs: IntArray = self.original_order.strict[self.certificate > 0]
        return pairs

    @cached_property
    def loss_limit(self) -> float:
        """What the loss of the original data tends to, in nats.

        That of the twin differs from it by a number that no ``W`` changes, zero without candidate
        counts: by ``Σ_j π_j Σ_v (q_jv − p_jv) log c_jv``. Zero weights tell it.
        """
        zero = np.zeros(self.data.shape)
        apart = cross_entropy(zero, self.original) - cross_entropy(zero, self.data)
        return self.data.entropy + float(apart)

    @property
    def twin(self) -> "Twin":
        """The twin of a twin is itself."""
        return self


def _are_same(data: NextTokenData, other: NextTokenData) -> bool:
    """Whether two datasets hold the same numbers, whatever their rows are called."""
    return written(data.replace()) == written(other.replace())


def _require_certificate(
    data: NextTokenData, order: TokenPriority, refusal: NotSeparableError
) -> None:
    """Raise ``ValueError`` unless a refusal that was read proves what it says of the data."""
    weights = as_array("the certificate", refusal.certificate, ndim=1, shape=(len(order.strict),))
    if (weights < 0).any() or not weights.any():
        raise ValueError("the certificate needs weights that are nonnegative and not all zero")
    found = refusal.pair_weights
    if found is not None and not np.array_equal(order.strict[found.positions], found.pairs):
        raise ValueError("the certificate's pairs are not those at its positions")
    combined = combined_pairs(data, order, np.append(np.zeros(len(order.equal)), weights))
    lengths = pair_lengths(data, order)[len(order.equal) :]
    size = weights @ positive_norms(lengths[:, None])
    left_over = equal_subspace(data, order).reject(combined)
    if not np.linalg.norm(left_over) <= HALF_THE_DIGITS * size:
        raise ValueError("the certificate proves nothing: its pairs do not contradict each other")


@one_thread
def _twin_of(bias: ImplicitBias) -> Twin:
    """Find the twin, and hand over what is known of it already."""
    if bias.separable:
        return _twin_of_separable(bias)
    require_memory(bias.data)  # before there is an order, which may be large
    watch = bias._watch
    found = partition_pairs(bias.data, bias.order, watch)
    return _knowing(
        Twin(found.twin, bias.data, found.correction),
        bias,
        order=found.order,
        _max_margin_or_refusal=found.svm,
        _contradiction=found.contradiction,
    )


def _twin_of_separable(bias: ImplicitBias) -> Twin:
    """The twin where every pair is won: only the distributions may change."""
    data = bias.data
    known: dict[str, Any] = {"order": bias.order, "_max_margin_or_refusal": bias.max_margin}
    if bias.finite_part.compatible:
        known["finite_part"] = bias.finite_part
    else:
        tied = restrict(data, bias.order)
        data = data.replace(target_probs=softmax(logits(bias.finite_part.W, tied), axis=1))
    return _knowing(Twin(data, bias.data), bias, **known)


def _knowing(twin: Twin, bias: ImplicitBias, **known: Any) -> Twin:
    """A twin that need not compute what was found on the way to it."""
    vars(twin).update(known, original_order=bias.order, _watch=bias._watch)
    return twin


def implicit_bias(
    data: NextTokenData | ImplicitBias,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> ImplicitBias:
    """Return what next-token training on ``data`` tends to, computed once and on demand.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
        A bias is returned as it is.
    seconds : float, optional
        Time limit of all that is computed, counted from the first part that is asked for; beyond it
        separability is undecided. Default: none.
    progress : callable, optional
        Called with a line of text that says what is known; what it raises ends the computation.

    Returns
    -------
    ImplicitBias
        With ``order``, ``finite_part`` and ``max_margin`` (or ``refusal``), and ``twin``, which
        answers also where the data are not separable. The functions
        :func:`ntpnb.gradient_flow`, :func:`ntpnb.regularization_path`, :func:`ntpnb.ridge_path`,
        :func:`ntpnb.next_order_term`, :func:`ntpnb.adam_metric`, :func:`ntpnb.compare` and
        :func:`ntpnb.report` take it in place of the data, and then compute nothing twice.

    Raises
    ------
    TypeError
        Anything else than data or a bias, a limit that is no number, or a ``progress`` that cannot
        be called.
    ValueError
        A negative limit, or limits for a bias, which is made already.

    References
    ----------
    T24 (002) Thms 1–2; L24 (004) Thms 1–4.

    Examples
    --------
    >>> import ntpnb
    >>> bias = ntpnb.implicit_bias(ntpnb.datasets.toy())
    >>> round(bias.max_margin.norm, 4)
    2.2627
    >>> bias  # doctest: +NORMALIZE_WHITESPACE
    ImplicitBias(NextTokenData(3 contexts, 5 tokens, W: 5 × 2, H = 0.8811 nats),
                 finite part: not asked yet, max margin: norm 2.263)
    >>> flow = ntpnb.gradient_flow(bias, [0.0, 10.0, 100.0])
    >>> flow.compare(bias).angle.round(2)
    array([0.8 , 0.16, 0.01])
    """
    if not isinstance(data, ImplicitBias):
        return ImplicitBias(data, seconds=seconds, progress=progress)
    if seconds is not None or progress is not None:
        raise ValueError("seconds and progress are given where a bias is made; data is one already")
    return data
