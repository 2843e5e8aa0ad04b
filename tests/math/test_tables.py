"""Tables of contexts and tokens in every format and type: what is read, and what is refused."""

import copy
import pickle
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from problems import ARGUMENTS, any_problem, changed, regimes, t24
from saved import again

import ntpnb
from ntpnb import NextTokenData
from ntpnb.basics import validation
from ntpnb.basics.validation import LARGEST_SUM_TOLERANCE, SUM_TOLERANCE
from ntpnb.problem import table

EPS = np.finfo(float).eps
H = [[0.0, 1.0], [1.0, 0.0]]
P = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
FORMATS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


def in_format(dense, name, as_matrix=False):
    """The same numbers as a scipy.sparse array, or as one of its older matrices."""
    kind = getattr(sp, f"{name}_{'matrix' if as_matrix else 'array'}")
    return kind(dense)


def made_sparse(data, name="csr", as_matrix=False):
    """Data built again from sparse tables."""
    C = data.candidate_counts
    return changed(
        data,
        target_probs=in_format(data.target_probs, name, as_matrix),
        candidate_counts=None if C is None else in_format(C, name, as_matrix),
    )


def everything(data):
    """What the package computes from data without solving anything."""
    W = np.random.default_rng(5).standard_normal((2, *data.shape))
    order = ntpnb.token_priority(data)
    return {
        "laws": data.target_probs,
        "counts": 0 if data.candidate_counts is None else data.candidate_counts,
        "support": data.support,
        "candidates": data.candidates,
        "anchors": data.anchors,
        "entropy": data.entropy,
        "smoothness": data.smoothness,
        "loss": ntpnb.cross_entropy(W, data),
        "gradient": ntpnb.gradient(W, data),
        "excess": ntpnb.excess_loss(W, data),
        "components": order.components,
        "equal": order.equal,
        "strict": order.strict,
    }


# -- formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", regimes())
def test_every_format_agrees_with_dense_to_the_last_bit(name, monkeypatch):
    dense = regimes()[name]
    expected = everything(changed(dense))
    for kind, as_matrix in product(FORMATS, [False, True]):
        found = everything(made_sparse(dense, kind, as_matrix))
        for key in expected:
            np.testing.assert_array_equal(found[key], expected[key], err_msg=f"{key}, {kind}")
    monkeypatch.setattr(table, "LARGE", 0)
    # Two algorithms for one eigenvalue of a matrix with q columns.
    np.testing.assert_allclose(made_sparse(dense).smoothness, dense.smoothness, rtol=1e-13)


def test_sparse_tables_are_canonical_and_say_what_dense_ones_say():
    dense = t24(20, V=6, m=10, candidates=True)
    for name in FORMATS:
        data = made_sparse(dense, name)
        for matrix, array in (
            (data.sparse_target_probs, data.target_probs),
            (data.sparse_candidate_counts, data.candidate_counts),
        ):
            assert matrix.has_canonical_format
            assert matrix.dtype == np.float64
            assert (matrix.data > 0).all()
            np.testing.assert_array_equal(matrix.toarray(), array)
    assert dense.sparse_target_probs.nnz == dense.support.sum()
    assert t24(0).sparse_candidate_counts is None


