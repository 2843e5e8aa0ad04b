"""FISTA, accelerated projected gradient on the dual: many cheap steps that need no factors.

Beck & Teboulle (2009), with the restarts of O'Donoghue & Candès (2015).
"""

from collections.abc import Iterator

import numpy as np

from ntpnb.margin.active_set import active_set
from ntpnb.margin.iterate import Iterate
from ntpnb.margin.normal_form import MarginProgram

SINGLE = 40
"""Steps in single precision (by supports): as good at first, and twice as fast."""

INTERVAL = 40
"""Steps from one iterate that is yielded to the next."""

SETTLED = 0.01
"""Share of a guess of the tight constraints that may change in an interval before a dear factor."""

MOST_STEPS = 4000
"""Steps where factors are dear: at the edge of separability a guess settles late."""

FIRST_STEPS = 20
"""Steps before an active set may be tried; from then on it waits for as many as it costs."""


def fista(program: MarginProgram) -> Iterator[Iterate]:
    """Accelerated projected gradient steps, finished by an active set.

    An iterate is yielded after every ``INTERVAL`` steps. The active set is tried once steps have
    taken as long as one of its systems does, and after each failure when their number has doubled;
    apart from it, a few copies of the dual are all the memory that is needed. Iterates have no
    common scores, since the projection does without them.
    """
    length = int(program.rhs.size**0.5)  # the side, if the dual were square
    num_steps = MOST_STEPS if program.has_dear_factors else max(200, 4 * length)
    next_polish = FIRST_STEPS
    first_step = program.gradient_step(np.zeros(program.rhs.shape, np.float32))
    projection = program.project(first_step, program.domain)
    previous = projection.dual
    extrapolated = projection.dual
    momentum = 1.0
    guess = projection.below
    is_settled = not program.has_dear_factors
    for k in range(1, num_steps + 1):
        projection = program.project(program.gradient_step(extrapolated), projection.below)
        dual = projection.dual
        if k == SINGLE:
            dual = dual.astype(np.float64)  # and with it all that follows
        move = dual - previous
        if k % INTERVAL == 0:
            yield Iterate(
                dual=dual.astype(np.float64),
                common=program.zero_common(),
                direction=move.astype(np.float64),
            )
            if program.has_dear_factors:
                num_changed = np.count_nonzero(projection.below != guess)
                is_settled = bool(num_changed <= SETTLED * np.count_nonzero(guess))
                guess = projection.below
        affordable = FIRST_STEPS + program.newton_cost(projection.below)
        if is_settled and k >= max(next_polish, affordable):
            next_polish = 2 * k
            yield from active_set(program, dual.astype(np.float64), projection.below, patience=2)
        uphill = np.vdot(extrapolated - dual, move) > 0
        if uphill:
            momentum = 1.0  # restart
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        extrapolated = dual + (momentum - 1) / next_momentum * move
        momentum = next_momentum
        previous = dual
