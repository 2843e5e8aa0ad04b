"""Words of a text: the one way in which the package splits what people write into tokens."""

import re


def split_words(text: str) -> list[str]:
    """Split a text into lower-case words without punctuation, digits or underscores.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of str
        In order of appearance. An apostrophe between letters belongs to its word.

    Examples
    --------
    >>> from ntpnb.problem.text import split_words
    >>> split_words("The cat's mat, the 2 mats.")
    ['the', "cat's", 'mat', 'the', 'mats']
    """
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text.lower())
