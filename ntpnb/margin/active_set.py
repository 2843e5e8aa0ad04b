"""The primal-dual active set method: a few exact Newton steps, where its guesses settle."""

from collections.abc import Iterator

import numpy as np

from ntpnb.basics.array_types import BoolArray, FloatArray
from ntpnb.basics.tolerances import EPS, PROX
from ntpnb.margin.normal_form import GuessSolver, Iterate, MarginProgram

PATIENCE = 3
"""Rounds in a row that may be no better than those before."""


def active_set(
    program: MarginProgram,
    dual: FloatArray | None = None,
    tight: BoolArray | None = None,
) -> Iterator[Iterate]:
    """Guess the tight constraints, solve their equations, exchange all that are wrong.

    Where systems are iterated, guesses are rough as long as some are wrong: equations are solved
    and guesses judged to the relative accuracy ``program.rough``.

    The equations have a proximal term, which makes them definite (see ``PROX``). Once no guess is
    wrong, the term's centre moves to the solution of the equations, and they are solved again: this
    refines the solution to the last digit. Without a solution, each such move goes about as far as
    the one before it, and its direction tends to a certificate.

    It ends after :data:`PATIENCE` rounds without progress. Progress is fewer wrong guesses than
    ever before; where none is wrong, it is the first time, or a move of the centre less than half
    as far as any before.

    Parameters
    ----------
    program : MarginProgram
    dual : ndarray, optional
        Where to begin, and the first centre. Default: zero.
    tight : ndarray of bool, optional
        The first guess; all tied entries are in it. Default: every constraint is tight.
    """
    if dual is None:
        dual = np.zeros(len(program))
    if tight is None:
        tight = np.full(len(program), True)
    centre = dual
    common = program.zero_common()
    solver: GuessSolver | None = None
    rough = program.rough
    fewest_wrong = len(program) + 1
    smallest_move = np.inf
    rounds_stalled = 0
    new_guess = False

    while rounds_stalled < PATIENCE:
        if solver is None or new_guess:
            solver = program.guess_solver(tight)
            dual = np.where(tight, dual, 0.0)
        accuracy = max(rough, EPS * np.sqrt(len(program))) * max(1.0, np.abs(dual).max())
        # The second time what rounding left: θ is so small that inverses cancel.
        for _ in range(1 if rough else 2):
            residual = program.slack(program.weights(dual), common) - PROX * (dual - centre)
            newton = solver(residual, -program.column_sums(dual), accuracy)
            dual = dual + newton.step
            common = common + newton.common

        slack = program.slack(program.weights(dual), common)
        noise = max(rough, 1e-14) * max(1.0, np.abs(dual).max())
        wrong_sign = tight & (dual > noise)
        # Where the dual is zero, slack + PROX * centre is minus the gradient of the dual problem
        # with its proximal term. If it is negative, descent leads below zero: the constraint is
        # tight.
        violated = ~tight & (slack + PROX * centre < -noise)
        wrong = program.ordered & (wrong_sign | violated)
        num_wrong = int(np.count_nonzero(wrong))
        move = float(np.abs(dual - centre).max())
        if rough and num_wrong == 0:
            # The centre as near to the solution as it may be, the term pulls no more than rounding.
            rough = 0.0
            centre = dual
            new_guess = False
            continue
        if num_wrong:
            yield Iterate(dual, common, direction=None)
        else:
            yield Iterate(dual, common, direction=dual - centre, settled=True)

        if num_wrong:
            progress = num_wrong < fewest_wrong
            fewest_wrong = min(fewest_wrong, num_wrong)
            tight = tight ^ wrong
        else:
            progress = bool(move < smallest_move / 2)
            fewest_wrong = 0
            smallest_move = min(smallest_move, move)
            centre = dual
        new_guess = num_wrong > 0
        rounds_stalled = 0 if progress else rounds_stalled + 1
