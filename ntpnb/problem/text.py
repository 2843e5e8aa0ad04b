"""The words of a text: the package's own way of turning prose into tokens."""

import re
import unicodedata
from collections.abc import Sequence

from numpy.typing import ArrayLike

from ntpnb.validation import as_indices, require_range

# Scripts whose words are not separated by spaces: each character is a token, with its marks.
UNSPACED = (
    "\u3005-\u3007\u3040-\u309f"  # ideographic iteration mark and zero, hiragana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u0e00-\u0e4f\u0e80-\u0ecf\u1000-\u103f\u1780-\u17df"  # Thai, Lao, Burmese, Khmer; no digits
)
APOSTROPHES = str.maketrans({"\u2019": "'", "\uff07": "'"})  # the typographic and the wide one
JOINERS = "\u200c\u200d"  # without width, inside words of Persian and of Indian languages
SOFT_HYPHEN = "\u00ad"  # marks where a word may be broken, and is no part of it


def split_words(text: str) -> list[str]:
    """Split a text into its words, in lower case and in order.

    A word is a run of letters, combining marks and digits of any alphabet. Apostrophes between
    letters belong to it, of either shape (both become the straight one), and so do points and
    commas between digits. All other signs separate words and are dropped. Where a script puts no
    spaces between words (Han, hiragana, Thai, Lao, Burmese, Khmer), each character is a word of its
    own, together with its marks. The text is brought to Unicode's composed form (NFC) first, so
    that an accent counts the same however it was typed.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of str
        Empty where the text has no letter and no digit.

    References
    ----------
    Unicode Standard Annexes 15 (normalization forms) and 29 (word boundaries), of which this is a
    short form.

    Examples
    --------
    >>> from ntpnb.problem.text import split_words
    >>> split_words("In the 1st place, it’s 'light'.")
    ['in', 'the', '1st', 'place', "it's", 'light']
    >>> split_words("東京 has 3.5 %")
    ['東', '京', 'has', '3.5']
    """
    lower = unicodedata.normalize("NFC", text.lower())
    plain = lower.translate(APOSTROPHES).replace(SOFT_HYPHEN, "").replace("_", " ")
    return _word_pattern(plain).findall(plain)


def _word_pattern(text: str) -> re.Pattern[str]:
    r"""Build the pattern of a word, with those combining marks that the text uses.

    The sign ``\w`` of regular expressions stands for letters and digits, and leaves out marks.
    """
    marks = sorted(sign for sign in set(text) if unicodedata.category(sign).startswith("M"))
    inside = rf"[\w{''.join(marks)}{JOINERS}]"
    spaced = rf"[^\W{UNSPACED}](?:(?![{UNSPACED}]){inside})*"
    joined = rf"(?:'|(?<=\d)[.,](?=\d)){spaced}"
    unspaced = rf"[{UNSPACED}](?:(?!\w){inside})*"
    return re.compile(rf"{spaced}(?:{joined})*|{unspaced}")


def spelled(tokens: ArrayLike, words: Sequence[str]) -> str:
    """Write tokens as words, separated by spaces; ValueError for a token that is no word's."""
    indices = as_indices("tokens", tokens)
    require_range("tokens", indices, len(words))
    return " ".join(words[v] for v in indices)
