"""What a method yields at every step, for others to judge."""

from dataclasses import dataclass

from ntpnb.array_types import FloatArray


@dataclass(frozen=True, eq=False)
class Iterate:
    """A step of a method on a :class:`~ntpnb.margin.normal_form.MarginProgram`.

    ``A`` and ``c`` are those of the text of :mod:`ntpnb.margin.normal_form`.

    Attributes
    ----------
    dual : ndarray
        ``A``, which may still miss its constraints.
    common : ndarray
        ``c``, the common scores that go with it; zeros where the method works without them.
    direction : ndarray or None
        The direction in which ``dual`` grows. If the problem has no solution, the dual is unbounded
        and this direction tends to a certificate of it. None while the method is still guessing:
        then ``dual`` is no candidate for the solution, nor is its growth one for a certificate. Its
        ``W`` may separate the data all the same.
    settled : bool
        Whether the method takes ``dual`` for the solution, but for rounding. A claim, to be
        checked.
    """

    dual: FloatArray
    common: FloatArray
    direction: FloatArray | None
    settled: bool = False
