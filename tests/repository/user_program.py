"""A user's program: it calls every public name of ntpnb and says which types come back.

`tests/repository/test_types.py` gives it to the type checker and runs it, and reads there what the
attributes of the results are.
"""

import tempfile
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import ntpnb
from ntpnb.basics.validation import FloatArray, IntArray
from ntpnb.problem import NearDuplicates


def data_from_arrays() -> ntpnb.NextTokenData:
    """Three contexts in the plane; lists are as welcome as arrays."""
    return ntpnb.NextTokenData(
        context_embeddings=[[0.0, 1.0], [-1.0, -0.5], [1.0, -0.75]],
        target_probs=np.array([[0.0, 0.4, 0.6], [1.0, 0.0, 0.0], [0.2, 0.0, 0.8]]),
        context_probs=[0.5, 0.25, 0.25],
        context_groups=[0, 1, 2],
    )


def data_from_counts() -> ntpnb.NextTokenData:
    """How often tokens followed contexts, two of which differ by rounding only."""
    counts = np.array([[2, 1, 0], [0, 0, 3], [1, 0, 0]])
    apart = ntpnb.NextTokenData.from_counts([[1.0, 0.0], [0.0, 1.0], [1.0, 1e-9]], counts)
    assert_type(apart, ntpnb.NextTokenData)
    (found,) = apart.near_duplicates(tolerance=1e-6)
    assert_type(found, NearDuplicates)
    merged = apart.replace(merge_tolerance=1e-6)
    assert_type(merged.block(slice(0, 1)).target_probs, FloatArray)
    return merged


def data_from_sequences() -> ntpnb.NextTokenData:
    """Count the contexts of a short text; a context is embedded by the sum of its tokens."""
    vectors = np.random.default_rng(0).standard_normal((3, 4))

    def embed(context: tuple[int, ...]) -> FloatArray:
        total: FloatArray = vectors[list(context)].sum(axis=0)
        return total

    windows = ntpnb.NextTokenData.from_sequences([[0, 1, 2, 0, 1, 0]], embed, context_length=2)
    assert_type(windows, ntpnb.NextTokenData)
    prefixes = ntpnb.NextTokenData.from_sequences([[0, 1, 2], [0, 2]], embed, vocab_size=3)
    assert_type(prefixes, ntpnb.NextTokenData)
    return prefixes


def data_from_attention() -> ntpnb.NextTokenData:
    """Two training sequences of an attention layer, with orthonormal tokens."""
    data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2], [1, 2]], [0, 1])
    assert_type(data, ntpnb.NextTokenData)
    return data


def loss(data: ntpnb.NextTokenData) -> None:
    """Evaluate one matrix, and a stack of them."""
    W = np.ones(data.shape)
    assert_type(ntpnb.scores(W, data), FloatArray)
    assert_type(ntpnb.logits(W, data), FloatArray)
    assert_type(ntpnb.gradient(W, data), FloatArray)
    # A number for one matrix and an array for a stack: a checker cannot count the axes of W.
    assert_type(ntpnb.cross_entropy(W, data), float | FloatArray)
    assert_type(ntpnb.excess_loss(np.stack([W, 2 * W]), data), float | FloatArray)
    assert float(ntpnb.cross_entropy(W, data)) >= data.entropy


def theory(data: ntpnb.NextTokenData) -> None:
    """Order, subspace, finite part and max-margin direction, one by one."""
    order = ntpnb.token_priority(data)
    assert_type(order, ntpnb.TokenPriority)
    assert order.sparse_components.shape == order.shape
    assert_type(order.positions(order.strict), IntArray)

    F = ntpnb.equal_subspace(data)
    assert_type(F, ntpnb.EqualSubspace)
    assert_type(F.project(np.ones(data.shape)), FloatArray)
    assert_type(F.reject(np.ones(data.shape)), FloatArray)

    assert_type(ntpnb.restrict(data), ntpnb.NextTokenData)
    fin = ntpnb.finite_part(data)
    assert_type(fin, ntpnb.FinitePart)

    assert_type(ntpnb.is_separable(data), bool)
    svm = ntpnb.max_margin(data, progress=lambda line: None)
    assert_type(svm, ntpnb.MarginSolution)


