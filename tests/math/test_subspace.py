"""The tied subspace against dense linear algebra over the generators of all pairs."""

import mpmath
import numpy as np
import pytest
import reference
from exact import many, orthonormal_basis
from hypothesis import given
from numpy.testing import assert_allclose, assert_array_equal
from problems import any_problem, changed, l24, regimes, start, t24

import ntpnb
from ntpnb import NextTokenData
from ntpnb.basics.watch import Watch
from ntpnb.problem.order import token_priority
from ntpnb.tied import subspace
from ntpnb.tied.subspace import equal_subspace


def check_subspace(data, tolerance):
    F = equal_subspace(data)
    dense = reference.equal_basis(data)
    assert F.dim == len(dense)
    W = np.random.default_rng(1).standard_normal((2, 3, *data.shape))
    flat = W.reshape(2, 3, -1)
    expected = (flat @ dense.T @ dense).reshape(W.shape)
    assert np.abs(F.project(W) - expected).max() <= tolerance
    assert np.abs(F.reject(W) - (W - expected)).max() <= tolerance
    basis = F.basis
    assert basis.shape == (F.dim, *data.shape)
    flat = basis.reshape(F.dim, dense.shape[1])
    assert np.abs(flat @ flat.T - np.eye(F.dim)).max(initial=0) <= 1e-13  # a factor of one SVD
    assert np.abs(flat - flat @ dense.T @ dense).max(initial=0) <= tolerance


# With generic embeddings the Gram matrices of these sizes have condition numbers up to 1e3, and
# both routes lose that many of 16 digits. Norms do not matter: each route normalises.
GENERIC = 1e-12


@pytest.mark.parametrize("name", regimes())
def test_dimension_and_projection_match_a_dense_svd(name):
    check_subspace(regimes()[name], GENERIC)


@given(any_problem() | any_problem(norms=6))
def test_any_subspace_matches_a_dense_svd(data):
    # nearly dependent draws do occur among random ones: three more digits
    check_subspace(data, 1e3 * GENERIC)


@pytest.mark.parametrize("seed", range(20))
def test_a_context_of_zeros_ties_nothing(seed):
    """Whatever ties there, and also where only such contexts restrict what tokens share."""
    data = t24(seed, V=6, m=4, d=3, size=(2, 4))
    H = data.context_embeddings.copy()
    H[seed % 4] = 0.0
    check_subspace(changed(data, context_embeddings=H), GENERIC)


def test_a_context_of_zeros_beside_two_that_share_a_token():
    H = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    P = [[0.2, 0.8, 0, 0, 0], [0.3, 0, 0.7, 0, 0], [0, 0, 0, 0.5, 0.5]]
    data = NextTokenData(H, P)
    check_subspace(data, GENERIC)
    assert np.abs(ntpnb.finite_part(data).W.sum(0)).max() <= 1e-14


@pytest.mark.parametrize("seed", range(20))
def test_norms_over_eight_decades_cost_no_digits(seed):
    K, d = [(6, 8), (8, 3), (5, 5), (7, 6)][seed % 4]
    check_subspace(l24(seed, K=K, d=d, n=12, norms=8, cyclic=True), GENERIC)
    check_subspace(t24(seed, m=K + 3, d=d, size=(2, 4), norms=8), GENERIC)


def test_duplicated_tokens_and_contexts():
    E = np.random.default_rng(4).standard_normal((5, 4))
    E[3], E[4] = E[1], -2 * E[0]
    cycle = [(0, 1, 2), (1, 3, 0, 2), (3, 0, 1, 2)]
    data = NextTokenData.from_attention(E, cycle, [0, 1, 3])
    check_subspace(data, GENERIC)
    assert equal_subspace(data).dim == 1  # tokens 1 and 3 coincide
    cycle = [(0, 4), (4, 0, 4), (1, 0), (0, 1, 3, 0), (3, 1, 0)]
    check_subspace(NextTokenData.from_attention(E, cycle, [0, 4, 1, 0, 3]), GENERIC)
    twice = NextTokenData([[1.0, 2.0]] * 3, [[0.5, 0.5, 0], [0.2, 0.8, 0], [0, 0.5, 0.5]])
    check_subspace(twice, GENERIC)
    assert equal_subspace(twice).dim == 2


def nearly_parallel(gap):
    """Four contexts in the plane, so that common scores are bound, two of them nearly parallel."""
    P = [[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0, 0.5, 0], [0, 0.5, 0, 0.5]]
    return NextTokenData([[1, 0], [1, gap], [0, 1], [1, 2]], P)


