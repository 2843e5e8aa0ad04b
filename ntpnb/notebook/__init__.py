"""What a chapter of the book imports: measuring claims, quoting numbers, drawing and saving.

`ledger` measures claims, `figures` draws and saves with the data behind a figure. Nothing in the
mathematics imports this package; what only the build of the book needs is in `publishing`.
"""

from typing import TYPE_CHECKING

from ntpnb.notebook.ledger import check, glue

if TYPE_CHECKING:
    from ntpnb.notebook import figures

__all__ = ["check", "figures", "glue"]


def __getattr__(name: str) -> object:
    """Load `figures` when it is first asked for: it needs matplotlib, which the ledger does not."""
    if name == "figures":
        from ntpnb.notebook.extras import needs_book_extra

        with needs_book_extra("ntpnb.notebook.figures"):
            # `from ntpnb.notebook import figures` would ask this function again.
            import ntpnb.notebook.figures as figures
        return figures
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
