"""Packages that come with the extra ``book``: one line says so where one of them is missing."""

from contextlib import AbstractContextManager

from ntpnb.extras import needs_extra


def needs_book_extra(what: str) -> AbstractContextManager[None]:
    """Say how to install what an import within this context does not find.

    Parameters
    ----------
    what : str
        Who needs it.

    Returns
    -------
    context manager
        As :func:`ntpnb.extras.needs_extra` makes it.

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
    ImportError: the pencil needs graphite: pip install "ntpnb[book]"
    """
    return needs_extra("book", what)
