"""In how few dimensions a text is separable whose contexts were given vectors drawn at random."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from ntpnb.basics.errors import ConvergenceError
from ntpnb.basics.watch import Watch
from ntpnb.margin.solve import is_separable
from ntpnb.problem.data import NextTokenData


@dataclass(frozen=True, eq=False)
class DimensionSweep:
    """What is known of separability in 1, 2, 4, 8, … dimensions.

    Attributes
    ----------
    separable : int
        The least of these in which the text is proved separable.
    contradicted : NextTokenData or None
        The text in the most dimensions in which it is proved that it is not; None where one
        dimension is enough.
    random_separable : bool or None
        Whether as many next tokens of each context, drawn at random, are separable in those
        dimensions; None where there are none, or where that is undecided.
    """

    separable: int
    contradicted: NextTokenData | None
    random_separable: bool | None


def is_by_construction(data: NextTokenData) -> bool:
    """Whether data are separable whatever follows whom, by the dimension that was chosen.

    So it is with vectors drawn for each context in as many dimensions as contexts or more: they are
    independent with probability one, so that scores can be chosen freely, if tokens are one-hot. If
    not all tokens were candidates, not any text could follow.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.dimensions import is_by_construction
    >>> is_by_construction(ntpnb.NextTokenData.from_text("we see what we see"))
    True
    >>> is_by_construction(ntpnb.NextTokenData.from_text("we see what we see", dim=1))
    False
    """
    is_drawn = data.embedding == "random" and data.is_linear_decoder
    return is_drawn and data.shape[1] >= data.num_contexts


def sweep_of_dimensions(data: NextTokenData, watch: Watch) -> DimensionSweep:
    """Find from how many dimensions on a text is separable, twice as many each time.

    The first coordinates of a vector from the standard normal law are such a vector too, so that
    one draw answers for fewer dimensions; and what is separable in some of them is so in more.

    Parameters
    ----------
    data : NextTokenData
        Separable by construction, see :func:`is_by_construction`.
    watch : Watch

    Returns
    -------
    DimensionSweep

    Raises
    ------
    ConvergenceError
        The time is over.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.basics.watch import Watch
    >>> from ntpnb.reporting.dimensions import sweep_of_dimensions
    >>> data = ntpnb.NextTokenData.from_text("the cat and the dog and the cat", context_length=1)
    >>> found = sweep_of_dimensions(data, Watch())
    >>> found.separable, found.contradicted.shape[1]
    (2, 1)
    """
    contradicted = None
    dim = 1
    while dim < data.shape[1]:
        fewer = data.replace(context_embeddings=data.context_embeddings[:, :dim])
        watch.tell(f"is the text separable in {dim} dimensions?")
        verdict = _verdict(fewer, watch)
        if verdict:
            break
        if verdict is False:
            contradicted = fewer
        dim *= 2
    random_separable = None
    if contradicted is not None:
        random_separable = _verdict(with_random_tokens(contradicted), watch)
    return DimensionSweep(min(dim, data.shape[1]), contradicted, random_separable)


def with_random_tokens(data: NextTokenData) -> NextTokenData:
    """The same contexts and probabilities, of next tokens that are drawn for each at random.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.dimensions import with_random_tokens
    >>> data = ntpnb.NextTokenData([[1.0]], [[0.75, 0.25, 0, 0]])
    >>> sorted(with_random_tokens(data).target_probs[0].tolist())
    [0.0, 0.0, 0.25, 0.75]
    """
    table = data.sparse_target_probs
    rng = np.random.default_rng(0)
    tokens = [
        rng.choice(data.vocab_size, size, replace=False, shuffle=False)
        for size in np.diff(table.indptr)
    ]
    drawn = csr_array((table.data, np.concatenate(tokens), table.indptr), shape=table.shape)
    return data.replace(target_probs=drawn)


def _verdict(data: NextTokenData, watch: Watch) -> bool | None:
    """Whether data are separable; None where that is undecided though there is time."""
    try:
        return is_separable(data, seconds=watch.left, progress=watch.say)
    except ConvergenceError as error:
        if error is watch.raised or watch.expired:
            raise
        return None
