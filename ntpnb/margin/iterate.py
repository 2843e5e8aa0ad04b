"""What a method yields at every step, for others to judge."""

from dataclasses import dataclass

from ntpnb.array_types import FloatArray


@dataclass(frozen=True, eq=False)
class Iterate:
    """A step of a method on a :class:`~ntpnb.margin.normal_form.MarginProgram`.

    Attributes
    ----------
    dual : ndarray
        ``A``, which may still miss its constraints.
    common : ndarray
        ``c``, the common scores that go with it.
    direction : ndarray or None
        The direction in which ``dual`` grows. If the problem has no solution, the dual is unbounded
        and this direction tends to a certificate of it. None while the method is still guessing:
        then neither ``dual`` nor its growth proves anything.
    settled : bool
        Whether the method takes ``dual`` for the solution, but for rounding.
    """

    dual: FloatArray
    common: FloatArray
    direction: FloatArray | None
    settled: bool = False
