"""Everything the theory says of a dataset, each part computed once, when asked for."""

from functools import cached_property
from typing import Any

from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import max_margin
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.saving import Result
from ntpnb.tied.finite import FinitePart, finite_part
from ntpnb.tied.large import is_large
from ntpnb.tied.subspace import EqualSubspace
from ntpnb.watch import Progress, Watch

TEMPORARY = {"_limits", "_watch"}  # attributes that are not pickled or saved


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
        require_data("data", data)
        self.data = data
        if seconds is not None or progress is not None:
            Watch(seconds, progress)  # explains what cannot be used
            self._limits = (seconds, progress)

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if name not in TEMPORARY}

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
    def _max_margin_or_refusal(self) -> MarginSolution | NotSeparableError | ConvergenceError:
        # As above: contradictions among few tokens are looked for without an order.
        order = None if is_large(self.data) else self.order
        watch = self._watch
        try:
            return max_margin(self.data, order=order, seconds=watch.left, progress=watch.say)
        except (NotSeparableError, ConvergenceError) as refusal:
            return refusal

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
        ntpnb.errors.NotSeparableError: no W keeps all 2 strict pairs at a positive margin
        """
        answer = self._max_margin_or_refusal
        if isinstance(answer, MarginSolution):
            return answer
        raise answer

    def __repr__(self) -> str:
        """Name the data and what is known of them so far; nothing is computed for it."""
        known = self._shown()
        parts = [f"{name}: {text}" for name, text in known.items() if name != "data"]
        return f"ImplicitBias({', '.join([known['data'], *parts])})"

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
        With ``order``, ``finite_part`` and ``max_margin`` (or ``refusal``). The functions
        :func:`ntpnb.gradient_flow`, :func:`ntpnb.regularization_path`, :func:`ntpnb.ridge_path`,
        :func:`ntpnb.next_order_term`, :func:`ntpnb.compare` and :func:`ntpnb.report` take it in
        place of the data, and then compute nothing twice.

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
