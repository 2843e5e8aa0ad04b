"""Which notebooks a reader means: by their names, or by a figure that they draw."""

from collections.abc import Iterable
from pathlib import Path

from ntpnb_book import output
from publishing import manifest, project


def select(typed: Iterable[str], root: Path = output.ROOT) -> list[str]:
    """Turn what a reader typed (``01_toy``, ``01``, ``gd_theorem`` or a path) into names.

    Where nothing was typed, all are meant.

    Raises
    ------
    ValueError
        Where no notebook has that name.
    """
    known = project.names(root)
    chosen: set[str] = set()
    for text in typed:
        stem = Path(text).stem
        found = [name for name in known if stem in (Path(name).name, _number(name))]
        if not found:
            raise ValueError(f"no notebook {text!r}; there are: {', '.join(known) or 'none'}")
        chosen.update(found)
    return [name for name in known if name in chosen] or known


def _number(name: str) -> str:
    """Return the digits before a chapter's name; a page of evidence has none."""
    digits = name.partition("_")[0]
    return digits if digits.isdigit() else name


def drawing(typed: str, root: Path = output.ROOT) -> list[str]:
    """List the notebooks that draw the figures that a reader named.

    Parameters
    ----------
    typed : str
        A figure's name or its beginning, with dashes or underscores: ``t24-fig4``.

    Returns
    -------
    list of str
        The notebooks.

    Raises
    ------
    ValueError
        Where no figure has that name.
    """
    beginning = typed.replace("-", "_") + "_"
    known = manifest.figures(root)
    rows = [row for row in known if f"{row['figure']}_".startswith(beginning)]
    if not rows:
        names = ", ".join(sorted(row["figure"] for row in known)) or "none"
        raise ValueError(f"no figure {typed!r}; there are: {names}")
    return sorted({row["notebook"] for row in rows})
