"""Several heads, keys times queries, and local balance: gradients, bounds, certificates, proofs."""

import numpy as np
import pytest

import ntpnb
from ntpnb import GD, NGD, NextTokenData, datasets
from ntpnb.attention import attention_mass, cross_entropy, descend_head, softmax_squared
from ntpnb_book import (
    cosine,
    descend_factors,
    descend_heads,
    frobenius_norm,
    heads_loss,
    inner,
    local_balance,
    pair_matrices,
    ranking_floor,
    served_data,
)

CIRCLE = NextTokenData.from_attention(np.eye(4), [[0, 1, 3], [1, 2, 3], [2, 0, 3]], [0, 1, 2])


def random_trials(kind="any", num=4, **sizes):
    return list(datasets.attention_trials(num, kind, seed=5, **sizes).data)


# -- several heads --------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", ["distinct", "independent"])
@pytest.mark.parametrize("num_heads", [1, 2, 3])
def test_a_step_of_heads_follows_the_gradient_by_finite_differences(num_heads, tokens):
    """One step of plain descent against central differences of an independent loss."""
    problems = random_trials(tokens=tokens)
    rng = np.random.default_rng(num_heads)
    start = rng.standard_normal((len(problems), num_heads, *problems[0].shape))
    moved = start - descend_heads(problems, GD(1.0), 1, start, [1]).W[:, 0]
    for p, W, step in zip(problems, start, moved, strict=True):
        V = rng.standard_normal(W.shape)

        def loss(heads, p=p):
            label = p.target_probs.argmax(1)
            mass = attention_mass(heads, p)[:, np.arange(p.num_contexts), label]
            return -np.log(mass.mean(0)) @ p.context_probs

        width = 1e-5
        slope = (loss(W + width * V) - loss(W - width * V)) / (2 * width)
        assert (step * V).sum() == pytest.approx(slope, abs=1e-8)
        assert heads_loss(W, p) == pytest.approx(loss(W), rel=1e-12)


def test_runs_of_one_problem_are_like_runs_of_its_copies():
    """Of one problem the tables are held once, and others stand in the products."""
    [p] = random_trials(num=1)
    copies = [p.replace(), p.replace()]
    start = np.random.default_rng(0).standard_normal((2, 2, *p.shape))
    for train, init in (
        (lambda data, W: descend_heads(data, NGD(0.1), 20, W, [20]), start),
        (lambda data, W: descend_factors(data, 0.1, 20, W, [20]), start.reshape(2, 16, 8)),
    ):
        given = init.copy()
        np.testing.assert_allclose(train([p, p], init).W, train(copies, init).W, atol=1e-12)
        np.testing.assert_array_equal(init, given)


def test_heads_far_out_keep_their_digits():
    """Attention of e^-500 on everything but the label still has a direction."""
    W = 500 * ntpnb.max_margin(CIRCLE).W
    start = np.stack([W, W])[None]
    run = descend_heads([CIRCLE], NGD(0.1), 10, start, [10])
    assert np.isfinite(run.W).all()
    assert frobenius_norm(run.W[0, 0] - start[0]).max() > 0.05


def test_the_circle_meets_the_theorem_s_limit():
    """Part 3: two heads that serve two sequences each lose a third of log 2 twice."""
    first = CIRCLE.replace(candidate_counts=[*CIRCLE.candidates[:2], CIRCLE.target_probs[2]])
    second = CIRCLE.replace(candidate_counts=[CIRCLE.target_probs[0], *CIRCLE.candidates[1:]])
    W = np.stack([ntpnb.max_margin(p).W for p in (first, second)])
    run = descend_heads([CIRCLE], NGD(0.05), 2000, 10 * W[None], [2000])
    assert run.loss[0, 0] == pytest.approx(2 / 3 * np.log(2), abs=1e-6)
    assert cosine(run.W[0, 0], W).min() > 0.999
    for head, p in zip(run.W[0, 0], (first, second), strict=True):
        assert (served_data(head, CIRCLE).candidates == p.candidates).all()


# -- the floor ------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [3, 4, 5, 6])
def test_the_floor_of_a_circle_is_in_closed_form(length):
    """Every ranking fails at one sequence at least, and a rotation fails at exactly one."""
    rows = [[i, (i + 1) % length, length] for i in range(length)]
    circle = NextTokenData.from_attention(np.eye(length + 1), rows, list(range(length)))
    floor = ranking_floor(circle)
    assert floor.gap < 1e-8
    assert floor.loss == pytest.approx(np.log(length / (length - 1)), abs=1e-8)


def test_the_floor_lies_below_one_head_and_below_any_heads():
    rng = np.random.default_rng(1)
    for p in random_trials("cyclic", 10):
        floor = ranking_floor(p)
        one = ntpnb.cross_entropy(ntpnb.finite_part(p).W, ntpnb.restrict(p))
        assert floor.loss - floor.gap <= one + 1e-9
        W = 10 * rng.standard_normal((50, 3, *p.shape))
        assert heads_loss(W, p).min() >= floor.loss - floor.gap
        assert -p.context_probs @ np.log(floor.label_probs) == pytest.approx(floor.loss)


