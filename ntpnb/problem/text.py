"""The words of a text: the one way in which the package turns prose into tokens."""

import re

# Letters of any alphabet, with apostrophes only between them; digits and underscores part words.
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


def split_words(text: str) -> list[str]:
    """Split a text into its words, in lower case and in order.

    A word is a run of letters of any alphabet. Apostrophes inside a word belong to it; digits,
    underscores and all other signs separate words and are dropped.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of str
        Empty where the text has no letter.

    Examples
    --------
    >>> from ntpnb.problem.text import split_words
    >>> split_words("In the 1st place, it's 'light'.")
    ['in', 'the', 'st', 'place', "it's", 'light']
    """
    return WORD.findall(text.lower())
