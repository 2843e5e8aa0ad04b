"""Packages that come with an extra: one line says so where one of them is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Say how to install what an import within this context does not find.

    Parameters
    ----------
    extra : str
        The extra of this package that brings it.
    what : str
        Who needs it.

    Raises
    ------
    ImportError
        With the name of the missing package and the command that installs it.

    Examples
    --------
    >>> from ntpnb.basics.extras import needs_extra
    >>> with needs_extra("plot", "the pencil"):
    ...     import graphite
    Traceback (most recent call last):
    ImportError: the pencil needs graphite: pip install "ntpnb[plot]"
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f'{what} needs {error.name}: pip install "ntpnb[{extra}]"'
        raise ImportError(message, name=error.name) from None