def test_the_floor_agrees_with_a_linear_program_s_dual():
    """cvxpy maximises the same likelihood over all rankings of the whole vocabulary."""
    cp = pytest.importorskip("cvxpy")
    from itertools import permutations

    p = datasets.figure2()
    place = np.array(list(permutations(range(p.vocab_size))))
    seen = np.where(p.candidates[None], place[:, None], p.vocab_size)
    wins = seen.argmin(2) == p.target_probs.argmax(1)
    groups = [p.group_index == g for g in np.unique(p.group_index)]
    laws = [cp.Variable(len(place), nonneg=True) for _ in groups]
    value = sum(
        p.context_probs[rows] @ cp.log(wins[:, rows].astype(float).T @ law)
        for rows, law in zip(groups, laws, strict=True)
    )
    problem = cp.Problem(cp.Maximize(value), [cp.sum(law) == 1 for law in laws])
    problem.solve(solver=cp.CLARABEL)
    assert -problem.value == pytest.approx(ranking_floor(p).loss, abs=1e-6)


# -- keys and queries -----------------------------------------------------------------------------


def test_factors_step_along_the_gradient_of_their_product():
    problems = random_trials("acyclic")
    start = np.random.default_rng(2).standard_normal((len(problems), 16, 3))
    moved = start - np.concatenate(
        [getattr(descend_factors(problems, 0.1, 1, start, [1]), name)[:, 0] for name in ("K", "Q")],
        axis=1,
    )
    for p, factors, step in zip(problems, start, moved, strict=True):
        K, Q = factors[:8], factors[8:]
        G = ntpnb.gradient(K @ Q.T, p)
        expected = np.concatenate([G @ Q, G.T @ K])
        expected *= 0.1 / np.linalg.norm(expected)
        np.testing.assert_allclose(step, expected, atol=1e-12)


def test_factors_go_on_where_attention_underflows():
    [p] = random_trials("acyclic", 1)
    nuclear = ntpnb.max_margin(p, norm="nuclear")
    left, sizes, right = np.linalg.svd(1e5 * nuclear.W)
    factors = np.concatenate([left * np.sqrt(sizes), right.T * np.sqrt(sizes)])
    run = descend_factors([p], 1.0, 5, factors[None], [5])
    assert run.loss[0, 0] == 0.0
    assert frobenius_norm(run.K[0, 0] - factors[:8]) > 1


# -- local balance --------------------------------------------------------------------------------


def local_by_hand(p, chosen, loss):
    """Net pull on each pair from the definition, one sequence after the other."""
    E, pulls = p.token_embeddings, {}
    for j, o in enumerate(chosen):
        label = np.array([[[p.target_probs[j].argmax()]]])
        for v in np.flatnonzero(p.candidates[j]):
            if v == o:
                continue
            width = 1e-6
            sides = []
            for sign in (1, -1):
                mass = np.zeros(p.vocab_size)
                mass[o] = 1 - sign * width
                mass[v] = sign * width
                sides.append(loss((E @ (E.T @ mass))[None, :, None], label)[0][0, 0])
            key = (p.context_groups[j], o, v)
            gain = -p.context_probs[j] * (sides[0] - sides[1]) / (2 * width)
            pulls[key] = pulls.get(key, 0.0) + gain
    return pulls


@pytest.mark.parametrize("loss", [softmax_squared, cross_entropy])
def test_net_pulls_are_what_moving_attention_gains(loss):
    rng = np.random.default_rng(3)
    tested = 0
    for p in random_trials("any", 12):
        chosen = np.array([rng.choice(np.flatnonzero(row)) for row in p.candidates])
        try:
            local = local_balance(p, chosen, loss)
        except ValueError:
            continue
        tested += 1
        expected = local_by_hand(p, chosen, loss)
        found = {tuple(pair): pull for pair, pull in zip(local.pairs, local.net_pull, strict=True)}
        assert found.keys() == expected.keys()
        for pair, pull in expected.items():
            assert found[pair] == pytest.approx(pull, abs=1e-8)
    assert tested >= 4


def test_a_pulled_tight_pair_can_be_carried_by_the_others():
    """The refuted conjecture: by closed forms, by the balance, and by training."""
    # Seven sequences of six orthonormal tokens, all of which select their first token.
    rows = [[0, 2, 4, 5], [1, 2, 3, 5], *[[0, 3, 5]] * 5]
    data = NextTokenData.from_attention(np.eye(6), rows, [0, 1, 0, 0, 0, 3, 3])
    local = local_balance(data, [0, 1, 0, 0, 0, 0, 0], cross_entropy)
    selected = np.e / (np.e + 5)  # probabilities where all attention is on one token
    other = 1 / (np.e + 5)
    hold = 1 - selected + other  # its slope is q − 1, that of any other token q
    pull = 1 - other + selected  # the label is the other token
    by_pair = {tuple(pair): value for pair, value in zip(local.pairs, local.net_pull, strict=True)}
    assert by_pair[5, 0, 3] == pytest.approx((2 * pull - 3 * hold) / 7, rel=1e-12)
    assert by_pair[5, 0, 3] > 0
    assert local.is_tight.all()
    assert not local.is_held
    assert local.offset is not None
    assert local.curvature > 0
    D = pair_matrices(data, local.pairs)
    supply = -local.net_pull * np.exp(-inner(D, local.offset))
    np.testing.assert_allclose(np.einsum("k,kpq->pq", supply, D), local.W, atol=1e-8)
    run = descend_head(data, cross_entropy, NGD(0.1), 3000, 30 * local.W + local.offset, [3000])
    assert cosine(run.W[0], local.W) > 0.9999
