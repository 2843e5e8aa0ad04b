"""What counts as rounding, and what a table may take of memory: for all rooms the same numbers.

A product of rows whose lengths are one is wrong by a few ``eps``, 2e-16. What is computed from such
products once is compared with :data:`STOP`; what has been through the factor of a system, with
:data:`ACCEPT`. Neither is ever what an answer is believed for: residuals are computed again from
the data, and are part of the answer.
"""

STOP = 1e-13
"""Relative residual of rounding: the sum of some hundred products."""

ACCEPT = 1e-10
"""Relative residual of a solution whose system was ill-conditioned by six digits."""

TIES_MET = 1e-9
"""Score differences on ties, relative to the norm of ``W``, that count as rounding."""

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

NEGLIGIBLE = 1e-9
"""What is smaller, relative to the whole that it is part of, counts as nothing.

So it is with a multiplier among all of them, a probability, a singular value beside the largest.
"""

NEWTON_STEPS = 200
"""Steps of a Newton's method that has not settled after them, and will not: some tens are usual."""