def two_contexts(gap, T=None):
    """Independent ones, of which one has a third token."""
    return NextTokenData([[1, 0, 0], [1, gap, 0]], [[0.5, 0.5, 0], [0.3, 0.3, 0.4]], None, T)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize(
    "make", [nearly_parallel, two_contexts, lambda gap: two_contexts(gap, np.eye(3))]
)
def test_a_small_gap_costs_its_share_of_the_digits_and_not_its_square(make, gap):
    data = make(gap)
    F = equal_subspace(data)
    W = start(data)
    with mpmath.workdps(60):
        basis = orthonormal_basis(data)
        expected = (basis.T @ (basis @ many(W).ravel())).astype(float).reshape(data.shape)
    assert F.dim == len(basis)
    assert np.abs(F.project(W) - expected).max() <= 1e-14 / gap


def test_contexts_that_are_nearly_one_are_refused_where_rounding_may_decide_what_ties_share():
    """Of three contexts in a plane two scores are free, unless what misses them is no rounding."""
    H = [[1.0, 0.0], [1.0, 1e-7], [1.0, 2e-7]]
    message = (
        r"^the embeddings of contexts 0, 2 are linearly dependent but for 8\.2e-08 of their "
        r"length, so that rounding may turn what their ties span by 4\.7e-08; merge_tolerance "
        r"makes one of nearly equal contexts, and others need directions of more equal scale$"
    )
    with pytest.raises(ValueError, match=message):
        equal_subspace(NextTokenData(H, np.full((3, 2), 0.5)))


@pytest.mark.parametrize("gap", [1e-2, 1e-3, 1e-4, 1e-5])
def test_fit_between_nearly_parallel_contexts(gap):
    data = nearly_parallel(gap)
    rng = np.random.default_rng(1)
    W, shifts = rng.standard_normal(data.shape), rng.standard_normal((4, 1))
    F = equal_subspace(data)
    # a common score of a context's tokens must not count; the gap costs its share of the digits
    # where the score is found, and again where the rows are
    found = F.fit(data.context_embeddings @ W.T + shifts)
    assert np.abs(found - F.project(W)).max() <= 1e-14 / gap**2


@pytest.mark.parametrize("name", regimes())
def test_fit_returns_the_projection_of_what_made_the_targets(name):
    """Attainable targets, shifted by a common score of each component, which must not count."""
    data = regimes()[name]
    rng = np.random.default_rng(4)
    W = rng.standard_normal(data.shape)
    T = reference.token_embeddings(data)
    targets = data.group_embeddings @ W.T @ T.T
    order = token_priority(data)
    shifts = rng.standard_normal(order.components.max() + 1)
    targets = targets + np.where(order.components >= 0, shifts[order.components], np.nan)
    F = equal_subspace(data)
    # shifts of size one, divided by the shortest embedding, are what the differences must cancel
    h = np.linalg.norm(data.group_embeddings, axis=1)
    reach = 1 / h[h > 0].min(initial=1)
    assert np.abs(F.fit(targets) - F.project(W)).max() <= GENERIC * reach


@pytest.mark.parametrize("make", [t24, l24])
@pytest.mark.parametrize("norms", [0, 6])
def test_whitening_gives_curvature_of_size_one(make, norms):
    """At W = 0 the restricted Hessian has eigenvalues of size one on F, at any scale."""
    for seed in range(10):
        data = make(seed, norms=norms, **({"size": (2, 3)} if make is t24 else {"cyclic": True}))
        rare = 10.0 ** -(np.arange(len(data.group_names)) % 4)  # contexts from common to rare
        weights = data.context_probs * rare[data.group_index]
        data = changed(data, context_probs=weights / weights.sum())
        F = equal_subspace(data)
        tied = ntpnb.tied.finite.restrict(data)
        whiten = F.whitening()
        size = int(np.prod(data.shape))
        A = np.array([whiten(e.reshape(data.shape)).ravel() for e in np.eye(size)])
        assert (
            np.abs(A - A.T).max() <= 1e-9 * np.abs(A).max()
        )  # symmetric, up to the spread's digits
        values = np.linalg.eigvalsh(A @ reference.hessian(np.zeros(data.shape), tied) @ A.T)[::-1]
        assert values[0] <= data.vocab_size
        assert values[F.dim - 1] >= 0.1 / data.vocab_size**2 / len(data.context_probs)
        # off F only rounding, which the spread of the norms magnifies by its square
        assert np.abs(values[F.dim :]).max(initial=0) <= 1e-3 * values[F.dim - 1]


@pytest.mark.parametrize(("T", "length"), [(None, 1.0), (np.eye(2), 2**0.5)])
def test_whitening_takes_a_long_context_that_is_rare_for_a_short_one(T, length):
    """Beside it the short one's length alone would be rounding; a tie counts by its token's."""
    data = NextTokenData([[1e17, 0], [0, 1]], np.full((2, 2), 0.5), [1e-34, 1.0], T)
    G = np.array([[1.0, 2.0], [-1.0, -2.0]])
    found = equal_subspace(data).whitening()(G)
    assert_allclose(found, G / length, rtol=1e-12)


