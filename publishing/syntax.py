"""Normalised syntax trees: what a piece of Python does, without how it is written down.

Two texts that differ in comments, formatting or docstrings have the same normal form; any other
difference shows. The form is written here, not by `ast.dump`, whose output changed from Python 3.12
to 3.13, so that keys taken on one version hold on the others.
"""

import ast
from functools import cache

_SHOWS_DOCSTRINGS = ("__doc__", "help", "inspect", "pydoc")


@cache
def parse(source: str) -> ast.Module | None:
    """Parse Python; None where the text is something else, such as a cell with a magic.

    Equal texts give the same tree, parsed once in a process: nobody may change it.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):  # ValueError: a null character
        return None


def shows_docstrings(source: str) -> bool:
    """Say whether code may show docstrings, so that they count as a part of what it does."""
    if not any(name in source for name in _SHOWS_DOCSTRINGS):
        return False  # found at once, without reading the tree
    tree = parse(source)
    if tree is None:
        return True
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return not names.isdisjoint(_SHOWS_DOCSTRINGS)


def normal_form(node: ast.AST, *, docstrings: bool = False) -> str:
    r"""Write a syntax tree as text that is equal for equal code.

    Parameters
    ----------
    node : ast.AST
        A module, or any other node.
    docstrings : bool
        Whether docstrings belong to it. A bare string anywhere has no effect but as a docstring.

    Examples
    --------
    >>> import ast
    >>> from publishing.syntax import normal_form
    >>> one = ast.parse("x = (1 +\n     2)  # three")
    >>> other = ast.parse("'''A sum.'''\nx = 1 + 2")
    >>> normal_form(one) == normal_form(other)
    True
    >>> normal_form(one) == normal_form(ast.parse("x = 2 + 1"))
    False
    """
    if isinstance(node, ast.Constant):
        # The type keeps 1, 1.0 and True apart; `!a` escapes the same letters everywhere.
        return f"{type(node.value).__name__}:{node.value!a}"
    if isinstance(node, ast.JoinedStr):
        parts = [_write(part, docstrings) for part in _pieces(node)]
        return f"JoinedStr({', '.join(parts)})"
    fields = []
    for name, value in ast.iter_fields(node):
        if name == "format_spec" and isinstance(value, ast.JoinedStr) and not _pieces(value):
            continue  # `{x:}`, which some versions write as no format at all
        if isinstance(value, list) and not docstrings:
            value = [item for item in value if not _has_no_effect(item)]
        # What a version does not know yet (type parameters) and what is not there look the same.
        if value is not None and value != []:
            fields.append(f"{name}={_write(value, docstrings)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def _write(value: object, docstrings: bool) -> str:
    """Write a field of a node: a node, a list of them, or a plain value."""
    if isinstance(value, ast.AST):
        return normal_form(value, docstrings=docstrings)
    if isinstance(value, list):
        return f"[{', '.join(_write(item, docstrings) for item in value)}]"
    return ascii(value)


def _has_no_effect(statement: object) -> bool:
    """Say whether a statement is a bare string, such as a docstring, or `pass`."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return isinstance(statement.value.value, str)
    return isinstance(statement, ast.Pass)


def _pieces(joined: ast.JoinedStr) -> list[ast.AST]:
    """Return the parts of an f-string, neighbouring texts joined and empty ones left out."""
    pieces: list[ast.AST] = []
    for part in joined.values:
        if not isinstance(part, ast.Constant):
            pieces.append(part)
        elif pieces and isinstance(pieces[-1], ast.Constant):
            pieces[-1] = ast.Constant(f"{pieces[-1].value!s}{part.value!s}")
        elif part.value:
            pieces.append(part)
    return pieces
