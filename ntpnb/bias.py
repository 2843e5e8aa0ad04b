"""Everything the theory says of a dataset, each part computed once, when asked for."""

from functools import cached_property

from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import max_margin
from ntpnb.problem.data import NextTokenData, require_data
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.tied.finite import FinitePart, finite_part
from ntpnb.tied.subspace import EqualSubspace


class ImplicitBias:
    """What next-token training on a dataset tends to (made by :func:`implicit_bias`).

    Where the data are separable and some token is strictly dominated, the weights of training grow
    without bound along the max-margin direction ``W^mm``. Their part in the tied subspace F settles
    at the finite part ``W*``. Each of the two is computed when it is first asked for and then kept,
    so that one object can be handed to everything that needs the theory.

    Parameters
    ----------
    data : NextTokenData

    Attributes
    ----------
    data : NextTokenData

    Raises
    ------
    TypeError
        Anything else than data.

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

    def __init__(self, data: NextTokenData) -> None:
        require_data("data", data)
        self.data = data

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
        return finite_part(self.data, order=self.order)

    @property
    def equal_subspace(self) -> EqualSubspace:
        """The tied subspace F that holds :attr:`finite_part`; it raises what that raises."""
        return self.finite_part.subspace

    @cached_property
    def _max_margin_or_refusal(self) -> MarginSolution | NotSeparableError | ConvergenceError:
        try:
            return max_margin(self.data, order=self.order)
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
        return f"ImplicitBias({self.data!r}, finite part: {tied}, max margin: {margin})"


def implicit_bias(data: NextTokenData | ImplicitBias) -> ImplicitBias:
    """Return what next-token training on ``data`` tends to, computed once and on demand.

    Parameters
    ----------
    data : NextTokenData or ImplicitBias
        A bias is returned as it is.

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
        Anything else than data or a bias.

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
    return data if isinstance(data, ImplicitBias) else ImplicitBias(data)
