"""A user's program: calls of which a type checker has to find out what comes back.

`tests/repository/test_types.py` gives it to the type checker and runs it; the examples of every
public name, and what attributes and calls say that they are, are looked at there.
"""

import tempfile
from pathlib import Path
from typing import Any, assert_type

import numpy as np

import ntpnb
from ntpnb.basics.validation import FloatArray, IntArray


def make_data() -> ntpnb.NextTokenData:
    """Three contexts in the plane; lists are as welcome as arrays."""
    return ntpnb.NextTokenData(
        context_embeddings=[[0.0, 1.0], [-1.0, -0.5], [1.0, -0.75]],
        target_probs=np.array([[0.0, 0.4, 0.6], [1.0, 0.0, 0.0], [0.2, 0.0, 0.8]]),
        context_probs=[0.5, 0.25, 0.25],
        context_groups=[0, 1, 2],
    )


def data_from_sequences() -> None:
    """Count the contexts of a short text; a context is embedded by the sum of its tokens."""
    vectors = np.random.default_rng(0).standard_normal((3, 4))

    def embed(context: tuple[int, ...]) -> FloatArray:
        total: FloatArray = vectors[list(context)].sum(axis=0)
        return total

    prefixes = ntpnb.NextTokenData.from_sequences([[0, 1, 2], [0, 2]], embed, vocab_size=3)
    assert_type(prefixes.replace(merge_tolerance=1e-6), ntpnb.NextTokenData)


def loss(data: ntpnb.NextTokenData) -> None:
    """Evaluate one matrix, and a stack of them."""
    W = np.ones(data.shape)
    # A number for one matrix and an array for a stack: a checker cannot count the axes of W.
    assert_type(ntpnb.cross_entropy(W, data), float | FloatArray)
    assert_type(ntpnb.excess_loss(np.stack([W, 2 * W]), data), float | FloatArray)
    assert float(ntpnb.cross_entropy(W, data)) >= data.entropy


def theory(data: ntpnb.NextTokenData) -> None:
    """Two kinds of solutions, a refusal that may be there, and errors that carry something."""
    assert_type(ntpnb.max_margin(data, progress=lambda line: None), ntpnb.MarginSolution)
    assert_type(ntpnb.max_margin(data, norm="max"), ntpnb.NormMarginSolution)
    bias = ntpnb.implicit_bias(data)
    assert_type(bias.max_margin, ntpnb.MarginSolution | None)
    assert_type(bias.require_max_margin(), ntpnb.MarginSolution)
    contradiction = ntpnb.NextTokenData([[1.0], [1.0]], [[1.0, 0.0], [0.0, 1.0]])
    try:
        ntpnb.max_margin(contradiction)
    except ntpnb.NotSeparableError as error:
        assert_type(error.certificate, FloatArray)
    assert_type(ntpnb.ConvergenceError("stopped early", 1e-3).residual, float)


def training(data: ntpnb.NextTokenData) -> None:
    """Train with every method, a batch at once; follow the limits, from data or from the theory."""
    bias = ntpnb.implicit_bias(data)
    svm = bias.require_max_margin()
    methods = (
        ntpnb.GD(step=0.5),
        ntpnb.NGD(step=0.1),
        ntpnb.Adam(step=0.01, beta1=0.9, beta2=0.99),
        ntpnb.SGD(step=0.1, batch_size=8, seed=1, over="sequences"),
        ntpnb.SteepestDescent(0.25, "max", normalized=True),
    )
    for method in methods:
        run = ntpnb.descend(data, method, 10, init=np.zeros(data.shape), record=[0, 10])
        assert_type(run, ntpnb.Trace)
        assert_type(run.compare(bias.finite_part, svm), ntpnb.Comparison)
    batch = ntpnb.descend([data, data], methods[0], 10)
    assert_type(batch.compare([bias.finite_part] * 2, [svm] * 2), ntpnb.Comparison)
    for given in (data, bias):
        assert_type(ntpnb.compare(svm.W, given), ntpnb.WeightComparison)
        assert_type(ntpnb.gradient_flow(given, np.array([1.0, 2.0]), init=svm.W), ntpnb.FlowTrace)
        assert_type(ntpnb.regularization_path(given, [1.0, 10.0]), ntpnb.PathTrace)
        assert_type(ntpnb.next_order_term(given), FloatArray)
    found = ntpnb.report(bias, words=["ant", "bee", "cat"])
    assert_type(found.failures.get("way"), Exception | None)


def attention_and_thresholds() -> None:
    """Hand over functions, a mapping and a generator of random numbers."""
    data = ntpnb.NextTokenData.from_attention(np.eye(3), [[0, 1, 2], [1, 2]], [0, 1])
    for head_loss in (ntpnb.attention.squared, ntpnb.attention.cross_entropy):
        run = ntpnb.attention.descend_head(data, head_loss, ntpnb.GD(step=0.1), steps=5)
        assert_type(run, ntpnb.attention.HeadTrace)
    assert_type(ntpnb.thresholds.compatibility_threshold(5, {1: 0.5, 3: 0.5}), float)
    drawn = ntpnb.thresholds.random_data(np.random.default_rng(0), 4, 2, num_contexts=6)
    fails, holds = ntpnb.thresholds.first_dimension(drawn, ntpnb.is_separable)
    assert_type(fails, int)
    fails, holds = ntpnb.thresholds.first_true(lambda d: d >= 3, top=9, guess=5, step=1)
    assert (fails, holds) == (2, 3)
    assert_type(ntpnb.thresholds.sweep([(4, 2, 6)], trials=2, seed=0, n_jobs=1), list[IntArray])


def files(data: ntpnb.NextTokenData) -> None:
    """Keep data; what a file holds, its name does not tell."""
    with tempfile.TemporaryDirectory() as folder:
        data.save(Path(folder) / "data.npz")
        assert_type(ntpnb.load(Path(folder) / "data.npz"), Any)


def main() -> None:
    """Run it all."""
    data = make_data()
    data_from_sequences()
    loss(data)
    theory(data)
    training(data)
    attention_and_thresholds()
    files(data)


if __name__ == "__main__":
    main()
