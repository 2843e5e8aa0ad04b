"""What tests of the book share."""

import pytest


@pytest.fixture
def book_style():
    """Draw in the book's style, and afterwards as before."""
    import matplotlib as mpl

    from ntpnb_book import figures

    with mpl.rc_context():
        figures.use_style()
        yield
