"""The book's machinery: what a notebook needs to check, draw and quote its results.

`ledger` measures claims, `vocabulary` holds the small mathematics that chapters share, `drawing`
what their pictures share, and `figures` the style and saving. Nothing in the mathematics imports
this package.
"""

from ntpnb.notebook import drawing, figures
from ntpnb.notebook.ledger import check, glue
from ntpnb.notebook.vocabulary import (
    cosine,
    curvatures,
    distance,
    distance_to_subspace,
    flat_loss,
    frobenius_norm,
    inner,
    least_norm_separator,
    linear_separator,
    log_softplus,
    margin,
    orthogonal_part,
    pair_matrices,
    power_of_ten,
    priority_graph,
    projected_descent,
    reachable,
    unit_rows,
    weighted_pairs,
)

__all__ = [
    "check",
    "cosine",
    "curvatures",
    "distance",
    "distance_to_subspace",
    "drawing",
    "figures",
    "flat_loss",
    "frobenius_norm",
    "glue",
    "inner",
    "least_norm_separator",
    "linear_separator",
    "log_softplus",
    "margin",
    "orthogonal_part",
    "pair_matrices",
    "power_of_ten",
    "priority_graph",
    "projected_descent",
    "reachable",
    "unit_rows",
    "weighted_pairs",
]
