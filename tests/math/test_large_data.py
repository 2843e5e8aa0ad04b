"""Data of large vocabularies: by blocks and in little memory, or refused before any is taken."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from peak import allocates_less_than
from problems import any_problem, regimes, start, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.basics import validation
from ntpnb.problem import table
from ntpnb.problem.order import row_components
from ntpnb.thresholds import compatible_dimension
from ntpnb.training import batch

EPS = np.finfo(float).eps


def by_blocks(monkeypatch, block):
    """From now on, dense arrays have no more entries than that."""
    monkeypatch.setattr(table, "BLOCK", block)


def counts_of(tokens, vocab_size):
    """How often each token stands in each row of tokens, as a sparse table."""
    num_rows, length = tokens.shape
    rows = np.repeat(np.arange(num_rows), length)
    ones = np.ones(tokens.size, dtype=np.intp)
    return sp.coo_array((ones, (rows, tokens.ravel())), shape=(num_rows, vocab_size))


def large_text(num_contexts=50_000, vocab_size=5_000, dim=16, seed=0):
    """Embeddings and counts of contexts with up to three next tokens each."""
    rng = np.random.default_rng(seed)
    counts = counts_of(rng.integers(0, vocab_size, (num_contexts, 3)), vocab_size)
    return rng.standard_normal((num_contexts, dim)), counts


# -- blocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", regimes())
def test_losses_by_blocks_agree_with_all_at_once(monkeypatch, name):
    data = regimes()[name]
    W = np.random.default_rng(3).standard_normal((2, 2, *data.shape))
    functions = (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient)
    whole = [function(W, data) for function in functions]
    # Rounding of logits, of sums over V tokens, and of the products with H and T.
    reach = np.abs(ntpnb.logits(W, data)[..., data.candidates]).max()
    lengths = np.abs(data.context_embeddings).sum(1).max()
    rounding = 20 * EPS * (1 + reach) * data.vocab_size
    for rows in (1, 2, 5):
        by_blocks(monkeypatch, rows * data.vocab_size)
        loss, excess, gradient = (function(W, data) for function in functions)
        np.testing.assert_allclose(loss, whole[0], rtol=0, atol=rounding)
        np.testing.assert_allclose(excess, whole[1], rtol=0, atol=rounding)
        sizes = 1 if data.token_embeddings is None else np.abs(data.token_embeddings).sum(0).max()
        np.testing.assert_allclose(gradient, whole[2], rtol=0, atol=rounding * lengths * sizes)
        assert gradient.shape == W.shape
        assert loss.shape == excess.shape == (2, 2)


@given(any_problem(), st.integers(2, 5))
def test_a_divided_stack_gives_the_same_numbers_to_the_last_bit(data, num_matrices):
    W = np.random.default_rng(1).standard_normal((num_matrices, *data.shape))
    functions = (ntpnb.cross_entropy, ntpnb.excess_loss, ntpnb.gradient)
    whole = [function(W, data) for function in functions]
    with pytest.MonkeyPatch.context() as patch:
        by_blocks(patch, 2 * data.num_contexts * data.vocab_size)
        parts = [function(W, data) for function in functions]
    for part, expected in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(part, expected)


# -- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [ntpnb.GD(0.2), ntpnb.NGD(0.1), ntpnb.Adam(0.05)])
@pytest.mark.parametrize("name", ["d > m", "candidates, groups, tokens", "attention, cyclic"])
def test_descent_by_blocks_takes_the_same_steps(monkeypatch, name, method):
    data = regimes()[name]
    whole = ntpnb.descend(data, method, 40, record=[0, 1, 40])
    monkeypatch.setattr(batch, "WHOLE", 0)
    by_blocks(monkeypatch, 2 * data.vocab_size)
    parts = ntpnb.descend([data, data], method, 40, record=[0, 1, 40])
    # The rounding of a step grows no faster than the steps themselves; Adam divides by roots of
    # mean squares, in which it counts once more.
    for run in parts.W:
        np.testing.assert_allclose(run, whole.W, rtol=1e-11, atol=1e-11 * whole.norm[-1])
    np.testing.assert_allclose(parts.loss[0], whole.loss, rtol=1e-11)
    np.testing.assert_allclose(parts.excess[1], whole.excess, rtol=1e-10)


def test_normalized_descent_by_blocks_keeps_its_direction_far_out(monkeypatch):
    # Gradients near 1e-100, whose likeliest tokens' entries would be lost to rounding.
    data = t24(5, size=1, m=4, d=8)
    init = 200 * data.target_probs.T @ np.linalg.pinv(data.context_embeddings).T
    whole = ntpnb.descend(data, ntpnb.NGD(0.1), 30, init=init, record=[30])
    monkeypatch.setattr(batch, "WHOLE", 0)
    by_blocks(monkeypatch, 5)
    parts = ntpnb.descend(data, ntpnb.NGD(0.1), 30, init=init, record=[30])
    # Relative errors of exponentials of scores near 200, over the 30 steps of 0.1.
    np.testing.assert_allclose(parts.W, whole.W, rtol=0, atol=30 * 0.1 * 200 * 100 * EPS)


def test_a_batch_by_blocks_takes_one_matrix_for_each_problem():
    data = t24(0)
    with pytest.raises(ValueError, match="shorter"):
        batch.BlockBatch([data]).gradient(np.zeros((2, *data.shape)))


def test_sgd_refuses_what_its_samples_do_not_fit(monkeypatch):
    monkeypatch.setattr(batch, "WHOLE", 0)
    with pytest.raises(ValueError, match="data are too large for SGD: its samples are tables"):
        ntpnb.descend(t24(0), ntpnb.SGD(0.1), 5)


# -- memory ---------------------------------------------------------------------------------------


def test_sparse_data_take_far_less_memory_than_their_table(monkeypatch):
    H, counts = large_text()
    dense_bytes = 8 * counts.shape[0] * counts.shape[1]  # 2 GB
    by_blocks(monkeypatch, 2**20)
    with allocates_less_than(dense_bytes / 20):
        data = NextTokenData.from_counts(H, counts)
        assert repr(data).startswith("NextTokenData(50000 contexts, 5000 tokens, W: 5000 × 16, H =")
        assert data.smoothness > 0
        assert len(data.near_duplicates()) == 0
        assert len(data.anchors) == 50_000
        doubled = data.replace(context_embeddings=2 * H)
        assert ntpnb.cross_entropy(start(data, 1), data) > data.entropy
    np.testing.assert_allclose(doubled.smoothness, 4 * data.smoothness, rtol=1e-13)


def test_losses_of_all_records_take_the_memory_of_a_block(monkeypatch):
    # 50 records × 200 contexts × 300 tokens would be 24 MB at once, several times over.
    data = t24(1, V=300, m=200, d=4)
    by_blocks(monkeypatch, 2**16)
    with allocates_less_than(20 * 2**20):  # tables of the batch, 0.5 MB each, and records
        run = ntpnb.descend(data, ntpnb.GD(0.1), 49, record=np.arange(50))
    assert run.loss.shape == (50,)


LIMITS = {
    "target_probs": lambda data: data.target_probs,
    "candidate_counts": lambda data: data.candidate_counts,
    "support": lambda data: data.support,
    "candidates": lambda data: data.candidates,
    "components": lambda data: ntpnb.token_priority(data).components,
    "strict": lambda data: ntpnb.token_priority(data).strict,
    "equal_subspace": ntpnb.equal_subspace,
    "the table of scores": lambda data: ntpnb.scores(np.zeros(data.shape), data),
    "the table of scores ": lambda data: ntpnb.logits(np.zeros(data.shape), data),
    "the record of a run": lambda data: ntpnb.descend(data, ntpnb.GD(1.0), 99, record=range(99)),
    "a flow or path": lambda data: ntpnb.gradient_flow(data, [1.0]),
    "a flow or path ": lambda data: ntpnb.regularization_path(data, [1.0]),
}


@pytest.mark.parametrize("what", LIMITS)
def test_what_would_be_too_large_is_refused_before_memory_is_taken(monkeypatch, what):
    monkeypatch.setattr(validation, "DENSE_LIMIT", 2**22)
    monkeypatch.setattr(batch, "WHOLE", 2**20)
    H, counts = large_text(num_contexts=2000, vocab_size=4000)
    candidates = sp.csr_array(counts).astype(bool).astype(float)
    data = NextTokenData.from_counts(H, counts, candidate_counts=candidates)
    if what.strip() in ("candidates", "strict", "a flow or path"):
        data = data.replace(candidate_counts=None)
    needed = rf"{what.strip()} needs a dense array of .* more than"
    with allocates_less_than(2**22), pytest.raises(ValueError, match=needed):
        LIMITS[what](data)


@pytest.mark.parametrize(
    ("name", "read", "advice"),
    [
        ("support", lambda data: data.support, "use the indices of sparse_target_probs"),
        ("candidates", lambda data: data.candidates, "use the indices of sparse_candidate_counts"),
        (
            "row_components",
            lambda data: row_components(data, ntpnb.token_priority(data)),
            "use fewer contexts or a smaller vocabulary",
        ),
    ],
)
def test_a_table_that_would_be_too_large_says_what_to_do(monkeypatch, name, read, advice):
    data = t24(0, candidates=True)
    size = data.target_probs.size
    monkeypatch.setattr(validation, "DENSE_LIMIT", size - 1)
    with pytest.raises(ValueError, match=rf"^{name} needs .* more than \d+; {advice}$"):
        read(data)
    monkeypatch.setattr(validation, "DENSE_LIMIT", size)
    read(data)


def test_a_run_whose_record_would_be_too_large_says_what_to_do(monkeypatch):
    data = t24(0)
    monkeypatch.setattr(validation, "DENSE_LIMIT", 3 * np.prod(data.shape))
    with pytest.raises(ValueError, match=r" entries, more than \d+; give record= fewer steps$"):
        ntpnb.descend(data, ntpnb.GD(0.1), 5)
    assert len(ntpnb.descend(data, ntpnb.GD(0.1), 5, record=[0, 2, 5]).steps) == 3


@pytest.mark.parametrize("kind", ["dominated candidates", "tied dimensions"])
def test_a_flow_says_which_of_its_arrays_are_too_large(monkeypatch, kind):
    size = 1 if kind == "dominated candidates" else 5
    data = t24(0, size=size)
    monkeypatch.setattr(validation, "DENSE_LIMIT", 400)
    with pytest.raises(ValueError, match=rf"a flow or path with \d+ {kind} needs a dense array"):
        ntpnb.gradient_flow(data, [1.0])


@pytest.mark.parametrize("kind", ["text", "candidates", "attention"])
def test_the_order_of_a_real_vocabulary_takes_the_memory_of_its_entries(kind):
    """20,000 contexts of 50,257 tokens, a table of a billion, against slow readings of a few."""
    m, V = 20_000, 50_257
    rng = np.random.default_rng(7)
    X = np.sort(rng.integers(0, V, (m, 8)), axis=1)  # so that sequences share last tokens
    if kind == "attention":
        data = NextTokenData.from_attention(rng.standard_normal((V, 2)), X, X[:, 3])
    else:
        data = NextTokenData.from_counts(
            rng.standard_normal((m, 2)),
            counts_of(X[:, :3], V),
            candidate_counts=counts_of(X, V) if kind == "candidates" else None,
            context_groups=np.arange(m)[::-1].copy(),
        )
    with allocates_less_than(50 * 2**20):  # of 8 GB
        order = ntpnb.token_priority(data)
    assert order.shape == (len(order.groups), V)
    laws, counts = data.sparse_target_probs, data.sparse_candidate_counts
    for name in rng.choice(order.groups, 20):
        rows = np.flatnonzero(data.context_groups == name)
        tokens = np.unique(X[rows])
        part = NextTokenData(
            data.context_embeddings[rows],
            laws[rows][:, tokens],
            candidate_counts=None if counts is None else counts[rows][:, tokens],
            context_groups=np.full(len(rows), name),
        )
        expected = ntpnb.token_priority(part)
        for pairs in ["equal"] if kind == "text" else ["equal", "strict"]:
            found = getattr(order, pairs)
            found = found[found[:, 0] == name, 1:]
            np.testing.assert_array_equal(found, tokens[getattr(expected, pairs)[:, 1:]])


# -- huge vocabularies ----------------------------------------------------------------------------


def test_a_token_of_ten_digits_works_sparsely_or_ends_clearly():
    sequences = [[0, 10**9, 3, 0, 3]]
    if validation.INDEX_BITS < 63:
        with pytest.raises(ValueError, match="4 rows of 1000000001 tokens; at most 2147483647"):
            NextTokenData.from_sequences(sequences, lambda c: [1.0, float(len(c))])
        return
    data = NextTokenData.from_sequences(sequences, lambda c: [1.0, float(len(c))])
    assert data.vocab_size == 10**9 + 1
    assert data.sparse_target_probs.nnz == 4
    assert data.entropy == 0.0
    assert data.smoothness > 0
    assert compatible_dimension(data).dim == 0
    assert data.block(slice(0, 1)).entries.token.tolist() == [10**9]
    order = ntpnb.token_priority(data)
    assert order.equal.tolist() == []
    for what, call in {
        "target_probs needs a dense array of 4 × 1000000001": lambda: data.target_probs,
        "target_probs needs a dense array of 1 × 1000000001": (
            lambda: data.block(slice(0, 1)).target_probs
        ),
        "strict needs a dense array of 4 × 1000000001": lambda: order.strict,
        "W needs a dense array of 1 × 1000000001 × 2": lambda: ntpnb.descend(data, ntpnb.GD(1), 3),
        "W needs a dense array of 1000000001 × 2": lambda: ntpnb.finite_part(data),
    }.items():
        with pytest.raises(ValueError, match=what):
            call()
    with pytest.raises(ntpnb.NotSeparableError, match="all 4000000000 strict pairs") as refused:
        ntpnb.max_margin(data)
    contradicting = refused.value.pair_weights  # 3, 0, 3 follow contexts on a line
    context, *tokens = contradicting.pairs.T
    push = contradicting.weights[:, None] * data.context_embeddings[context]
    _, place = np.unique(tokens, return_inverse=True)
    total = np.zeros((place.max() + 1, 2))
    np.add.at(total, place, np.stack([push, -push]))
    assert contradicting.weights.sum() == pytest.approx(1)
    # The promise of NotSeparableError's certificate: relative to the lengths of what is weighed.
    size = np.linalg.norm(push, axis=1).sum() * 2**0.5
    assert np.linalg.norm(total) <= 1e-12 * size
    with pytest.raises(ValueError, match=r"holds the token 10000000000; tokens must lie below"):
        NextTokenData.from_sequences([[0, 10**10]], lambda c: [1.0])


def test_attention_over_a_large_vocabulary_takes_the_memory_of_its_sequences():
    rng = np.random.default_rng(0)
    E = rng.standard_normal((40_000, 2))
    X = rng.integers(0, 40_000, (3000, 5))
    with allocates_less_than(20 * 2**20):  # of 960 MB
        data = NextTokenData.from_attention(E, X, X[:, 0])
        assert data.entropy == 0
        assert data.smoothness > 0
    assert data.sparse_candidate_counts.sum() == 15_000
    for j in (0, 2999):
        block = data.block(slice(j, j + 1))
        expected = np.bincount(X[j].astype(np.intp), minlength=40_000)
        np.testing.assert_array_equal(block.candidate_counts[0], expected)


# -- the compatible dimension ---------------------------------------------------------------------


@given(any_problem())
def test_the_compatible_dimension_of_data_and_of_tables_in_any_form(data):
    expected = compatible_dimension(data.support)
    sparse = sp.csr_array(data.support)
    for given_as in (data, sparse, sparse.tocoo(), sparse.tocsc().astype(float)):
        found = compatible_dimension(given_as)
        assert (found.dim, found.equations) == (expected.dim, expected.equations)
        np.testing.assert_array_equal(found.tokens, expected.tokens)


def test_the_compatible_dimension_of_a_large_vocabulary():
    # Two tokens of 10^6 share 40 contexts, the others none.
    rows = np.arange(40).repeat(2)
    tokens = np.tile([17, 999_999], 40)
    support = sp.csr_array((np.ones(80), (rows, tokens)), shape=(40, 10**6))
    found = compatible_dimension(support)
    assert (found.dim, found.tokens.tolist(), found.equations) == (40, [17, 999_999], 40)
