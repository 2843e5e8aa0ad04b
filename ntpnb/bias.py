"""Everything the theory says of a dataset, each part computed once, when asked for."""

from functools import cached_property

from ntpnb.errors import ConvergenceError, NotSeparableError
from ntpnb.margin.solve import MarginSolution, max_margin
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import TokenPriority, token_priority
from ntpnb.tied.finite import FinitePart, finite_part


class ImplicitBias:
    """What next-token training on a dataset tends to (see :func:`implicit_bias`).

    Attributes
    ----------
    data : NextTokenData
    """

    def __init__(self, data: NextTokenData) -> None:
        self.data = data

    @cached_property
    def order(self) -> TokenPriority:
        """Which tokens must tie and which must win."""
        return token_priority(self.data)

    @cached_property
    def finite_part(self) -> FinitePart:
        """Where training settles on the tied tokens."""
        return finite_part(self.data)

    @cached_property
    def _max_margin(self) -> MarginSolution | NotSeparableError | ConvergenceError:
        try:
            return max_margin(self.data)
        except (NotSeparableError, ConvergenceError) as refusal:
            return refusal

    @property
    def max_margin(self) -> MarginSolution | None:
        """Where training goes on everything else; None where there is a :attr:`refusal`."""
        answer = self._max_margin
        return answer if isinstance(answer, MarginSolution) else None

    @property
    def refusal(self) -> NotSeparableError | ConvergenceError | None:
        """The proof that the data are not separable, or why that is undecided; else None."""
        answer = self._max_margin
        return None if isinstance(answer, MarginSolution) else answer

    def require_max_margin(self) -> MarginSolution:
        """Return :attr:`max_margin`, or raise the :attr:`refusal`."""
        answer = self._max_margin
        if isinstance(answer, MarginSolution):
            return answer
        raise answer


def implicit_bias(data: NextTokenData | ImplicitBias) -> ImplicitBias:
    """Return what next-token training on ``data`` tends to."""
    return data if isinstance(data, ImplicitBias) else ImplicitBias(data)
