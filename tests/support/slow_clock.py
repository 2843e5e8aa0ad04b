"""A clock for tests of time limits, which must not depend on the machine."""


class Clock:
    """A clock that goes on by one second whenever somebody looks."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now
