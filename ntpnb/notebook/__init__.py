"""The book's machinery: what a notebook needs to check, draw and quote its results.

`ledger` measures claims, `figures` draws and saves, `runner` executes the notebooks and `collect`
turns them into the scoreboard and the other generated pages. Nothing in the mathematics imports
this package.
"""

from ntpnb.notebook import figures
from ntpnb.notebook.ledger import check, glue

__all__ = ["check", "figures", "glue"]
