"""The papers' datasets."""

import numpy as np

from ntpnb.data import NextTokenData


def toy():
    """T24's problem in the plane: 5 tokens, 3 contexts A, B, C, each followed by 3 tokens.

    The figures fix the supports up to symmetry: A = {2, 3, 4}, B = {1, 4, 5}, C = {1, 2, 5}
    (numbered from one, as in the paper). The paper prints neither embeddings nor probabilities;
    these are short numbers whose entropy rounds to its 0.8811 nats.

    References
    ----------
    T24 (001, 002) Figs 1 and 2, App. B of 001.
    """
    H = [[0.0, 1.0], [-1.0, -0.5], [1.0, -0.75]]
    P = [
        [0.00, 0.35, 0.55, 0.10, 0.00],
        [0.60, 0.00, 0.00, 0.10, 0.30],
        [0.15, 0.15, 0.00, 0.00, 0.70],
    ]
    return NextTokenData(H, P)


def overparameterized(seed=1, vocab_size=10, num_contexts=50, dim=60, support_size=6):
    """T24's synthetic dataset with more dimensions than contexts.

    Random supports of ``support_size`` tokens, probabilities uniform on their simplex, standard
    normal embeddings, equally frequent contexts (n = 5000 sequences, 100 per context). The paper
    says "random" for the first three; these laws reproduce its entropy and curves, other common
    ones do not. The default seed's entropy rounds to the paper's 1.445 nats.

    References
    ----------
    T24 (002) App. A, Figs 3–5; App. B of 001.
    """
    if not 1 <= support_size <= vocab_size:
        raise ValueError(
            f"support_size is {support_size}; it must lie between 1 and vocab_size = {vocab_size}"
        )
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((num_contexts, dim))
    supports = rng.permuted(np.tile(np.arange(vocab_size), (num_contexts, 1)), axis=1)
    P = np.zeros((num_contexts, vocab_size))
    laws = rng.dirichlet(np.ones(support_size), num_contexts)
    np.put_along_axis(P, supports[:, :support_size], laws, axis=1)
    return NextTokenData(H, P)


def lecun_init(data, seed):
    """LeCun's initialization: independent normals of variance one over the fan-in ``q``, (p, q)."""
    p, q = data.shape
    return np.random.default_rng(seed).standard_normal((p, q)) / np.sqrt(q)
