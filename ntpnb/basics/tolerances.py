"""What counts as rounding, and what a table may take of memory: for all rooms the same numbers.

A product of rows whose lengths are one is wrong by a few ``eps``, 2e-16. What is computed from such
products once is compared with :data:`STOP`; what has been through the factor of a system, with
:data:`ACCEPT`. Neither is ever what an answer is believed for: residuals are computed again from
the data, and are part of the answer.
"""

import numpy as np

STOP = 1e-13
"""Relative residual of rounding: the sum of some hundred products."""

VANISHES = 1e-12
"""Size of a sum relative to its terms that counts as rounding of zero, also after some systems."""

ACCEPT = 1e-10
"""Relative residual of a solution whose system was ill-conditioned by six digits."""

CLEAR_MARGIN = 1e-6
"""Margin, relative to the norms of ``W`` and the pairs, that is far above rounding.

Data whose best margin is smaller are decided by the max-margin solution instead.
"""

PROX = 1e-10
"""Weight ``θ`` of a term ``½ θ ‖A − centre‖²`` that is added to the margin's dual problem.

It makes every system definite. Its pull ends where the centre reaches the solution, so it costs no
accuracy: the active set moves the centre there, and the interior point takes its current dual for
it.
"""

WHOLE = 2**24
"""Entries of a table that may be held whole, of contexts and tokens, or of contexts and contexts.

A few such tables are held at one time, of 128 MiB each. Of more entries blocks are formed.
"""

HELD = 4 * WHOLE
"""Numbers that may be held beside an answer (512 MiB): gathered rows, factors, a basis.

It is a quarter of the largest dense array, see ``validation``. Whatever needs more is computed
again each time, done without, or refused.
"""

EPS = float(np.finfo(float).eps)
"""Distance from one to the next float: one operation is wrong by half of it."""


def decomposition_error(num_rows: int) -> float:
    """Error of the singular values of unit rows, relative to the largest, and of eigenvalues.

    Singular values below it are zero. A singular vector is off by an angle of this error over its
    singular value, which is relative to the largest too.

    Examples
    --------
    >>> from ntpnb.basics.tolerances import decomposition_error
    >>> decomposition_error(100) < 1e-13
    True
    """
    return float(10 * EPS * np.sqrt(num_rows))


UNCLEAR = decomposition_error(1) ** 0.25
"""Largest angle by which rounding may turn what is still an answer: 2e-4, a quarter of all digits.

Singular values of 1e-11, relative to the largest, are just clear. Those between that and rounding
are neither zero nor known, and are refused.
"""

HALF_THE_DIGITS = 1e-8
"""Relative size of what has lost half of its digits, or whose square is rounding.

Newton's method may end with a correction of that size, since the next one is its square. A proof
that leaves over less counts as one, for whoever reads it has to compute it again. Log-odds in nats
that differ by less are the same, and so is a matrix that is off a subspace by less.
"""

NEGLIGIBLE = 1e-9
"""What is smaller, relative to the whole that it is part of, counts as nothing.

So it is with a multiplier among all of them, a probability, a singular value beside the largest.
"""

NEWTON_STEPS = 200
"""Steps of a Newton's method that has not settled after them, and will not: some tens are usual."""