@given(any_problem())
def test_a_table_says_of_rows_and_places_what_its_array_says(data):
    rows = slice(len(data.context_probs) // 2, len(data.context_probs))
    P = data.target_probs
    laws = table.as_table("laws", P)
    row, token, value = laws.part(rows).entries
    np.testing.assert_array_equal((row, token), np.nonzero(P[rows]))
    for found, expected in (
        (laws.dense, P),
        (laws.part(rows).dense, P[rows]),
        (value, P[rows][row, token]),
        (laws.num_entries(), (P > 0).sum(1)),
        (laws.entries.token[laws.first_entries()], (P > 0).argmax(1)),
        (laws.has(*np.nonzero(np.ones(P.shape))), P.ravel() > 0),
        (laws.largest_tokens, P.argmax(1)),
        (data.block(rows).target_probs, P[rows]),
        (data.block(rows).support, P[rows] > 0),
    ):
        np.testing.assert_array_equal(found, expected)
    rounding = P.shape[1] * EPS  # of each of two sums
    np.testing.assert_allclose(laws.row_sums(), P.sum(1), rtol=2 * rounding)


def test_numbers_of_entries_are_combined_row_by_row_in_stacks_and_where_rows_are_empty():
    counts = table.as_table("counts", [[0.0, 0.0], [1.0, 2.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
    stack = np.array([[1.0, 2.0, 4.0], [-1.0, -5.0, -3.0]])
    np.testing.assert_array_equal(
        counts.sums_in_rows(stack), [[0.0, 3.0, 0.0, 4.0, 0.0], [0.0, -6.0, 0.0, -3.0, 0.0]]
    )
    lowest = -np.inf
    np.testing.assert_array_equal(
        counts.largest_in_rows(stack),
        [[lowest, 2.0, lowest, 4.0, lowest], [lowest, -1.0, lowest, -3.0, lowest]],
    )
    assert counts.sums_in_rows(np.ones((2, 0, 3))).shape == (2, 0, 5)


# -- types, duplicates, explicit zeros ------------------------------------------------------------


TYPES = [np.int8, np.int64, np.uint8, np.uint64, np.float32]
TYPES_IN_FORMATS = [(dtype, name) for dtype in TYPES for name in ("csr", "csc", "coo", None)]


@pytest.mark.parametrize(("dtype", "name"), [*TYPES_IN_FORMATS, (np.float16, None)])
def test_counts_of_every_type(dtype, name):
    counts = np.array([[3, 0, 1], [0, 120, 7]])
    given_counts = counts.astype(dtype)
    if name is not None:
        given_counts = in_format(given_counts, name)
    data = NextTokenData.from_counts(H, given_counts, candidate_counts=given_counts)
    sums = counts.sum(1)
    np.testing.assert_array_equal(data.target_probs, counts / sums[:, None])
    np.testing.assert_array_equal(data.context_probs, sums / sums.sum())
    np.testing.assert_array_equal(data.candidate_counts, counts)


@pytest.mark.parametrize("name", ["csr", "csc"])
def test_numbers_of_half_precision_are_read_though_scipy_cannot(name):
    laws = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    halves = in_format(laws, name)
    halves.data = halves.data.astype(np.float16)
    np.testing.assert_array_equal(NextTokenData(H, halves).target_probs, laws)


PLACES = ([0, 0, 0, 1], [0, 0, 1, 2])
SAME = {
    "truth values": (sp.csr_array([[True, False, False], [False, False, True]]), np.eye(3)[[0, 2]]),
    "duplicates": (sp.coo_array(([0.25, 0.25, 0.5, 1.0], PLACES), shape=(2, 3)), P),
    "negative duplicates": (sp.coo_array(([0.75, -0.25, 0.5, 1.0], PLACES), shape=(2, 3)), P),
}


@pytest.mark.parametrize("case", SAME)
def test_entries_count_by_their_sum(case):
    laws, expected = SAME[case]
    np.testing.assert_array_equal(NextTokenData(H, laws).target_probs, expected)


def test_short_integers_are_added_up_in_double_precision():
    # 200 + 100 is no uint8.
    short = sp.coo_array((np.array([200, 100, 1], np.uint8), ([0, 0, 1], [2, 2, 0])), shape=(2, 3))
    data = NextTokenData.from_counts(H, short)
    np.testing.assert_array_equal(data.context_probs, np.array([300, 1]) / 301)


@pytest.mark.parametrize("name", ["csr", "csc", "coo"])
def test_explicit_zeros_are_neither_support_nor_candidates(name):
    positions = ([0, 0, 0, 1], [0, 1, 2, 2])
    laws = sp.coo_array(([0.5, 0.5, 0.0, 1.0], positions), shape=(2, 3)).asformat(name)
    counts = sp.coo_array(([2, 1, 0, 3], positions), shape=(2, 3)).asformat(name)
    assert laws.nnz == counts.nnz == 4
    data = NextTokenData(H, laws, candidate_counts=counts)
    np.testing.assert_array_equal(data.support, P > 0)
    np.testing.assert_array_equal(data.candidates, P > 0)
    assert data.sparse_target_probs.nnz == data.sparse_candidate_counts.nnz == 3
    assert len(ntpnb.token_priority(data).strict) == 0


# -- what is refused ------------------------------------------------------------------------------

# By what is said, the arguments that are given instead or besides.
REFUSED = {
    "row 0 sums to 0.97; it must sum": {"target_probs": [[0.5, 0.47, 0], [0, 0, 1]]},
    r"target_probs\[0, 2\] is -0.25; no probability may be negative": {
        "target_probs": [[0.5, 0.75, -0.25], [0, 0, 1]]
    },
    r"target_probs\[1, 1\] is nan; every entry must be finite": {
        "target_probs": [[0.5, 0.5, 0], [0, np.nan, 1]]
    },
    r"candidate_counts\[1, 1\] is inf; every entry must be finite": {
        "candidate_counts": [[1, 1, 1], [1, np.inf, 1]]
    },
    "target_probs row 1 is all zero; its support is empty": {
        "target_probs": [[0.5, 0.5, 0], [0, 0, 0]]
    },
    r"candidate_counts has shape \(2, 2\); it needs \(2, 3\)": {
        "candidate_counts": np.ones((2, 2))
    },
    "context_embeddings has 2 rows but target_probs has 3": {"target_probs": np.eye(3)},
    r"target_probs \(2, 0\); at least": {"target_probs": np.zeros((2, 0))},
    "target_probs is not a rectangular array of numbers": {"target_probs": P * 1j},
    r"candidate_counts\[1, 1\] is -2; counts must be zero or lie between": {
        "candidate_counts": [[1, 1, 1], [1, -2, 1]]
    },
    r"candidate_counts\[1, 1\] is 1e\+40; counts must be zero or lie between": {
        "candidate_counts": [[1, 1, 1], [1, 1e40, 1]]
    },
    r"candidate_counts\[0, 1\] is 0 but target_probs\[0, 1\] is 0.5; .* must be a candidate": {
        "candidate_counts": [[1, 0, 1], [1, 1, 1]]
    },
    r"context_probs\[0\] · target_probs\[0, 1\] is 1e-200 · 1e-200, which rounds to 0": {
        "target_probs": [[1, 1e-200, 0], [0, 0, 1]],
        "context_probs": [1e-200, 1],
    },
}
COUNTS_REFUSED = {
    r"counts\[0, 1\] is -1; counts must be whole numbers": [[1, -1], [1, 1]],
    r"counts\[1, 0\] is 0.5; counts must be whole numbers": [[1, 2], [0.5, 1]],
    "counts row 1 is all zero; every context needs a token": [[1, 2], [0, 0]],
    "context_embeddings has 2 rows but counts has 1": [[1, 2]],
}


def given_as(table, name):
    """The table in one of the formats, or as an array where that has no name."""
    return table if name is None else in_format(np.asarray(table), name)


@pytest.mark.parametrize("name", ["csr", "csc", "coo", None])
@pytest.mark.parametrize("message", REFUSED)
def test_bad_tables_are_named_in_every_format(message, name):
    arguments = {"target_probs": P} | REFUSED[message]
    for key in arguments.keys() & {"target_probs", "candidate_counts"}:
        arguments[key] = given_as(arguments[key], name)
    with pytest.raises(ValueError, match=message):
        NextTokenData(H, **arguments)


@pytest.mark.parametrize("name", ["csr", None])
@pytest.mark.parametrize("message", COUNTS_REFUSED)
def test_bad_counts_are_named(message, name):
    with pytest.raises(ValueError, match=message):
        NextTokenData.from_counts(H, given_as(COUNTS_REFUSED[message], name))


DAMAGE = {
    "an index too large": lambda laws: laws.indices.put(1, 7),
    "an index too small": lambda laws: laws.indices.put(1, -1),
    "a pointer beyond the entries": lambda laws: laws.indptr.put(-1, 10**6),
    "pointers that fall": lambda laws: laws.indptr.put(1, 4),
    "no first pointer": lambda laws: laws.indptr.put(0, 1),
    "a pointer too few": lambda laws: setattr(laws, "indptr", laws.indptr[:-1]),
    "an entry too few": lambda laws: setattr(laws, "data", laws.data[:-1]),
}
DAMAGE_OF_COORDINATES = {
    "a coordinate too large": lambda laws: laws.coords[1].put(1, 7),
    "a coordinate too small": lambda laws: laws.coords[1].put(1, -1),
    "a coordinate too many": DAMAGE["an entry too few"],
}
DAMAGED = [*product(("csr", "csc", "bsr"), DAMAGE), *product(("coo",), DAMAGE_OF_COORDINATES)]


@pytest.mark.parametrize(("name", "damage"), DAMAGED)
def test_what_leads_nowhere_is_refused(name, damage):
    laws = in_format(P, name)
    (DAMAGE | DAMAGE_OF_COORDINATES)[damage](laws)
    with pytest.raises(ValueError, match=r"target_probs is a damaged sparse matrix: .*ind"):
        NextTokenData(H, laws)


# -- precision ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "as_sparse"), [(np.float32, False), (np.float32, True), (np.float16, False)]
)
def test_rows_rounded_to_less_precision_are_taken_and_rescaled(dtype, as_sparse):
    exact = np.random.default_rng(2).dirichlet(np.ones(3), size=100)
    rounded = exact.astype(dtype)
    assert np.abs(rounded.astype(float).sum(1) - 1).max() > SUM_TOLERANCE  # not for float64
    data = NextTokenData(np.ones((100, 1)), sp.csr_array(rounded) if as_sparse else rounded)
    assert np.abs(data.target_probs.sum(1) - 1).max() <= 3 * EPS
    # Each entry was rounded once, to a number of the type, and rescaled by their sum's error.
    unit = float(np.finfo(dtype).eps)
    smallest = float(np.finfo(dtype).smallest_subnormal)
    error = np.abs(data.target_probs - exact)
    assert (error <= unit * exact + smallest).all()
    with pytest.raises(ValueError, match=r"it must sum to one \(within 1e-08\)"):
        NextTokenData(np.ones((100, 1)), rounded.astype(float))


def test_sums_computed_in_single_precision_are_taken():
    # A vocabulary of a language model, added up one after the other: an error of 1e-4.
    weights = np.random.default_rng(3).random(50_257).astype(np.float32)
    law = weights / weights.cumsum(dtype=np.float32)[-1]
    assert abs(law.astype(float).sum() - 1) > 1e-6
    NextTokenData([[1.0]], law[None])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_forgotten_token_is_noticed_in_any_precision(dtype):
    law = np.full((1, 64), 1 / 64, dtype=dtype)
    law[0, 0] = 0
    with pytest.raises(ValueError, match=r"row 0 sums to 0\.984375; it must sum"):
        NextTokenData([[1.0]], law)


def test_the_tolerance_grows_with_the_entries_between_its_ends():
    single = np.float32
    eps = float(np.finfo(single).eps)
    tolerance = ntpnb.basics.validation.sum_tolerance
    assert tolerance(1000, np.float64) == SUM_TOLERANCE
    assert tolerance(1000, np.int64) == SUM_TOLERANCE
    assert tolerance(1000, single) == 1000 * eps
    assert tolerance(10**9, single) == LARGEST_SUM_TOLERANCE
    with pytest.raises(ValueError, match=rf"within {5 * eps:g}"):
        NextTokenData([[1.0]], np.array([[0.2, 0.2, 0.2, 0.2, 0.1]], dtype=single))
    with pytest.raises(ValueError, match=r"context_probs sums to 1\.1"):
        NextTokenData(H, P, np.array([0.5, 0.6], dtype=single))
    pi = np.array([1 / 3, 1 / 3 + 1e-7, 1 / 3], dtype=single)
    assert abs(NextTokenData(np.eye(3), np.eye(3), pi).context_probs.sum() - 1) <= EPS


# -- counts ---------------------------------------------------------------------------------------


def test_from_counts_passes_everything_on():
    reference = t24(22, V=6, m=10, rows=3, candidates=True, tokens=4)
    counts = (reference.support * np.arange(1, 7)).astype(int)
    data = NextTokenData.from_counts(
        reference.context_embeddings,
        counts,
        token_embeddings=reference.token_embeddings,
        candidate_counts=reference.candidate_counts,
        context_groups=reference.context_groups,
    )
    for name in ("token_embeddings", "candidate_counts", "context_groups"):
        np.testing.assert_array_equal(getattr(data, name), getattr(reference, name))
    np.testing.assert_array_equal(data.support, reference.support)


# -- what is kept ---------------------------------------------------------------------------------


def test_sparse_input_is_neither_followed_nor_changed():
    laws = sp.csr_array(([0.25, 0.5, 0.25, 0.0, 1.0], [1, 0, 1, 1, 2], [0, 3, 5]), shape=(2, 3))
    laws.data = np.append(laws.data, 7.0)  # room that no pointer leads to
    laws.indices = np.append(laws.indices, 9)
    data = NextTokenData(H, laws)
    assert laws.data.tolist() == [0.25, 0.5, 0.25, 0.0, 1.0, 7.0]
    assert laws.indices.tolist() == [1, 0, 1, 1, 2, 9]
    laws.data[:] = 9.0
    laws.indices[:] = 0
    np.testing.assert_array_equal(data.target_probs, P)


def read_only_arrays(data):
    """All arrays of data, and of the tables that are derived from them."""
    matrices = [data.sparse_target_probs, data.sparse_candidate_counts]
    parts = [getattr(m, part) for m in matrices for part in ("data", "indices", "indptr")]
    return [getattr(data, name) for name in (*ARGUMENTS, "support", "candidates")] + parts


COPIES = {
    "itself": lambda data: data,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda data: pickle.loads(pickle.dumps(data)),
    "file": again,
}


@pytest.mark.parametrize("way", COPIES)
def test_data_are_read_only_in_every_copy(way):
    data = made_sparse(t24(22, V=6, m=10, rows=3, candidates=True, tokens=4))
    read_only_arrays(data)  # derived before it is copied
    moved = COPIES[way](data)
    for array, original in zip(read_only_arrays(moved), read_only_arrays(data), strict=True):
        assert not array.flags.writeable
        np.testing.assert_array_equal(array, original)
    assert moved.entropy == data.entropy
    with pytest.raises(ValueError, match="read-only"):
        moved.sparse_target_probs.data[0] = 1.0


def test_replacing_one_argument_keeps_the_others_sparse():
    data = made_sparse(t24(20, V=6, m=10, candidates=True))
    moved = data.replace(context_embeddings=2 * data.context_embeddings)
    assert "dense" not in vars(moved._laws)
    np.testing.assert_allclose(moved.target_probs, data.target_probs, rtol=10 * EPS)
    np.testing.assert_array_equal(moved.candidate_counts, data.candidate_counts)


SOFT = [[0.6, 0.4 - 2e-12, 1e-12, 1e-12], [1e-12, 0.5, 0.5 - 1e-12, 0.0]]


@pytest.mark.parametrize("held", [np.array, sp.csr_array, lambda P: sp.csr_array(P).tocsc()])
def test_small_probabilities_may_count_as_zero(held):
    H = np.eye(2)
    soft = NextTokenData(H, held(SOFT))
    assert soft.support.sum() == 7
    data = NextTokenData(H, held(SOFT), support_threshold=1e-12)
    assert data.support.tolist() == [[True, True, False, False], [False, True, True, False]]
    assert np.allclose(data.target_probs.sum(1), 1, rtol=0, atol=1e-15)
    assert np.allclose(data.target_probs, SOFT, rtol=0, atol=1e-11)
    by_replacing = soft.replace(support_threshold=1e-12)
    assert np.array_equal(by_replacing.target_probs, data.target_probs)
    # Ordered again: what a softmax only nearly forbids is dominated.
    assert len(ntpnb.token_priority(data).strict) > len(ntpnb.token_priority(soft).strict)


def test_more_positions_than_an_index_can_number_are_refused(monkeypatch):
    """In a browser an index has 32 bits, and products of sizes would pass them unnoticed."""
    monkeypatch.setattr(table, "MOST_POSITIONS", 11)
    assert NextTokenData(H, P).vocab_size == 3
    needed = "target_probs has 3 rows of 4 tokens; at most 11 positions can be numbered here"
    for as_given in (np.array, sp.csr_array):
        with pytest.raises(ValueError, match=needed):
            NextTokenData(np.eye(3), as_given(np.eye(3, 4)))
    with pytest.raises(ValueError, match=r"^counts has 3 rows of 4 tokens; at most 11"):
        NextTokenData.from_hidden_states(np.eye(3), [0, 1, 2], vocab_size=4)


def test_a_number_that_an_index_cannot_hold_is_refused(monkeypatch):
    """In a browser -2³² + 1 would come out as the token 1."""
    monkeypatch.setattr(validation, "INDEX_BITS", 31)
    for held in (np.array([-(2**31), 2**31 - 1]), np.array([2**31 - 1], dtype=np.uint64)):
        np.testing.assert_array_equal(validation.as_indices("tokens", held), held)
    for outside in (-(2**32) + 1, 2**32 + 1, 2**63):
        needed = "from -2" if outside < 0 else "below 2"
        with pytest.raises(ValueError, match=rf"tokens holds {outside}; .* {needed}\*\*31"):
            validation.as_indices("tokens", np.array([outside]))
