"""The max-margin problem of both papers: solutions and refusals that carry their own proof.

``solve`` has the two public functions, and reads like this list, in this order:

- ``ntpnb.problem.equivalent`` lets one token stand for all that are never a target.
- ``separation`` looks for contradictions among few frequent tokens first, which refute real text.
- ``growing_set`` is the method: it names a first set of pairs, solves it (``one_set``, by an active
  set or an interior point), looks at all pairs, and begins again with those that were missed.
  ``proximal`` grows sets where contexts are too many for a matrix of contexts and contexts.
- ``narrow`` asks a linear program of what stays undecided and is small, as where contexts agree to
  six digits.

Underneath lie the problem as the method sees it, with its dual and all signs (``normal_form``), its
two forms (``support_program``, ``pair_program``), and the Newton system of the first
(``row_system``).
Nothing that a method claims is believed: ``solution`` turns multipliers into a ``W`` and measures
its residuals from the data alone; ``separation`` seeks proofs that the data are separable, or that
they are not, which it measures on the pairs' matrices divided by their norms.

``other_norms`` solves the same problem in other norms than Frobenius', by linear programs or, where
singular values are bounded, by an interior point (``singular_values``), and measures the solutions.
"""

from ntpnb.margin.other_norms import NormMarginSolution
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import is_separable, max_margin

__all__ = [
    "MarginSolution",
    "NormMarginSolution",
    "is_separable",
    "max_margin",
]
