"""The papers' statements: which claims execute each, how far, and which errata concern it.

What stands in `book/statements.yml` is explained at its head. A status is computed, never typed:

- "executed": claims measure it;
- "in part": claims measure a part, and the entry says what is missing;
- "quoted": no claim, but a place of the book quotes it, to which the index links;
- "not in the book": none of these.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from ntpnb_book.claims import covers

Statement: TypeAlias = Mapping[str, Any]
"""An entry of `book/statements.yml`."""

Statements: TypeAlias = Mapping[str, Statement]
"""The papers' statements by id."""

STATUSES = {
    "executed": "claims measure it",
    "in part": "claims measure a part; what is missing is named",
    "quoted": "this book quotes or uses it and measures nothing of it",
    "not in the book": "neither measured nor quoted",
}
"""The status that a statement can have, with its meaning."""

FIELDS = {
    "where",
    "name",
    "what",
    "also",
    "by",
    "part",
    "quoted",
    "uses",
    "errata",
    "conjecture",
    "drawn",
}
"""What may stand in an entry."""


def is_equation(id: str) -> bool:
    """Say whether a statement is no more than a numbered equation.

    Examples
    --------
    >>> from publishing.statements import is_equation
    >>> is_equation("t24.eq7"), is_equation("t24.thm1")
    (True, False)
    """
    return re.fullmatch(r"\w+\.eq\d+", id) is not None


def called(statement: Statement) -> str:
    """Give a statement's short name: its `name`, or the first words of its `where`.

    Examples
    --------
    >>> from publishing.statements import called
    >>> called({"where": "Thm 1, Eq. (8)"})
    'Thm 1'
    """
    return str(statement.get("name", statement["where"].split(", ")[0]))


def executing(id: str, statement: Statement, claims: Iterable[str]) -> list[str]:
    """List the claims that execute a statement: by their id's beginning, or named in its `by`."""
    beginnings = (id, *statement.get("by", ()))
    return [claim for claim in claims if any(covers(start, claim) for start in beginnings)]


def status(id: str, statement: Statement, claims: Iterable[str]) -> str:
    """Compute the status of a statement from the ids of all claims; one of `STATUSES`.

    Examples
    --------
    >>> from publishing.statements import status
    >>> status("t24.eq9", {"part": "one case"}, ["t24.eq9.bound"])
    'in part'
    >>> status("t24.eq9", {}, ["t24.eq99.bound"])
    'not in the book'
    """
    if executing(id, statement, claims):
        return "in part" if "part" in statement else "executed"
    return "quoted" if "quoted" in statement else "not in the book"


def below(statements: Statements, start: Iterable[str]) -> set[str]:
    """Find what rests, directly or through others, on some of the statements.

    Parameters
    ----------
    statements : mapping
        The statements by id.
    start : iterable of str
        Ids; they themselves are left out, unless they rest on one another.
    """
    found: set[str] = set()
    waiting = list(start)
    while waiting:
        used = waiting.pop()
        resting = {id for id, other in statements.items() if used in rests_on(id, other)}
        waiting += resting - found
        found |= resting
    return found


def rests_on(id: str, statement: Statement) -> list[str]:
    """List the ids of the statements that one uses directly."""
    paper = id.partition(".")[0]
    return [f"{paper}.{name}" for name in statement.get("uses", ())]


def problems(statements: Statements, claims: Iterable[str]) -> Iterator[str]:
    """Yield, as one line each, what is wrong with the entries of `book/statements.yml`.

    Parameters
    ----------
    statements : mapping
        The statements by id.
    claims : iterable of str
        Ids of all claims.
    """
    claims = list(claims)
    for id, statement in statements.items():
        where = f"statements.yml: {id}"
        for field in sorted(statement.keys() - FIELDS):
            yield f"{where}: the field `{field}` means nothing"
        for field in sorted({"where", "what"} - statement.keys()):
            yield f"{where}: `{field}` is missing"
        for named in (*statement.get("by", ()), *statement.get("errata", ())):
            if not any(covers(named, claim) for claim in claims):
                yield f"{where}: no claim begins with {named}"
        if "part" in statement and not executing(id, statement, claims):
            yield f"{where}: `part` says what is missing, but no claim executes any of it"
        for other in rests_on(id, statement):
            if "uses" not in statements.get(other, {}):
                yield f"{where}: uses {other}, which is not on the map"
        if id in below(statements, [id]):
            yield f"{where}: uses itself, through what it uses"