@pytest.mark.parametrize("T", [None, np.eye(3)])
@pytest.mark.parametrize("shape", [(2, 2), (4, 2), (3, 3)])
def test_whitening_drops_no_row_of_a_wrong_matrix(T, shape):
    data = NextTokenData(np.eye(2), np.full((2, 3), 1 / 3), token_embeddings=T)
    with pytest.raises(ValueError, match=r"^W has shape .*; its last two axes must be \(3, 2\)$"):
        equal_subspace(data).whitening()(np.ones(shape))


@pytest.mark.parametrize("T", [None, np.eye(3)])
def test_whitening_takes_stacks(T):
    data = NextTokenData(np.diag([1.0, 0.1]), np.full((2, 3), 1 / 3), token_embeddings=T)
    stack = np.random.default_rng(0).standard_normal((2, 4, *data.shape))
    whiten = ntpnb.equal_subspace(data).whitening()
    each = [[whiten(W) for W in part] for part in stack]
    np.testing.assert_allclose(whiten(stack), each, rtol=1e-12)


def test_a_huge_basis_is_refused():
    P = np.zeros((2, 3000))
    P[:, :1500] = 1 / 1500
    data = NextTokenData(np.random.default_rng(0).standard_normal((2, 8)), P)
    F = equal_subspace(data)
    assert F.dim == 2 * 1499
    message = (
        r"a basis of 2998 matrices of shape \(3000, 8\) has 71952000 entries, more than 67108864; "
        r"use project and reject, which need none$"
    )
    with pytest.raises(ValueError, match=message):
        _ = F.basis


def test_too_many_dense_generators_are_refused():
    rng = np.random.default_rng(0)
    P = np.full((100, 1000), 1 / 1000)
    H, T = rng.standard_normal((100, 100)), rng.standard_normal((1000, 50))
    message = (
        r"99900 ties .* 50 × 100 dimensions need 499500000 numbers, more than 268435456; use fewer "
        r"contexts, or token_embeddings=None where tokens are one-hot$"
    )
    with pytest.raises(ValueError, match=message):
        equal_subspace(NextTokenData(H, P, token_embeddings=T))
    # the same sizes in one direction each need little
    flat = NextTokenData(H[:, :1] * H[:1], P, token_embeddings=T[:, :1] * T[:1])
    assert equal_subspace(flat).dim == 1


def test_as_many_dense_generators_as_the_limit_says_are_allowed(monkeypatch):
    """Four ties, two of each context, between tokens in two dimensions and contexts in two."""
    data = NextTokenData(np.eye(2), np.full((2, 3), 1 / 3), None, [[0, 0], [1, 0], [0, 1]])
    monkeypatch.setattr(subspace, "DENSE_LIMIT", 16)
    assert equal_subspace(data).dim == 4
    monkeypatch.setattr(subspace, "DENSE_LIMIT", 15)
    with pytest.raises(ValueError, match=r"need 16 numbers, more than 15; use fewer contexts"):
        equal_subspace(data)


@pytest.mark.parametrize("name", ["project", "reject"])
def test_a_wrong_matrix_is_named(name):
    with pytest.raises(
        ValueError, match=r"W has shape \(3, 3\); its last two axes must be \(5, 2\)"
    ):
        getattr(equal_subspace(ntpnb.datasets.toy()), name)(np.zeros((3, 3)))


def test_factors_are_kept_within_their_limit(monkeypatch):
    """Results never depend on what is kept, only memory and time do."""
    data = t24(2, V=6, m=9, d=4, size=(2, 4))
    W = start(data, 5)
    whole = equal_subspace(data)
    assert len(whole._cached_svds) == 6
    monkeypatch.setattr(subspace, "HELD", 0)
    part = equal_subspace(data)
    assert len(part._cached_svds) == 1  # one is, before there is anything to count
    assert_array_equal(part.project(W), whole.project(W))


@pytest.mark.parametrize("seed", range(10))
def test_contexts_that_depend_exactly_are_counted_and_never_refused(seed):
    """Fewer dimensions than contexts: what the ties share is zero but for rounding."""
    rng = np.random.default_rng(seed)
    for _ in range(40):
        m, V = rng.integers(2, 20), rng.integers(2, 8)
        d = rng.integers(1, m + 1)
        P = rng.dirichlet(np.ones(V), m) * (rng.random((m, V)) < rng.uniform(0.2, 1))
        P[np.arange(m), rng.integers(V, size=m)] += 0.1
        data = NextTokenData(rng.standard_normal((m, d)), P / P.sum(1, keepdims=True))
        assert equal_subspace(data).dim == len(reference.equal_basis(data))


def test_a_table_that_is_too_large_is_refused_with_advice(monkeypatch):
    data = t24(0)
    monkeypatch.setattr("ntpnb.basics.validation.DENSE_LIMIT", data.target_probs.size - 1)
    with pytest.raises(ValueError, match=r"^equal_subspace .*; use fewer contexts or a smaller v"):
        subspace._TokenwiseSubspace(data, token_priority(data), Watch())
