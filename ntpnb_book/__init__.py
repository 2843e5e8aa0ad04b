"""What a chapter of the book imports beside the theory, which is `ntpnb`.

Every chapter needs `ledger`, which measures claims and quotes numbers, `figures`, the style and
saving of figures with the data behind them, and `vocabulary`, the small mathematics that chapters
share. `drawing` is what their pictures share, `toy_picture` the toy of Chapter 1 as each of them
draws it, `attention_picture` the sequences, graphs and tokens of the chapters on attention.

The other modules are mathematics that one chapter needs, or a few: `twins`, data on which training
is the same; `trials`, random problems; `late_training`, what is known in advance of the end of
training (15); `features`, word and context vectors that train together (18); `geometries`, what is
measured in other norms (19); `heads`, attention with several heads, and `factors`, with keys and
queries of its own (20); `selection`, when training stays local (11); `trained_model`, a small
language model (21); `authors_runs`, what the authors of L24 released. Nothing in the theory imports
this package; what only the build of the book needs is in `publishing`.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from ntpnb_book import attention_picture, features, toy_picture
from ntpnb_book.factors import (
    FactorsTrace,
    descend_factors,
)
from ntpnb_book.geometries import (
    bowl_curvature_in_norm,
    drawn_problems,
    dual_norm,
    margin_share,
    matrix_norm,
    smoothness_in_norm,
    visible_norm,
)
from ntpnb_book.heads import (
    HeadsTrace,
    RankingFloor,
    descend_heads,
    heads_loss,
    ranking_floor,
    served_data,
)
from ntpnb_book.late_training import NextOrder, euler_bound, next_order
from ntpnb_book.ledger import check, glue
from ntpnb_book.selection import LocalBalance, local_balance
from ntpnb_book.trained_model import (
    LanguageModel,
    language_model,
    language_models,
    margin_multipliers,
)
from ntpnb_book.trials import LinearTrial, linear_trials, unit_smoothness
from ntpnb_book.twins import twin
from ntpnb_book.vocabulary import (
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
    from ntpnb_book import drawing, figures

    authors_runs: ModuleType

__all__ = [
    "FactorsTrace",
    "HeadsTrace",
    "LanguageModel",
    "LinearTrial",
    "LocalBalance",
    "NextOrder",
    "RankingFloor",
    "attention_picture",
    "authors_runs",
    "bowl_curvature_in_norm",
    "check",
    "cosine",
    "curvatures",
    "descend_factors",
    "descend_heads",
    "distance",
    "distance_to_subspace",
    "drawing",
    "drawn_problems",
    "dual_norm",
    "euler_bound",
    "features",
    "figures",
    "flat_loss",
    "frobenius_norm",
    "glue",
    "heads_loss",
    "inner",
    "language_model",
    "language_models",
    "least_norm_separator",
    "linear_separator",
    "linear_trials",
    "local_balance",
    "log_softplus",
    "margin",
    "margin_multipliers",
    "margin_share",
    "matrix_norm",
    "next_order",
    "orthogonal_part",
    "pair_matrices",
    "power_of_ten",
    "priority_graph",
    "projected_descent",
    "ranking_floor",
    "reachable",
    "served_data",
    "smoothness_in_norm",
    "toy_picture",
    "twin",
    "unit_rows",
    "unit_smoothness",
    "visible_norm",
    "weighted_pairs",
]


def __getattr__(name: str) -> object:
    """Load when it is asked for what draws, and the authors' files, which few notebooks need."""
    if name == "authors_runs":
        # No import statement: by one, every notebook would depend on the authors' files.
        return import_module("ntpnb_book.authors_runs")
    if name not in ("drawing", "figures"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ntpnb.basics.errors import needs_extra

    # Not `from … import`, which would ask this function again.
    with needs_extra("notebook", f"ntpnb_book.{name}"):
        if name == "drawing":
            import ntpnb_book.drawing

            return ntpnb_book.drawing
        import ntpnb_book.figures

        return ntpnb_book.figures
