"""Contradictions among a few tokens: what refutes real text, far below its full size.

A certificate of a part of the data, some contexts and the tokens in some set ``Z``, is one of the
whole: its pairs are among the whole's. The frequent tokens of a text follow so many contexts that
ten of them often contradict each other already where all tokens together ask for minutes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ntpnb.basics.errors import PairWeights
from ntpnb.basics.validation import IntArray
from ntpnb.margin.separation import contradiction
from ntpnb.margin.support_program import all_pairs
from ntpnb.problem.collapse import strict_weights
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.order import token_priority

TOKENS = 10
"""How many frequent tokens are tried."""

CONTEXTS_PER_DIMENSION = 4
"""Contexts that are tried first, as a multiple of the dimension; then twice as many each time.

Random data of ten tokens, one after each context, are separable up to 4.5 contexts per dimension
(:func:`ntpnb.thresholds.separability_threshold`). Text contradicts itself earlier.
"""


@dataclass(frozen=True, eq=False)
class Part:
    """Some contexts of a dataset, with some of its tokens as their only candidates.

    Attributes
    ----------
    contexts : ndarray of int
        Rows of the data.
    tokens : ndarray of int
        Increasing.
    data : NextTokenData
        Their problem.
    """

    contexts: IntArray
    tokens: IntArray
    data: NextTokenData


def parts(data: NextTokenData) -> Iterator[Part]:
    """Parts of one-hot data, by growing sets of the contexts that the most frequent tokens follow.

    Contexts that many of the tokens follow come first: the less they leave to order, the more they
    ask for.

    Parameters
    ----------
    data : NextTokenData
        With one-hot tokens that are all candidates everywhere, and a group for each row.
    """
    if not data.is_linear_decoder or data.num_contexts <= data.shape[1]:
        return
    support = (data.sparse_target_probs > 0).astype(np.intp)
    followers, num_followed = np.unique(support.indices, return_counts=True)
    if TOKENS >= len(followers):  # the part would be the whole
        return
    by_frequency = followers[np.argsort(-num_followed, kind="stable")]
    tokens = np.sort(by_frequency[:TOKENS])
    shared = np.asarray(support[:, tokens].sum(1))  # how many of the tokens follow a context
    touching = np.argsort(-shared, kind="stable")[: np.count_nonzero(shared)]
    dim = data.shape[1]
    if len(touching) <= dim:  # as a rule they are independent
        return
    most = CONTEXTS_PER_DIMENSION * dim
    size = 0
    while size < len(touching):
        size = min(most, len(touching))
        most *= 2
        contexts = np.sort(touching[:size])
        probs = data.sparse_target_probs[contexts][:, tokens].toarray()
        problem = NextTokenData(
            context_embeddings=data.context_embeddings[contexts],
            target_probs=probs / probs.sum(1, keepdims=True),
        )
        yield Part(contexts, tokens, problem)


def contradiction_in(
    part: Part, whole: NextTokenData, check: Callable[[], object] = lambda: None
) -> PairWeights | None:
    """A certificate that a part, and with it the whole, is not separable; None where none is found.

    Parameters
    ----------
    part : Part
    whole : NextTokenData
        The data that it is a part of.
    check : callable
        Called between steps; what it raises ends the search.
    """
    order = token_priority(part.data)
    if not order.has_strict_pairs:
        return None
    pairs = all_pairs(part.data, order)
    if not pairs.fits:
        return None
    found = contradiction(pairs, check)
    if found is None:
        return None
    weights = pairs.pair_weights(*found)
    row, _, loser = weights.pairs.T  # a part's groups are named by its rows
    # A part's winner may not be the token that stands for its support in the whole. The two tie, so
    # that the certificate holds with either.
    position = whole.group_index[part.contexts[row]]
    return strict_weights(token_priority(whole), position, part.tokens[loser], weights.weights)