def all_of_the_theory(data: ntpnb.NextTokenData) -> ntpnb.ImplicitBias:
    """Let everything be computed once."""
    bias = ntpnb.implicit_bias(data)
    assert_type(bias, ntpnb.ImplicitBias)
    assert_type(bias.require_max_margin(), ntpnb.MarginSolution)
    return bias


def errors() -> None:
    """Meet data on which two equal contexts want different tokens, and an error made by hand."""
    contradiction = ntpnb.NextTokenData([[1.0], [1.0]], [[1.0, 0.0], [0.0, 1.0]])
    try:
        ntpnb.max_margin(contradiction)
    except ntpnb.NotSeparableError as error:
        assert_type(error.certificate, FloatArray)
    undecided = ntpnb.ConvergenceError("stopped early", 1e-3)
    assert_type(undecided.residual, float)


def training(data: ntpnb.NextTokenData, bias: ntpnb.ImplicitBias) -> None:
    """Train with every method, a batch at once, and compare with the theory."""
    gd = ntpnb.GD(step=0.5)
    ngd = ntpnb.NGD(step=0.1)
    adam = ntpnb.Adam(step=0.01, beta1=0.9, beta2=0.99)
    sgd = ntpnb.SGD(step=0.1, batch_size=8, seed=1, over="sequences")
    for method in (gd, ngd, adam, sgd):
        assert_type(ntpnb.descend(data, method, 10), ntpnb.Trace)

    run = ntpnb.descend(data, ngd, steps=100, init=np.zeros(data.shape), record=[0, 10, 100])
    svm = bias.require_max_margin()
    compared = run.compare(bias.finite_part, svm)
    assert_type(compared, ntpnb.Comparison)
    assert_type(ntpnb.compare(run.W, data), ntpnb.WeightComparison)
    assert_type(ntpnb.compare(run.W[-1], bias), ntpnb.WeightComparison)

    batch = ntpnb.descend([data, data], gd, 10)
    assert_type(batch, ntpnb.Trace)
    assert_type(batch.compare([bias.finite_part] * 2, [svm] * 2), ntpnb.Comparison)


def limits_of_training(data: ntpnb.NextTokenData, bias: ntpnb.ImplicitBias) -> None:
    """Follow gradient flow and both forms of the regularization path, from data or from bias."""
    svm = bias.require_max_margin()
    flow = ntpnb.gradient_flow(data, [0.0, 5.0, 230.0])
    assert_type(flow, ntpnb.FlowTrace)
    assert_type(ntpnb.gradient_flow(bias, np.array([1.0, 2.0]), init=svm.W), ntpnb.FlowTrace)
    assert_type(flow.compare(bias.finite_part, svm), ntpnb.Comparison)
    assert_type(ntpnb.loss_floor(data, gap=1e-3), ntpnb.LossFloor)
    assert_type(ntpnb.next_order_term(data), FloatArray)
    assert_type(ntpnb.next_order_term(bias), FloatArray)
    metric = ntpnb.adam_metric(bias, betas=(0.9, 0.99), steps=2000, seed=1)
    assert_type(metric, ntpnb.AdamMetric)

    path = ntpnb.regularization_path(data, [1.0, 10.0])
    assert_type(path, ntpnb.PathTrace)
    assert_type(ntpnb.regularization_path(bias, [1.0, 10.0]), ntpnb.PathTrace)
    assert_type(ntpnb.ridge_path(data, [-1.0, -10.0]), ntpnb.PathTrace)
    assert_type(path.compare(bias.finite_part, svm), ntpnb.Comparison)


def predictions(bias: ntpnb.ImplicitBias) -> None:
    """Ask for a report, on a text and on data."""
    text = "the cat sat on the mat and the dog sat on the rug"
    found = ntpnb.report(text)
    assert_type(found, ntpnb.Report)
    assert_type(ntpnb.report(bias, words=["ant", "bee", "cat"]), ntpnb.Report)
    data = ntpnb.NextTokenData.from_text(text, tokenizer=list, embedding="mean")
    assert_type(data, ntpnb.NextTokenData)
    assert_type(found.failures.get("way"), Exception | None)
    assert_type(found.log10_steps(10), float)
    assert_type(found.spell(found.pairs[0]), str)
    assert_type(found.context_name(0), str)
    assert_type(str(found), str)


