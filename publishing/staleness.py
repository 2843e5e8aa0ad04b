"""Staleness: the key of a notebook's sources, and which notebooks must run because it changed.

The key covers what a notebook's outputs depend on and nothing else, so that a corrected docstring,
a reworded claim or a change to a page of the book runs nothing again.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ntpnb_book import claims, output
from ntpnb_book.comparisons import comparison
from publishing import keys, project
from publishing.dependencies import PACKAGES, Packages
from publishing.syntax import shows_docstrings


@dataclass(frozen=True)
class Sources:
    """The sources of the book as they lie there now, each read at most once.

    Parameters
    ----------
    root : Path
        The checkout.
    """

    root: Path

    @cached_property
    def packages(self) -> Packages:
        """The modules of ``ntpnb`` and ``ntpnb_book``."""
        return Packages(self.root)

    @cached_property
    def shared(self) -> list[str]:
        """What every notebook depends on: the locked environment and the packages' data."""
        lock = self.root / "requirements.lock"
        data = sorted(path for name in PACKAGES for path in self.root.glob(f"{name}/data_files/*"))
        names = [path.relative_to(self.root).as_posix() for path in [lock, *data]]
        return [f"{name} {_digest(self.root / name)}" for name in names]

    def key(self, name: str) -> str:
        """Hash the sources of a notebook; 64 hexadecimal digits.

        They are its text, what `check` reads of its claims, the locked environment, the packages'
        data, and the normalised syntax trees of the modules of ours that its cells can reach.

        Raises
        ------
        ValueError
            Where the claims are malformed.
        SyntaxError
            Where a module is.
        """
        cells = project.code_cells(name, self.root)
        reach = self.packages.reach(cells)
        modules = [self.packages.modules[module] for module in sorted(reach.modules)]
        docstrings = shows_docstrings("\n".join(cells)) or any(
            module.shows_docstrings for module in modules
        )
        parts = [
            f"text {_digest(project.source(name, self.root))}",
            f"claims {json.dumps(self._claims(name), sort_keys=True)}",
            *self.shared,
            *sorted(reach.definitions),
        ]
        for module in modules:
            form = module.documented_form if docstrings else module.form
            parts.append(f"module {module.name} {form}")
        # Lengths keep one part's end from being read as the next one's beginning.
        lines = [f"{len(part)} {part}\n" for part in parts]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _claims(self, name: str) -> list[dict[str, object]]:
        """Return what `check` reads of a notebook's claims, and no word that only pages show."""
        path = project.claims(name, self.root)
        listed = claims.read(path) if path.exists() else []
        return [
            {
                "id": claim["id"],
                "expect": comparison(claim["expect"]),
                "show": claim.get("show"),
            }
            for claim in sorted(listed, key=lambda claim: str(claim["id"]))
        ]


def _digest(path: Path) -> str:
    """Hash a file; one that is not there has its own value."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "missing"


def key(name: str, root: Path = output.ROOT) -> str:
    """Hash the sources of a notebook as they lie there now; see `Sources.key`."""
    return Sources(Path(root)).key(name)


def outdated(names: Iterable[str], root: Path = output.ROOT) -> dict[str, str]:
    """Say of which notebooks the executed file is not what the sources give, and why.

    Returns
    -------
    dict
        A reason by the name of the notebook; those that are up to date are left out.
    """
    sources = Sources(Path(root))
    known = keys.recorded(root)
    reasons = {}
    for name in names:
        if not project.read_executed(name, root)["cells"]:
            reasons[name] = "never executed"
        elif name not in known:
            reasons[name] = "not known to be executed from these sources"
        elif known[name] != sources.key(name):
            reasons[name] = "its text, its claims, what it imports or the environment changed"
    return reasons
