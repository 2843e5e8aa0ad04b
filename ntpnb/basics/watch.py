"""What a caller may ask of a long computation: to say how far it is, and to end in time."""

import math
import time
from collections.abc import Callable
from typing import Self

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.validation import counted, require_function, require_number

Progress = Callable[[str], object]


class OutOfTime(Exception):
    """The time that a caller allowed is over; for :meth:`Watch.check`, never for the caller."""


class TimeLeft(float):
    """What is left of a time limit, in seconds, for whoever takes ``seconds`` to quote the limit.

    Parameters
    ----------
    seconds : float
    asked : float
        What the caller allowed in all.

    Examples
    --------
    >>> from ntpnb.basics.watch import TimeLeft, Watch
    >>> Watch(TimeLeft(19.7581, asked=20)).over
    '20 seconds are over'
    """

    asked: float

    def __new__(cls, seconds: float, asked: float) -> Self:
        """Make the number with its name; ``__init__`` would be too late."""
        left = super().__new__(cls, seconds)
        left.asked = asked
        return left


class Watch:
    """A time limit, which begins with this object, and somebody who wants to be told.

    Parameters
    ----------
    seconds : float, optional
        After so many seconds :attr:`expired` is true; what is :attr:`left` of another limit is
        said by the name of that one. Default: never.
    progress : callable, optional
        Called with a line of text. What it raises ends the computation.

    Attributes
    ----------
    raised : Exception or None
        What ``progress`` has raised, which ends everything that was asked for.

    Raises
    ------
    TypeError
        ``seconds`` is no number, or ``progress`` cannot be called.
    ValueError
        ``seconds`` is negative or not finite.

    Examples
    --------
    >>> from ntpnb.basics.watch import Watch
    >>> watch = Watch(seconds=0, progress=print)
    >>> watch.say("step 1")
    step 1
    >>> watch.expired, watch.left
    (True, 0.0)
    >>> watch.stopped
    'stopped after 0 seconds'
    """

    def __init__(self, seconds: float | None = None, progress: Progress | None = None) -> None:
        if seconds is not None:
            require_number("seconds", seconds, lambda x: x >= 0, "be a nonnegative number")
        if progress is not None:
            require_function("progress", progress, "a function of one text")
        self.seconds = seconds
        self._asked = seconds.asked if isinstance(seconds, TimeLeft) else seconds
        self._progress = progress
        self.raised: Exception | None = None
        self._started = time.monotonic()

    @property
    def is_needed(self) -> bool:
        """Whether there is a limit, or somebody who wants to be told."""
        return self.seconds is not None or self._progress is not None

    @property
    def expired(self) -> bool:
        """Whether the time is over."""
        if self.seconds is None:
            return False
        return time.monotonic() - self._started >= self.seconds

    @property
    def left(self) -> TimeLeft | None:
        """Seconds that are left, zero at least; None without a limit."""
        if self.seconds is None or self._asked is None:
            return None
        left = max(0.0, self.seconds - (time.monotonic() - self._started))
        return TimeLeft(left, self._asked)

    @property
    def stopped(self) -> str:
        """How an error begins that says how far a computation came in time."""
        return f"stopped after {counted(f'{self._asked:g}', 'second')}"

    @property
    def over(self) -> str:
        """Why something stays undecided whose time is over."""
        verb = "is" if self._asked == 1 else "are"
        return f"{counted(f'{self._asked:g}', 'second')} {verb} over"

    def check(self) -> None:
        """End what runs where the time is over; who asked for it then says what is known.

        Raises
        ------
        OutOfTime
        """
        if self.expired:
            raise OutOfTime

    def say(self, text: str) -> None:
        """Pass on a line that says what is known."""
        if self._progress is not None:
            try:
                self._progress(text)
            except Exception as error:
                self.raised = error
                raise

    def tell(self, text: str) -> None:
        """Pass on a line, and end the computation where the time is over.

        For those who take a ``progress`` that may raise.

        Raises
        ------
        ConvergenceError
            The time is over; ``text`` is the last that was known.
        """
        self.say(text)
        if self.expired:
            raise ConvergenceError(f"{self.stopped}: {text}", math.inf)
