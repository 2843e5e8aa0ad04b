"""One key per notebook: what its outputs come from, and whether that changed since it ran.

A notebook's outputs come from its code cells, from what `check` reads of its claims, from the
modules of ours that it can import, from the packages' data and from the locked environment. A
docstring, a comment, the layout of a module and a reworded claim change no key. Neither does a
sentence between two cells: the executed notebook then takes the new text and keeps its outputs.

The keys are committed in `book/nb/keys.txt`. Each line, ``NAME OUTPUTS TEXT CONTENT``, says from
which `Key` the executed notebook of this name came and what content it had (its sha256). So nothing
vouches for a notebook that was edited by hand, nor for one written by a run that stopped before it
noted the key. What a clone executes for itself, in `_build/nb`, has a file of keys beside it, too.
"""

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from ntpnb_book import claims, output
from ntpnb_book.comparisons import comparison
from publishing import project

PACKAGES = ("ntpnb", "ntpnb_book")
"""The theory, and what chapters import besides: a notebook can import modules of both."""

AUTHORS_RUNS = "ntpnb_book.authors_runs"
"""The module that reads the files which L24's authors released."""

REWORDED = "its text changed, but no code in it"
"""Why an executed notebook is stale that needs new words and no run."""

FILE = "keys.txt"
"""Holds the keys of the executed notebooks that lie beside it."""


@dataclass(frozen=True)
class Key:
    """Hashes of a notebook's sources, 64 hexadecimal digits each.

    ``outputs`` is that of all its outputs come from, ``text`` that of its whole hand-written text.
    """

    outputs: str
    text: str


@dataclass(frozen=True)
class Code:
    """A piece of Python."""

    tree: ast.Module

    @cached_property
    def digest(self) -> str:
        """A hash of what it does."""
        return project.digest(normal_form(self.tree).encode())

    @cached_property
    def imports(self) -> frozenset[str]:
        """The dotted names that it imports, wherever: in a function too, later or never."""
        found: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                # What is imported from a package may be a module in it.
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        return frozenset(found)


def normal_form(node: object) -> str:
    """Write a syntax tree as text that is equal for equal code, whatever its docstrings say.

    `ast.dump` writes other text from Python 3.13 on, but keys taken on one version hold on the
    others. So fields that are empty, as those are that a version does not know yet, are left out.
    """
    if isinstance(node, list):
        return f"[{', '.join(normal_form(item) for item in node if not _is_docstring(item))}]"
    if not isinstance(node, ast.AST):
        # The type keeps 1, 1.0 and True apart; `!a` escapes the same letters everywhere.
        return f"{type(node).__name__}:{node!a}"
    fields = [
        f"{name}={normal_form(value)}"
        for name, value in ast.iter_fields(node)
        if value is not None and value != []
    ]
    return f"{type(node).__name__}({', '.join(fields)})"


def _is_docstring(item: object) -> bool:
    """Say whether an item is a statement of a bare string, which does nothing in a module."""
    return (
        isinstance(item, ast.Expr)
        and isinstance(item.value, ast.Constant)
        and isinstance(item.value.value, str)
    )


@cache
def read_code(source: str, name: str = "cell") -> Code:
    """Read Python, each text once in a process; SyntaxError, which says the name, for another."""
    return Code(ast.parse(source, name))


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
    def modules(self) -> dict[str, Code]:
        """The modules of our packages by their dotted names; a package's code is its `__init__`."""
        found = {}
        for path in [path for name in PACKAGES for path in self.root.glob(f"{name}/**/*.py")]:
            parts = path.relative_to(self.root).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found[name] = read_code(path.read_text(encoding="utf-8"), name)
        return found

    @cached_property
    def shared(self) -> list[str]:
        """What every notebook depends on: the locked environment and the packages' data."""
        return self._digests("requirements.lock", *(f"{name}/data_files/*" for name in PACKAGES))

    @cached_property
    def released(self) -> list[str]:
        """What L24's authors released: only a notebook that imports its reader depends on it."""
        return self._digests("ntpnb_book/authors_files/*")

    def _digests(self, *patterns: str) -> list[str]:
        paths = [path for pattern in patterns for path in sorted(self.root.glob(pattern))]
        return [
            f"{path.relative_to(self.root).as_posix()} {_digest_of_file(path)}" for path in paths
        ]

    def importable(self, cells: Iterable[str]) -> set[str]:
        """Name the modules of ours that a notebook can import, itself or through others.

        Parameters
        ----------
        cells : iterable of str
            The code of its cells.
        """
        waiting = {name for cell in cells for name in read_code(cell).imports}
        found: set[str] = set()
        while waiting:
            name = waiting.pop()
            package = name.rpartition(".")[0]
            if package and package not in found:
                waiting.add(package)  # its `__init__` runs first
            if name in self.modules and name not in found:
                found.add(name)
                waiting |= self.modules[name].imports
        return found

    def key(self, name: str) -> Key:
        """Hash the sources of a notebook.

        Raises
        ------
        ValueError
            Where the claims are malformed.
        SyntaxError
            Where a module or a cell is.
        """
        cells = project.code_cells(name, self.root)
        modules = self.importable(cells)
        parts = [
            json.dumps(cells),
            json.dumps(self._claims(name), sort_keys=True),
            *self.shared,
            *(self.released if AUTHORS_RUNS in modules else []),
            *(f"{module} {self.modules[module].digest}" for module in sorted(modules)),
        ]
        text = project.source(name, self.root)
        return Key(project.digest("\n".join(parts).encode()), _digest_of_file(text))

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


def _digest_of_file(path: Path) -> str:
    """Hash a file; zeros for one that is not there."""
    return project.digest(path.read_bytes()) if path.exists() else 64 * "0"


def key(name: str, root: Path = output.ROOT) -> Key:
    """Hash the sources of a notebook as they lie there now; see `Sources.key`."""
    return Sources(Path(root)).key(name)


def recorded(root: Path = output.ROOT, folder: str = project.COMMITTED) -> dict[str, Key]:
    """Read the keys of a folder by the notebook's name, of those that lie there as written.

    Each line vouches for itself, so that a conflict of two branches does no harm: its marks have no
    four words, and of two lines for a notebook only one has the content that lies there.
    """
    path = Path(root) / folder / FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = {}
    for line in lines:
        match line.split():
            case [name, outputs, text, content]:
                if content == _digest_of_file(project.executed(name, root, folder)):
                    found[name] = Key(outputs, text)
    return found


def record(name: str, key: Key, root: Path = output.ROOT, folder: str = project.COMMITTED) -> None:
    """Note the key of the notebook that was just written to a folder.

    Where two processes write at once a line may be lost; its notebook runs again.
    """
    lines = [
        f"{each} {known.outputs} {known.text} "
        f"{_digest_of_file(project.executed(each, root, folder))}\n"
        for each, known in (recorded(root, folder) | {name: key}).items()
    ]
    output.write(Path(root) / folder / FILE, "".join(sorted(lines)))


def outdated(names: Iterable[str], root: Path = output.ROOT) -> dict[str, str]:
    """Say of which notebooks the executed file is not what the sources give, and why.

    Returns
    -------
    dict
        A reason by the name of the notebook; those that are up to date are left out.
    """
    sources = Sources(Path(root))
    known = recorded(root)
    reasons = {}
    for name in names:
        now = sources.key(name)
        if name not in known:
            reasons[name] = "not known to be executed from these sources"
        elif known[name].outputs != now.outputs:
            reasons[name] = "its code, its claims, what it imports or the environment changed"
        elif known[name].text != now.text:
            reasons[name] = REWORDED
    return reasons
