"""Packages that come with the extra ``book``: one line says so where one of them is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_book_extra(what: str) -> Iterator[None]:
    """Say how to install what an import within this context does not find.

    Parameters
    ----------
    what : str
        Who needs it.

    Raises
    ------
    ImportError
        With the name of the missing package and the command that installs it.

    Examples
    --------
    >>> from ntpnb.notebook.extras import needs_book_extra
    >>> with needs_book_extra("the pencil"):
    ...     import graphite
    Traceback (most recent call last):
    ImportError: the pencil needs graphite: pip install 'ntpnb[book]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(f"{what} needs {error.name}: pip install 'ntpnb[book]'") from None
