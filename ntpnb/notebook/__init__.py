"""What a chapter of the book imports: measuring claims, quoting numbers, drawing and saving.

`ledger` measures claims, `vocabulary` holds the small mathematics that chapters share, `drawing`
what their pictures share, and `figures` the style and saving with the data behind a figure. Nothing
in the mathematics imports this package; what only the build of the book needs is in `publishing`.
"""

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
    if name not in ("drawing", "figures"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ntpnb.notebook.extras import needs_book_extra

    # Not `from … import`, which would ask this function again.
    with needs_book_extra(f"ntpnb.notebook.{name}"):
        if name == "drawing":
            import ntpnb.notebook.drawing

            return ntpnb.notebook.drawing
        import ntpnb.notebook.figures

        return ntpnb.notebook.figures
