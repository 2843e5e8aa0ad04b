"""What a chapter of the book imports: measuring claims, quoting numbers, drawing and saving.

`ledger` measures claims, `vocabulary` holds the small mathematics that chapters share, `drawing`
what their pictures share, and `figures` the style and saving with the data behind a figure. Nothing
in the mathematics imports this package; what only the build of the book needs is in `publishing`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from ntpnb.notebook import drawing, figures

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


def __getattr__(name: str) -> object:
    """Load what draws when it is asked for: it needs matplotlib, which the ledger does not."""
    if name in ("drawing", "figures"):
        from ntpnb.notebook.extras import needs_book_extra

        with needs_book_extra(f"ntpnb.notebook.{name}"):
            return import_module(f"ntpnb.notebook.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
