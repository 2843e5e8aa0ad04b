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


def fista(program: MarginProgram) -> Iterator[Iterate]:
    """Accelerated projected gradient steps, finished by an active set.

    An iterate is yielded after every ``INTERVAL`` steps. The active set is tried ever more rarely,
    as it costs factorisations; apart from it, a few copies of the dual are all the memory that is
    needed. Iterates have no common scores, since the projection does without them.
    """
    length = int(program.rhs.size**0.5)  # the side, if the dual were square
    num_steps = max(200, 4 * length)
    next_polish = 20 + length // 3
    first_step = program.gradient_step(np.zeros(program.rhs.shape, np.float32))
    projection = program.project(first_step, program.domain)
    previous = projection.dual
    extrapolated = projection.dual
    momentum = 1.0
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
        if k == next_polish:
            next_polish *= 2
            yield from active_set(program, dual.astype(np.float64), projection.below, patience=2)
        uphill = np.vdot(extrapolated - dual, move) > 0
        if uphill:
            momentum = 1.0  # restart
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        extrapolated = dual + (momentum - 1) / next_momentum * move
        momentum = next_momentum
        previous = dual
