"""The container: what it accepts, and what it derives."""

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from problems import ARGUMENTS, any_problem, regimes, start, t24
from scipy.spatial.distance import pdist
from scipy.stats import entropy

from ntpnb import NextTokenData, datasets

EPS = np.finfo(float).eps
H = [[0.0, 1.0], [1.0, 0.0]]
P = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]


def make(**changes):
    return NextTokenData(**({"context_embeddings": H, "target_probs": P} | changes))


# -- what is accepted -----------------------------------------------------------------------------


def test_rows_off_by_rounding_are_rescaled():
    data = make(target_probs=[[0.5, 0.5 + 5e-9, 0], [0, 0, 1]], context_probs=[0.5 - 5e-9, 0.5])
    # each sum is one division per entry away from exact
    assert np.abs(data.target_probs.sum(1) - 1).max() <= EPS
    assert abs(data.context_probs.sum() - 1) <= EPS


def test_every_layout_gives_the_same_data():
    reference = t24(3, V=4, m=6, d=3, tokens=2, rows=2, candidates=True)
    arguments = {name: getattr(reference, name) for name in ARGUMENTS}
    layouts = {
        "lists": lambda a: a.tolist(),
        "columns first": np.asfortranarray,
        "every second": lambda a: np.repeat(a, 2, axis=0)[::2],
        "backwards twice": lambda a: a[::-1].copy()[::-1],
        "read-only": lambda a: a,
    }
    for layout in layouts.values():
        data = NextTokenData(**{name: layout(a) for name, a in arguments.items()})
        for name in arguments:
            found = getattr(data, name)
            # rescaling rows that sum to one already may move the last bit
            np.testing.assert_allclose(found, getattr(reference, name), rtol=2 * EPS)
            assert found.dtype == (np.intp if name == "context_groups" else np.float64)


def test_data_neither_follow_nor_change_their_input():
    array = np.array(H)
    data = make(context_embeddings=array)
    array[0, 0] = 9.0
    assert data.context_embeddings[0, 0] == 0.0
    for name in ("context_embeddings", "target_probs", "context_probs", "context_groups"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, name)[0] = 1


def test_shapes_and_defaults():
    data = make()
    assert data.shape == (3, 2)
    assert data.vocab_size == 3
    assert data.token_embeddings is None
    assert data.candidate_counts is None
    assert data.contexts is None
    assert data.candidates.all()
    assert data.context_probs.tolist() == [0.5, 0.5]
    assert data.context_groups.tolist() == [0, 1]
    assert make(token_embeddings=np.ones((3, 7))).shape == (7, 2)
    assert "2 contexts, 3 tokens, W: 3 × 2" in repr(data)


def test_groups_keep_their_names():
    data = NextTokenData([[1.0], [2.0], [1.0]], np.eye(3), context_groups=[7, -2, 7])
    assert data.group_names.tolist() == [-2, 7]
    assert data.group_index.tolist() == [1, 0, 1]
    assert data.group_embeddings.tolist() == [[2.0], [1.0]]


# -- entropy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", regimes())
def test_entropy_matches_scipy(name):
    data = regimes()[name]
    expected = data.context_probs @ entropy(data.target_probs, axis=1)
    # a sum of at most m·V terms below one nat each
    assert abs(data.entropy - expected) <= 100 * EPS


def test_a_subnormal_probability_counts():
    tiny = NextTokenData([[1.0]], [[1.0, 1e-320]])  # a subnormal target probability is support
    assert tiny.support.all()
    assert 0 <= tiny.entropy <= 1e-317


# -- smoothness -----------------------------------------------------------------------------------


@given(any_problem(), st.integers(0, 99), st.sampled_from([0.0, 1.0, 10.0]))
def test_no_curvature_exceeds_the_smoothness(data, seed, scale):
    W = scale * start(data, seed)
    top = np.linalg.eigvalsh(reference.hessian(W, data)).max(initial=0.0)
    # both are eigenvalues of matrices of that size, computed to a few units roundoff per row
    assert top <= data.smoothness * (1 + 1e-13) + 1e-300


def test_smoothness_of_the_linear_decoder():
    data = t24(4, V=5, m=9, d=4)
    h = data.context_embeddings
    top = np.linalg.eigvalsh(h.T @ (data.context_probs[:, None] * h)).max()
    assert abs(data.smoothness - top / 2) <= 1e-14 * top  # two routes to one 4 × 4 eigenvalue


def test_smoothness_ignores_rows_and_tokens_that_cannot_move():
    single = NextTokenData([[5.0], [1.0]], np.eye(2), candidate_counts=[[1, 0], [1, 1]])
    assert abs(single.smoothness - 0.5 * 0.5) <= EPS  # the first row has nothing to choose
    far = NextTokenData(
        [[1.0]], [[1, 0, 0]], token_embeddings=[[0], [2], [99]], candidate_counts=[[1, 1, 0]]
    )
    assert abs(far.smoothness - 1.0) <= EPS  # diameter 2: token 2 is no candidate


def test_diameters_of_a_large_vocabulary():
    # more tokens than one block of distances holds, with the farthest pair across blocks
    T = np.random.default_rng(5).standard_normal((1100, 3))
    T[3], T[1099] = 10.0, -10.0
    P = np.zeros((1, 1100))
    P[0, 0] = 1
    data = NextTokenData([[1.0]], P, token_embeddings=T)
    assert (
        abs(data.smoothness - pdist(T).max() ** 2 / 4) <= 1e-13 * data.smoothness
    )  # a few roundings


@pytest.mark.parametrize("rows", [slice(None), slice(-2, None), slice(1, 99), slice(2, 1)])
def test_a_block_reads_its_slice_as_numpy_does(rows):
    data = datasets.toy()
    block = data.block(rows)
    assert block.target_probs.tolist() == data.target_probs[rows].tolist()
    assert block.context_embeddings.tolist() == data.context_embeddings[rows].tolist()
    with pytest.raises(ValueError, match="the step 2; it needs the step 1"):
        data.block(slice(0, 3, 2))
