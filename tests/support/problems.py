"""Random problems of both papers, shared by the tests. The same arguments give the same problem."""

import numpy as np
import reference
from hypothesis import strategies as st

from ntpnb import NextTokenData, datasets


def t24(
    seed,
    V=5,
    m=6,
    d=8,
    size=(1, 3),
    *,
    norms=0,
    parallel=0,
    zero=0,
    rank=None,
    rows=1,
    tokens=None,
    candidates=False,
):
    """Contexts with random supports: a linear decoder, or more general where an option says so.

    ``size``: support size, or its range. ``norms``: decades over which the embeddings' norms
    spread. ``parallel``: so many embeddings are ±multiples or copies of the first. ``zero``: so
    many of the last embeddings are zero. ``rank``: embeddings of that rank. ``rows``: up to that
    many rows share one context group. ``tokens``: dimension of random token embeddings.
    ``candidates``: random candidate counts.
    """
    rng = np.random.default_rng([24, seed])
    H = rng.standard_normal((m, d))
    if rank is not None:
        H = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, d))
    for j in range(1, parallel + 1):
        H[j] = H[0] * (1.0, 2.0, -0.5)[j % 3]
    H *= 10.0 ** rng.uniform(-norms / 2, norms / 2, (m, 1))
    H[m - zero :] = 0.0
    groups = None
    if rows > 1:
        groups = rng.integers(0, max(1, m // rows), m) * 7 - 3  # names, not positions
        for g in np.unique(groups):
            H[groups == g] = H[np.argmax(groups == g)]
    low, high = (size, size) if np.isscalar(size) else size
    P = np.zeros((m, V))
    C = rng.integers(0, 3, (m, V)).astype(float) if candidates else None
    for j in range(m):
        S = rng.permutation(V)[: rng.integers(low, high + 1)]
        P[j, S] = rng.dirichlet(np.ones(len(S)))
        if candidates:
            C[j, S] = rng.integers(1, 4, len(S))
    T = None if tokens is None else rng.standard_normal((V, tokens))
    return NextTokenData(H, P, rng.dirichlet(np.full(m, 3.0)), T, C, groups)


def l24(seed, K=6, d=8, n=6, T=4, *, repeats=False, cyclic=None, norms=0, priority=False):
    """Self-attention training sequences whose labels occur in them (L24 Sec. 3).

    ``repeats``: tokens may occur several times in a sequence (the papers' experiments draw them
    distinct). ``cyclic``: draw again until some tokens tie (True) or none do (False).
    ``norms``: decades over which the embeddings' norms spread. ``priority``: each label is its
    sequence's smallest token, so that no two tokens tie.
    """
    rng = np.random.default_rng([11, seed])
    while True:
        E = rng.standard_normal((K, d)) * 10.0 ** rng.uniform(-norms / 2, norms / 2, (K, 1))
        X = rng.integers(0, K, (n, T)) if repeats else np.argsort(rng.random((n, K)), axis=1)[:, :T]
        y = X.min(axis=1) if priority else X[np.arange(n), rng.integers(0, T, n)]
        data = NextTokenData.from_attention(E, X, y)
        if cyclic is None or cyclic == bool(reference.equal_pairs(data)):
            return data


def whole_numbers(seed, exponent=None):
    """Contexts of small whole numbers, plus ``2**exponent`` times others, where that is given.

    In every third case tokens have embeddings of such numbers.
    """
    rng = np.random.default_rng([40, seed])
    V, m, q = rng.integers([2, 1, 1], [5, 6, 4])
    H = rng.integers(-2, 3, (m, q)).astype(float)
    if exponent is not None:
        H += 2.0**exponent * rng.integers(-2, 3, (m, q))
    P = np.zeros((m, V))
    for row in P:
        size = rng.integers(1, V + 1)
        row[rng.permutation(V)[:size]] = 1 / size
    T = rng.integers(-2, 3, (V, 2)).astype(float) if seed % 3 == 0 else None
    return NextTokenData(H, P, token_embeddings=T)


def a_text(dim, num_verses=31, context_length=1):
    """The words of Genesis 1, or of more verses, after contexts with random embeddings."""
    corpus = datasets.text_corpus(num_verses)
    rng = np.random.default_rng(0)
    return NextTokenData.from_sequences(
        corpus.verses, lambda context: rng.standard_normal(dim), context_length=context_length
    )


def regimes():
    """Named problems of both papers in every regime that the core has to survive."""
    return {
        "d > m": t24(0),
        "d = m": t24(1, m=8),
        "d < m": t24(2, m=14, d=4),
        "d < m, wide supports": t24(3, V=4, m=12, d=3, size=(2, 4)),
        "d = 1": t24(4, d=1, m=5),
        "one-hot next tokens": t24(5, size=1, m=7, d=5),
        "every token in every support": t24(6, V=4, size=4),
        "parallel contexts": t24(7, m=8, d=9, parallel=4, size=(2, 3)),
        "zero embeddings": t24(8, zero=2, size=(2, 3)),
        "all embeddings zero": t24(9, zero=6),
        "dependent embeddings": t24(10, m=9, d=12, rank=4, size=(2, 4)),
        "norms over six decades": t24(11, m=8, d=10, norms=6, size=(2, 3)),
        "norms over six decades, d < m": t24(12, m=12, d=5, norms=6, size=(2, 3)),
        "groups of several rows": t24(13, m=9, rows=3, size=(1, 2)),
        "groups of several rows, d < groups": t24(14, V=6, m=16, d=3, rows=2, size=(2, 3)),
        "one context": t24(15, m=1, size=3),
        "one token": t24(16, V=1, size=1),
        "two tokens": t24(17, V=2, size=(1, 2)),
        "token embeddings, p < V": t24(18, tokens=3, size=(1, 4)),
        "token embeddings, p > V": t24(19, tokens=9, size=(1, 4)),
        "candidate counts": t24(20, V=6, candidates=True),
        "candidate counts and groups": t24(21, V=6, m=10, rows=3, candidates=True),
        "candidates, groups, tokens": t24(22, V=6, m=10, rows=3, candidates=True, tokens=4),
        "attention, acyclic": l24(23, cyclic=False),
        "attention, cyclic": l24(24, n=12, K=7, d=8, cyclic=True),
        "attention, d < K": l24(25, n=16, K=8, d=3, cyclic=True),
        "attention, one dimension": l24(26, d=1, n=10, cyclic=True),
        "attention, repeated tokens": l24(27, n=12, repeats=True, cyclic=True),
        "attention, norms over six decades": l24(28, n=12, norms=6, cyclic=True),
        "attention, one token": l24(29, K=1, T=1, n=3),
    }


def any_problem(norms=0):
    """Strategy: small problems of either paper with any mixture of options."""
    size = st.tuples(st.integers(1, 2), st.integers(2, 3))
    decoder = st.builds(
        t24,
        st.integers(0, 9999),
        V=st.integers(3, 6),
        m=st.integers(1, 8),
        d=st.integers(1, 8),
        size=size,
        norms=st.just(norms),
        zero=st.integers(0, 1),
        rows=st.integers(1, 3),
        tokens=st.sampled_from([None, None, 2, 4, 7]),
        candidates=st.booleans(),
    )
    attention = st.builds(
        l24,
        st.integers(0, 9999),
        K=st.integers(4, 6),
        d=st.integers(1, 8),
        n=st.integers(1, 10),
        T=st.integers(1, 4),
        repeats=st.booleans(),
        norms=st.just(norms),
    )
    return decoder | attention


def start(data, seed=0):
    """A random matrix ``W`` of the data's shape."""
    return np.random.default_rng(seed).standard_normal(data.shape)


# -- the same problem in other words --------------------------------------------------------------


ARGUMENTS = (
    "context_embeddings",
    "target_probs",
    "context_probs",
    "token_embeddings",
    "candidate_counts",
    "context_groups",
)
"""Of the constructor, by name, as its data have them."""


def same_data(one, other):
    """Whether two datasets say the same, to the last bit."""
    names = (*ARGUMENTS, "contexts")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


def changed(data, **arguments):
    """``data`` built again with some of its constructor's arguments replaced."""
    return NextTokenData(**{name: getattr(data, name) for name in ARGUMENTS} | arguments)


def lengthened(data, factor):
    """Embeddings ``factor h``."""
    return changed(data, context_embeddings=factor * data.context_embeddings)


def rotated(data, Q):
    """Embeddings ``h Q``; W becomes ``W Q``."""
    # one product for each group, so that its rows stay equal to the last bit
    return changed(data, context_embeddings=(data.group_embeddings @ Q)[data.group_index])


def renamed(data, tokens):
    """Tokens in another order; the rows of W too, where there are no token embeddings."""
    T, C = data.token_embeddings, data.candidate_counts
    return changed(
        data,
        target_probs=data.target_probs[:, tokens],
        token_embeddings=None if T is None else T[tokens],
        candidate_counts=None if C is None else C[:, tokens],
    )


def rearranged(data, rows):
    """Contexts in another order, or some of them several times at their share of probability."""
    C, share = data.candidate_counts, np.bincount(rows)[rows]
    return changed(
        data,
        context_embeddings=data.context_embeddings[rows],
        target_probs=data.target_probs[rows],
        context_probs=data.context_probs[rows] / share,
        candidate_counts=None if C is None else C[rows],
        context_groups=data.context_groups[rows],
    )


def doubled(data):
    """Each context as two rows of one group with half its probability each."""
    return rearranged(data, np.repeat(np.arange(len(data.context_probs)), 2))
