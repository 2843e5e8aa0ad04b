"""The floor of the loss by one process and by several, on hidden states of a made-up model."""

import os

import numpy as np
from scipy.special import softmax

import ntpnb
from benchmarks import report
from benchmarks.timing import duel


def hidden_states(num_contexts, vocab_size, dim):
    """Random states, and tokens that a random decoder says after them: not separable.

    Tokens are about as frequent as words are, so that some follow more contexts than can be kept
    apart in so few dimensions.
    """
    rng = np.random.default_rng(0)
    states = rng.standard_normal((num_contexts, dim))
    decoder = rng.standard_normal((vocab_size, dim)) / np.sqrt(dim)
    frequencies = 1 / np.arange(1, vocab_size + 1)
    sums = softmax(states @ decoder.T + np.log(frequencies), axis=1).cumsum(axis=1)
    tokens = (sums < rng.random((num_contexts, 1))).sum(axis=1)
    tokens = np.minimum(tokens, vocab_size - 1)  # where rounding leaves the last sum below one
    return ntpnb.NextTokenData.from_hidden_states(states, tokens, vocab_size=vocab_size)


def floor(n_jobs, num_contexts, vocab_size, dim, repeats):
    """Enclose the infimum by several processes and by one in turn: a record of the medians."""
    from joblib.externals.loky import get_reusable_executor

    data = hidden_states(num_contexts, vocab_size, dim)
    together, alone, record = duel(
        lambda data: ntpnb.loss_floor(data, n_jobs=n_jobs),
        ntpnb.loss_floor,
        repeats,
        make=lambda k: data,
    )
    # This is itself a child, which at its end waits for those that it has started.
    get_reusable_executor().shutdown()
    is_same = (alone.lower, alone.upper) == (together.lower, together.upper)
    return record | {
        "contexts": num_contexts,
        "V": vocab_size,
        "d": dim,
        "n_jobs": n_jobs,
        "same": "yes" if is_same else "no",
        "gap": together.gap,
        "measured": f"{report.today()}, {report.processor()}, {os.cpu_count()} cores",
    }
