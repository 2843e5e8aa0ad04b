"""Which modules of ours a piece of code can reach, found by reading it, not by running it.

A name counts for the module that defines it: ``ntpnb.descend`` is code of
``ntpnb.training.descent``. The re-exports in a package's `__init__` are a table to look names up
in, so that a notebook does not depend on the whole package just because it imports it. Where a name
cannot be followed (`ntpnb` itself handed to a function, an import by a computed name, a cell that
is not plain Python) the code is taken to reach everything.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from publishing.syntax import normal_form, parse, shows_docstrings

PACKAGES = ("ntpnb", "ntpnb_book")
"""The theory, and what chapters import besides: a notebook can reach modules of both."""

_UNFOLLOWED = {
    "__import__",
    "eval",
    "exec",
    "import_module",
    "run_cell",
    "run_cell_magic",
    "run_line_magic",
    "runpy",
}
"""Names that load or run what no reading of the code can find."""


@dataclass(frozen=True)
class Mentions:
    """What a piece of code names of our packages: dotted names, or nobody knows what."""

    names: frozenset[str]
    unknown: bool = False


@dataclass(frozen=True)
class Reach:
    """What a piece of code can reach, directly or through other modules.

    ``modules`` are dotted names; ``definitions`` are what the mentioned names stand for, such as
    ``ntpnb.training.descent.descend``.
    """

    modules: frozenset[str]
    definitions: frozenset[str]


@dataclass(frozen=True)
class Module:
    """A module of ours, or a package: then its code is that of its `__init__`."""

    name: str
    is_package: bool
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """The whole syntax tree; SyntaxError where there is none."""
        return ast.parse(self.source, self.name)

    @cached_property
    def re_exports(self) -> dict[str, str]:
        """For a package: what its `__init__` imports, by the name that it has there."""
        table: dict[str, str] = {}
        for statement in self.tree.body if self.is_package else ():
            if isinstance(statement, ast.ImportFrom):
                base = _imported_from(statement, self)
                for alias in statement.names:
                    table[alias.asname or alias.name] = f"{base}.{alias.name}"
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    table[alias.asname or alias.name] = alias.name
        return table

    @cached_property
    def code(self) -> ast.Module:
        """The syntax tree that counts: for a package what is left beside its table."""
        if not self.is_package:
            return self.tree
        kept = [statement for statement in self.tree.body if not _belongs_to_table(statement)]
        return ast.Module(kept, type_ignores=[])

    @cached_property
    def running(self) -> list[ast.AST]:
        """The nodes of the code that counts, those that can run."""
        return list(_running(self.code))

    @cached_property
    def form(self) -> str:
        """The code that counts, as `publishing.syntax.normal_form` writes it."""
        return normal_form(self.code)

    @cached_property
    def documented_form(self) -> str:
        """The same with the docstrings."""
        return normal_form(self.code, docstrings=True)

    @cached_property
    def shows_docstrings(self) -> bool:
        """Whether the code may show docstrings."""
        return shows_docstrings(self.source)

    @cached_property
    def defines(self) -> frozenset[str]:
        """Names that a package's `__init__` assigns or defines itself."""
        stored = {
            node.id
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        named = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return frozenset(stored | {node.name for node in self.tree.body if isinstance(node, named)})


@cache
def _module(name: str, is_package: bool, source: str) -> Module:
    """Make a module, or find the one of equal source: it is parsed once in a process."""
    return Module(name, is_package, source)


class Packages:
    """The sources of our packages in a checkout, read once.

    Parameters
    ----------
    root : Path
        The checkout, which holds the folders of the packages.
    """

    def __init__(self, root: Path) -> None:
        self.modules: dict[str, Module] = {}
        for path in sorted(path for name in PACKAGES for path in root.glob(f"{name}/**/*.py")):
            parts = list(path.relative_to(root).with_suffix("").parts)
            if not all(part.isidentifier() for part in parts):
                continue  # left there by an editor; nothing can import it
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            self.modules[name] = _module(name, is_package, path.read_text(encoding="utf-8"))
        self._mentions: dict[str, Mentions] = {}

    def reach(self, cells: Iterable[str]) -> Reach:
        """Return what a notebook can reach.

        Parameters
        ----------
        cells : iterable of str
            The code of its cells. One that is not plain Python may reach everything.
        """
        trees = [parse(cell) for cell in cells]
        statements = [statement for tree in trees if tree for statement in tree.body]
        tree = ast.Module(statements, type_ignores=[])
        found = self.mentioned_by(list(_running(tree)))
        if None in trees:
            found = Mentions(found.names, unknown=True)
        return self._closure(found)

    def _closure(self, first: Mentions) -> Reach:
        """Follow what code mentions through the modules' own imports."""
        definitions: set[str] = set()
        reached: set[str] = set()
        waiting = [first]
        while waiting:
            mentions = waiting.pop()
            targets = {self.definition(name) for name in mentions.names}
            definitions |= {target for target in targets if target is not None}
            new: set[str] = set()
            for target in targets:
                new |= set(self.modules) if target is None else self._behind(target)
            if mentions.unknown:
                new |= set(self.modules)
            for name in sorted(new - reached):
                reached.add(name)
                waiting.append(self._mentioned_by_module(name))
        return Reach(frozenset(reached), frozenset(definitions))

    def definition(self, dotted: str) -> str | None:
        """Follow a dotted name through the re-exports to where it is defined; None if it is not.

        What other packages define is returned under its name there.
        """
        parts = dotted.split(".")
        place = parts[0]
        for number, part in enumerate(parts[1:], 1):
            module = self.modules.get(place)
            if module is None or not module.is_package:
                break  # below a module, or in another package, nothing is looked up
            inner = f"{place}.{part}"
            exported = module.re_exports.get(part, inner)
            if exported != inner:
                return self.definition(".".join([exported, *parts[number + 1 :]]))
            if inner not in self.modules:
                return dotted if part in module.defines else None
            place = inner
        return dotted

    def _behind(self, definition: str) -> set[str]:
        """Return the modules that a definition needs before anything is followed.

        They are its own, and the packages around it, whose `__init__` runs with every import.
        A package as such stands for everything in it.
        """
        if definition.split(".")[0] not in PACKAGES:
            return set()
        names = set()
        place = definition
        while place:
            if place in self.modules:
                names.add(place)
            place = place.rpartition(".")[0]
        if definition in self.modules and self.modules[definition].is_package:
            names |= {name for name in self.modules if name.startswith(f"{definition}.")}
        return names

    def _mentioned_by_module(self, name: str) -> Mentions:
        """Return what a module mentions; of a package, what its own code does."""
        if name not in self._mentions:
            module = self.modules[name]
            found = self.mentioned_by(module.running, module)
            used = {node.id for node in ast.walk(module.code) if isinstance(node, ast.Name)}
            from_table = {
                target
                for local, target in module.re_exports.items()
                if local in used and target.split(".")[0] in PACKAGES
            }
            self._mentions[name] = Mentions(found.names | from_table, found.unknown)
        return self._mentions[name]

    def mentioned_by(self, nodes: list[ast.AST], module: Module | None = None) -> Mentions:
        """Return what code mentions of our packages.

        Parameters
        ----------
        nodes : list of ast.AST
            Those of the code that can run.
        module : Module, optional
            Where it stands, for imports that are relative to it.
        """
        names: set[str] = set()
        packages: dict[str, str] = {}  # local names of packages: what is used of them counts
        for local, dotted in _imports(nodes, module):
            target = self.definition(dotted)
            if target in self.modules and self.modules[target].is_package:
                packages[local] = dotted
            else:
                names.add(dotted)
        inner_names = set()
        for node in nodes:
            if isinstance(node, ast.Attribute) and id(node) not in inner_names:
                chain = _chain(node)
                inner_names |= {id(inner) for inner in ast.walk(node.value)} if chain else set()
                if chain and chain[0] in packages:
                    names.add(".".join([packages[chain[0]], *chain[1:]]))
            elif isinstance(node, ast.Name) and id(node) not in inner_names:
                names |= {packages[node.id]} if node.id in packages else set()
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        return Mentions(frozenset(names), unknown=not used.isdisjoint(_UNFOLLOWED))


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all within it that can run: nothing under ``if TYPE_CHECKING``."""
    yield node
    if isinstance(node, ast.If) and _is_type_checking(node.test):
        children: Iterable[ast.AST] = node.orelse
    else:
        children = ast.iter_child_nodes(node)
    for child in children:
        yield from _running(child)


def _is_type_checking(test: ast.expr) -> bool:
    if isinstance(test, ast.Attribute):
        return test.attr == "TYPE_CHECKING"
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _imports(nodes: Iterable[ast.AST], module: Module | None) -> Iterator[tuple[str, str]]:
    """Yield what is imported of our packages: the local name, and the dotted name it stands for."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                package = alias.name.split(".")[0]
                if package in PACKAGES:
                    # Without `as`, `import ntpnb.tied` binds the name `ntpnb`.
                    yield (alias.asname, alias.name) if alias.asname else (package, package)
        elif isinstance(node, ast.ImportFrom):
            base = _imported_from(node, module)
            if base.split(".")[0] not in PACKAGES:
                continue
            for alias in node.names:
                if alias.name == "*":
                    yield f"* of {base}", f"{base}.*"
                else:
                    yield alias.asname or alias.name, f"{base}.{alias.name}"


def _imported_from(statement: ast.ImportFrom, module: Module | None) -> str:
    """Dotted name of what a ``from … import`` statement imports from."""
    if not statement.level or module is None:
        return statement.module or ""
    parts = module.name.split(".")
    up = statement.level - 1 if module.is_package else statement.level
    parts = parts[: len(parts) - up]
    return ".".join([*parts, statement.module] if statement.module else parts)


def _chain(node: ast.Attribute) -> list[str]:
    """Return the names in ``a.b.c``; empty where its beginning is no plain name."""
    parts = [node.attr]
    inner: ast.expr = node.value
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    return [inner.id, *reversed(parts)] if isinstance(inner, ast.Name) else []


def _belongs_to_table(statement: ast.stmt) -> bool:
    """Say whether a statement of an `__init__` only makes names known: no code of its own."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.If):
        return _is_type_checking(statement.test) and not statement.orelse
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)  # the docstring
    if isinstance(statement, ast.Assign):
        targets = {target.id for target in statement.targets if isinstance(target, ast.Name)}
        return bool(targets) and targets <= {"__all__", "__version__"}
    return False
