"""The max-margin problem of both papers: solutions and refusals that carry their own proof.

``solve`` has the two public functions: which methods are tried, and what ends the search. It rests
on four layers, to be read in this order:

- ``normal_form`` states the problem as methods see it, with its dual and all signs.
  ``support_program`` and ``pair_program`` are its two forms, between which ``program`` chooses.
- ``active_set``, ``interior_point``, ``fista`` and ``reference`` are methods. Each is a generator
  of :class:`~ntpnb.margin.iterate.Iterate`, claims nothing that is believed unchecked, and may
  raise ``LinAlgError`` or ``RuntimeError`` where it runs out of digits or steps.
- ``large`` encloses the margin on the pairs in a ``working_set``; for that no program is too large.
- ``solution`` turns multipliers into a solution and measures its residuals from the data alone;
  ``separation`` seeks proofs that the data are separable, or that they are not.

``collapse`` lets one token stand for all that are never a target, before anything else is done.
``norms`` is the same problem in other norms than Frobenius', by solvers that others wrote.
``row_system`` and ``factorization`` are the linear algebra below the programs.

``nuclear`` solves another problem, for logits without fixed embeddings, by Newton's method in
``spectral_ball``; see :mod:`ntpnb.features`.
"""

from ntpnb.margin.norms import NormMarginSolution
from ntpnb.margin.solution import MarginSolution
from ntpnb.margin.solve import is_separable, max_margin

__all__ = [
    "MarginSolution",
    "NormMarginSolution",
    "is_separable",
    "max_margin",
]