def files(found: ntpnb.Result, data: ntpnb.NextTokenData) -> None:
    """Keep results and data."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found.save(folder / "found.npz")
        data.save(folder / "data.npz")
        assert_type(ntpnb.load(folder / "data.npz"), Any)


def attention() -> None:
    """Train an attention head under other losses than the cross-entropy."""
    data = data_from_attention()
    for head_loss in (
        ntpnb.attention.squared,
        ntpnb.attention.softmax_squared,
        ntpnb.attention.cross_entropy,
    ):
        run = ntpnb.attention.descend_head(data, head_loss, ntpnb.GD(step=0.1), steps=5)
        assert_type(run, ntpnb.attention.HeadTrace)
        assert_type(ntpnb.attention.attention_mass(run.W, data), FloatArray)
        selected = ntpnb.attention.pseudo_data(run.W[-1], data, threshold=0.01)
        assert_type(selected, ntpnb.NextTokenData)
    values, slopes = ntpnb.attention.squared(np.ones((1, 3, 2)), np.zeros((1, 1, 2), dtype=int))
    assert_type(values, FloatArray)
    assert_type(slopes, FloatArray)


def datasets() -> None:
    """Take the papers' data and starting points."""
    toy = ntpnb.datasets.toy()
    assert_type(toy, ntpnb.NextTokenData)
    assert_type(ntpnb.datasets.overparameterized(seed=2, num_contexts=5), ntpnb.NextTokenData)
    assert_type(ntpnb.datasets.lecun_init(toy, seed=0), FloatArray)
    assert_type(ntpnb.datasets.uniform_init(toy, seed=0), FloatArray)
    assert_type(ntpnb.datasets.figure2(), ntpnb.NextTokenData)

    trials = ntpnb.datasets.attention_trials(num_trials=2, kind="cyclic", seed=1)
    assert_type(trials, ntpnb.datasets.TrialSet)

    corpus = ntpnb.datasets.text_corpus(num_verses=2)
    assert_type(corpus, ntpnb.datasets.TextCorpus)
    assert_type(corpus.windows(3), IntArray)
    assert_type(corpus.spell([0, 1]), str)


def thresholds() -> None:
    """Count the dimensions that random data need, by formula and by search."""
    assert_type(ntpnb.thresholds.pooled_law(outside=3, support_size=2), FloatArray)
    assert_type(ntpnb.thresholds.separability_threshold(5, 2), float)
    assert_type(ntpnb.thresholds.compatibility_threshold(5, {1: 0.5, 3: 0.5}), float)
    assert_type(ntpnb.thresholds.transition_width(5, 2, num_contexts=30), float)

    rng = np.random.default_rng(0)
    data = ntpnb.thresholds.random_data(rng, vocab_size=4, support_size=2, num_contexts=6)
    assert_type(data, ntpnb.NextTokenData)
    assert_type(ntpnb.thresholds.independent_equations(data), bool)
    fails, holds = ntpnb.thresholds.first_dimension(data, ntpnb.is_separable)
    assert_type(fails, int)
    assert_type(holds, int)
    fails, holds = ntpnb.thresholds.first_true(lambda d: d >= 3, top=9, guess=5, step=1)
    assert (fails, holds) == (2, 3)
    brackets = ntpnb.thresholds.sweep([(4, 2, 6)], trials=2, seed=0, n_jobs=1)
    assert_type(brackets, list[IntArray])


def other_geometries(data: ntpnb.NextTokenData) -> None:
    """Measure lengths in another norm."""
    assert_type(ntpnb.max_margin(data, norm="max"), ntpnb.NormMarginSolution)
    method = ntpnb.SteepestDescent(0.25, "max", normalized=True)
    assert_type(ntpnb.descend(data, method, steps=10), ntpnb.Trace)


def not_separable() -> None:
    """Ask for the twin of data that no direction separates."""
    data = ntpnb.NextTokenData([[1.0], [2.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert_type(ntpnb.implicit_bias(data).twin, ntpnb.Twin)


def main() -> None:
    """Run it all."""
    data = data_from_arrays()
    data_from_counts()
    data_from_sequences()
    loss(data)
    theory(data)
    bias = all_of_the_theory(data)
    errors()
    training(data, bias)
    limits_of_training(data, bias)
    predictions(bias)
    files(bias, data)
    attention()
    other_geometries(data)
    not_separable()
    datasets()
    thresholds()


if __name__ == "__main__":
    main()
