"""Gradient methods against plain loops and bare matrix products; the path and the flow alone."""

import numpy as np

import ntpnb
from benchmarks.timing import clock, duel

CONTENDERS = {"numpy loop": (), "PyTorch loop": ("torch",), "matrix products": ()}
"""Contenders, and the modules each needs."""


def descent(contender, size, steps, repeats):
    """Gradient descent with step 0.5 on one problem, in seconds per step: a record."""
    plain = {"numpy loop": numpy_descent, "PyTorch loop": torch_descent}.get(contender, products)
    data = ntpnb.datasets.overparameterized(0, *size)

    def ours(n):
        return ntpnb.descend(data, ntpnb.GD(0.5), n, record=[n]).W[-1]

    def theirs(n):
        return plain(data, n)

    ours(2), theirs(2)
    a, b, record = duel(ours, theirs, repeats, lambda k: steps)
    record = _per_step(record, ours, steps, steps)
    record |= dict(zip("VmdS", size, strict=True)) | {"contender": contender, "steps": steps}
    return record | {"difference": None if b is None else apart(a, b)}


def trials(name, kind, steps, number, looped, repeats):
    """L24's trials in one batch against one at a time, in seconds per trial and step: a record.

    The loop runs the first ``looped`` of the ``number`` trials.
    """
    loop = {"numpy loop": numpy_attention, "PyTorch loop": torch_attention}[name]
    data = list(ntpnb.datasets.attention_trials(number, kind).data)
    init = np.stack([ntpnb.datasets.uniform_init(d, i) for i, d in enumerate(data)])

    def ours(n):
        return ntpnb.descend(data, ntpnb.NGD(0.01), n, init, [n]).W[:, -1]

    def theirs(n):
        return [loop(d, W, n) for d, W, _ in zip(data, init, range(looped), strict=False)]

    ours(2), theirs(2)
    a, b, record = duel(ours, theirs, repeats, lambda k: steps)
    record = _per_step(record, ours, number * steps, looped * steps)
    record |= {"contender": name, "kind": kind, "trials": number, "steps": steps}
    return record | {"difference": max(map(apart, a, b))}


def path_and_flow(size, points, repeats):
    """Seconds for the path to radius 1e8 and for the flow to log t = 230: a record."""
    data = [ntpnb.datasets.overparameterized(k, *size) for k in range(repeats)]
    path = [clock(ntpnb.regularization_path, d, np.logspace(0, 8, points)) for d in data]
    flow = [clock(ntpnb.gradient_flow, d, np.linspace(1, 230, points)) for d in data]
    record = dict(zip("VmdS", size, strict=True)) | {"points": points, "repeats": repeats}
    for name, runs in (("path", path), ("flow", flow)):
        wall, cpu = np.median([spent for _, spent in runs], axis=0)
        record |= {f"{name}_wall": float(wall), f"{name}_cpu": float(cpu)}
    return record | {"path_residual": float(max(trace.residual.max() for trace, _ in path))}


def numpy_descent(data, steps):
    """Gradient descent in the plain way."""
    H, P, pi = data.context_embeddings, data.target_probs, data.context_probs[:, None]
    W = np.zeros(data.shape)
    for _ in range(steps):
        S = H @ W.T
        Q = np.exp(S - S.max(axis=1, keepdims=True))
        Q /= Q.sum(axis=1, keepdims=True)
        W -= 0.5 * (pi * (Q - P)).T @ H
    return W


def torch_descent(data, steps):
    """Gradient descent by automatic differentiation."""
    import torch

    torch.set_num_threads(1)
    H, P, pi = map(torch.tensor, (data.context_embeddings, data.target_probs, data.context_probs))
    W = torch.zeros(data.shape, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([W], lr=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -(pi * (P * torch.log_softmax(H @ W.T, dim=1)).sum(1)).sum()
        loss.backward()
        optimizer.step()
    return W.detach().numpy()


def products(data, steps):
    """Only the two matrix products that a step of gradient descent cannot do without."""
    H, R = data.context_embeddings, np.ascontiguousarray(data.target_probs.T)
    Ht = np.ascontiguousarray(H.T)
    for _ in range(steps):
        W = R @ H
        W @ Ht


def numpy_attention(data, W, steps):
    """Normalized gradient descent with step 0.01 on one trial in the plain way."""
    X, hit, q = _sequences(data)
    W = W.copy()
    for _ in range(steps):
        S = (X @ (q @ W.T)[:, :, None])[:, :, 0]
        A = np.exp(S - S.max(axis=1, keepdims=True))
        A /= A.sum(axis=1, keepdims=True)
        gradient = ((A - hit)[:, :, None] * X).sum(1).T @ q / len(q)
        W -= 0.01 * gradient / np.linalg.norm(gradient)
    return W


def torch_attention(data, W, steps):
    """Do the same by automatic differentiation."""
    import torch

    torch.set_num_threads(1)
    X, hit, q = map(torch.tensor, _sequences(data))
    W = torch.tensor(W, requires_grad=True)
    for _ in range(steps):
        attention = torch.softmax((X @ (q @ W.T)[:, :, None])[:, :, 0], dim=1)
        loss = -torch.log((attention * hit).sum(1)).mean()
        loss.backward()
        with torch.no_grad():
            W -= 0.01 * W.grad / W.grad.norm()
        W.grad = None
    return W.detach().numpy()


def _per_step(record, ours, our_steps, their_steps):
    """Divide by the numbers of steps.

    What our run costs besides its steps, such as the losses it reports, is taken off CPU times.
    """
    start = float(np.median([clock(ours, 0)[1][1] for _ in range(record["repeats"])]))
    record |= {"ours_cpu": record["ours_cpu"] - start, "start_cpu": start}
    for unit in ("wall", "cpu"):
        record[f"ours_{unit}"] /= our_steps
        record[f"theirs_{unit}"] /= their_steps
    record["ratio_wall"] *= our_steps / their_steps
    return record | {"ratio_cpu": record["theirs_cpu"] / record["ours_cpu"]}


def _sequences(data):
    """Token embeddings (n, T, d), where the label stands (n, T), and queries (n, d)."""
    tokens = np.nonzero(data.candidate_counts)[1].reshape(len(data.candidate_counts), -1)
    hit = np.take_along_axis(data.target_probs, tokens, axis=1)
    return data.token_embeddings[tokens], hit, data.context_embeddings.copy()


def apart(ours, theirs):
    """Distance of two matrices, relative to the first."""
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(ours))
