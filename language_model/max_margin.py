"""The max-margin problem of all the model's contexts: ``python -m language_model.max_margin``.

It has 6.5 million ordered pairs, of which about ten thousand decide. The method is an augmented
Lagrangian, whose smooth problems are solved by Newton steps, and these by conjugate gradients with
one block of the Hessian for each word as preconditioner. It writes
``ntpnb_book/data_files/language_model_margin.npz``: a matrix whose ties are exact, and multipliers.
The matrix proves that a margin is possible, and the multipliers that no larger one than theirs is;
nothing rests on how they were found. The shipped ones come from two runs of an earlier form of this
program that were ended early: running this one writes another file.
"""

import argparse
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array, csc_array, csr_array

import ntpnb
import ntpnb_book
from language_model.transformer import Array

OUTPUT = Path(__file__).resolve().parents[1] / "ntpnb_book/data_files/language_model_margin.npz"
PENALTIES = (1.0, 4.0)
"""Of one round after the other; the last is used until the gap is small."""

GAP = 1e-6
"""Relative distance of the bounds of the margin at which to stop."""

MOST_ROUNDS, MOST_NEWTON_STEPS, MOST_PRODUCTS = 20, 40, 150


@dataclass(frozen=True, eq=False)
class Program:
    """The contexts' vectors and counts, as the method needs them.

    A margin is the mean score of the words that follow a context less that of another word; where
    those tie, this is the margin of each of them.
    """

    embeddings: Array
    counts: csr_array

    @cached_property
    def follows(self) -> Array:
        """Whether a word follows a context, shape (m, V)."""
        table: Array = self.counts.toarray() > 0
        return table

    @cached_property
    def mean_follower(self) -> csr_array:
        """Each context's followers, with weights of sum one, shape (m, V)."""
        return csr_array(self.follows / self.follows.sum(axis=1, keepdims=True))

    @cached_property
    def tie_contexts(self) -> Array:
        """The context of each equation between followers, shape (k,)."""
        sizes = self.follows.sum(axis=1)
        contexts: Array = np.repeat(np.arange(len(sizes)), sizes - 1)
        return contexts

    @cached_property
    def tie_signs(self) -> csr_array:
        """One with plus and one with minus: a context's first follower and another, (k, V)."""
        winners, losers = [], []
        for context in np.flatnonzero(self.follows.sum(axis=1) > 1):
            first, *others = np.flatnonzero(self.follows[context])
            winners += [first] * len(others)
            losers += others
        k = len(winners)
        rows = np.tile(np.arange(k), 2)
        signs = np.repeat([1.0, -1.0], k)
        return csr_array((signs, (rows, winners + losers)), shape=(k, self.counts.shape[1]))

    def mean_scores(self, W: Array) -> Array:
        """Mean score of each context's followers, shape (m,)."""
        mean: Array = np.einsum("jd,jd->j", self.mean_follower @ W, self.embeddings)
        return mean

    def margins(self, W: Array) -> Array:
        """All margins, shape (m, V); zero where a word follows."""
        margins: Array = self.mean_scores(W)[:, None] - self.embeddings @ W.T
        margins[self.follows] = 0.0
        return margins

    def ties(self, W: Array) -> Array:
        """What the ties miss, shape (k,)."""
        H = self.embeddings[self.tie_contexts]
        missed: Array = np.einsum("kd,kd->k", self.tie_signs @ W, H)
        return missed

    def combination(self, weights: csr_array, tie_weights: Array) -> Array:
        """The gradient of weighted margins and ties, shape (V, d)."""
        H = self.embeddings
        of_followers = self.mean_follower.T @ (weights.sum(axis=1)[:, None] * H)
        of_ties = self.tie_signs.T @ (tie_weights[:, None] * H[self.tie_contexts])
        gradient: Array = of_followers - weights.T @ H + of_ties
        return gradient


@dataclass(frozen=True, eq=False)
class Multipliers:
    """Those of the margins, nonnegative, and those of the ties."""

    pairs: csr_array
    ties: Array


@dataclass(frozen=True, eq=False)
class Bounds:
    """The matrix of the largest margin found, and multipliers of the smallest bound found."""

    W: Array
    lower: float
    multipliers: csr_array
    upper: float


@dataclass(frozen=True, eq=False)
class Point:
    """A ``W``, its margins and ties, and the augmented Lagrangian with its derivatives' parts."""

    W: Array
    margins: Array
    ties: Array
    pulls: csr_array
    tie_pulls: Array
    value: float


def augmented(
    program: Program, known: Multipliers, penalty: float, W: Array, margins: Array, ties: Array
) -> Point:
    """Evaluate the augmented Lagrangian where margins and ties are known."""
    table = penalty * (1 - margins)
    pairs = known.pairs.tocoo()
    table[pairs.coords] += pairs.data
    table[program.follows] = 0.0
    pulls = csr_array(np.maximum(table, 0.0))
    tie_pulls = penalty * ties - known.ties
    value = 0.5 * np.sum(W**2) + (np.sum(pulls.data**2) + np.sum(tie_pulls**2)) / (2 * penalty)
    return Point(W, margins, ties, pulls, tie_pulls, float(value))


def gradient_at(program: Program, point: Point) -> Array:
    """The gradient of the augmented Lagrangian."""
    return point.W - program.combination(point.pulls, -point.tie_pulls)


def inverse_blocks(program: Program, point: Point, penalty: float) -> Array:
    """The inverse of the Hessian's block for each word, shape (V, d, d)."""
    H = program.embeddings
    active = point.pulls.astype(bool).astype(float)
    squares = program.mean_follower.multiply(program.mean_follower)
    of_pairs = csc_array(active + csr_array(squares.multiply(active.sum(axis=1)[:, None])))
    of_ties = csc_array(abs(program.tie_signs))
    tie_vectors = H[program.tie_contexts]
    blocks = np.tile(np.eye(H.shape[1]), (program.counts.shape[1], 1, 1))
    for word, block in enumerate(blocks):
        for table, vectors in ((of_pairs, H), (of_ties, tie_vectors)):
            part = slice(table.indptr[word], table.indptr[word + 1])
            rows = vectors[table.indices[part]]
            block += penalty * (rows.T * table.data[part]) @ rows
    return np.linalg.inv(blocks)


def newton_direction(program: Program, point: Point, penalty: float, gradient: Array) -> Array:
    """Solve the Newton system by conjugate gradients, the better the smaller the gradient."""
    H = program.embeddings
    rows, words = point.pulls.tocoo().coords
    shape = program.counts.shape
    inverse = inverse_blocks(program, point, penalty)
    norm = np.linalg.norm(gradient)
    enough = min(0.05, norm / np.linalg.norm(point.W)) * norm

    def product(U: Array) -> Array:
        rises = program.mean_scores(U)[rows] - np.einsum("kd,kd->k", U[words], H[rows])
        table = csr_array(coo_array((rises, (rows, words)), shape=shape))
        return U + penalty * program.combination(table, program.ties(U))

    direction = np.zeros_like(gradient)
    rest = -gradient
    scaled = np.einsum("vab,vb->va", inverse, rest)
    search = scaled.copy()
    size = np.sum(rest * scaled)
    for _ in range(MOST_PRODUCTS):
        image = product(search)
        length = size / np.sum(search * image)
        direction += length * search
        rest -= length * image
        if np.linalg.norm(rest) < enough:
            break
        scaled = np.einsum("vab,vb->va", inverse, rest)
        new_size = np.sum(rest * scaled)
        search = scaled + new_size / size * search
        size = new_size
    return direction


def minimise(program: Program, known: Multipliers, penalty: float, W: Array) -> Point:
    """Minimise the augmented Lagrangian by Newton steps with backtracking."""
    point = augmented(program, known, penalty, W, program.margins(W), program.ties(W))
    for _ in range(MOST_NEWTON_STEPS):
        gradient = gradient_at(program, point)
        if np.linalg.norm(gradient) < 1e-7 * np.linalg.norm(point.W):
            break
        U = newton_direction(program, point, penalty, gradient)
        slope = np.sum(gradient * U)
        margins, ties = program.margins(U), program.ties(U)
        step = 1.0
        while True:
            moved = augmented(
                program,
                known,
                penalty,
                point.W + step * U,
                point.margins + step * margins,
                point.ties + step * ties,
            )
            if moved.value <= point.value + 1e-4 * step * slope or step < 1e-6:
                break
            step /= 2
        point = moved
    return point


def solve(data: ntpnb.NextTokenData, counts: csr_array, W: Array) -> Bounds:
    """Bound the largest margin of one-hot tokens per length of ``W`` from both sides.

    Parameters
    ----------
    data : NextTokenData
    counts : csr_array of int, shape (m, V)
        What ``data`` were made of.
    W : ndarray, shape (V, d)
        Where to begin.
    """
    program = Program(data.context_embeddings, counts)
    subspace = ntpnb.equal_subspace(data)
    known = Multipliers(csr_array(counts.shape), np.zeros(len(program.tie_contexts)))
    best = Bounds(W, -np.inf, known.pairs, np.inf)
    for number in range(MOST_ROUNDS):
        penalty = PENALTIES[min(number, len(PENALTIES) - 1)]
        point = minimise(program, known, penalty, W)
        W = point.W
        known = Multipliers(point.pulls, -point.tie_pulls)
        exact = subspace.reject(W)
        smallest = program.margins(exact)[~program.follows].min()
        lower = smallest / np.linalg.norm(exact)
        pull = subspace.reject(program.combination(known.pairs, np.zeros_like(known.ties)))
        upper = np.linalg.norm(pull) / known.pairs.sum()
        if lower > best.lower:
            best = replace(best, W=exact, lower=float(lower))
        if upper < best.upper:
            best = replace(best, multipliers=known.pairs, upper=float(upper))
        print(f"margin between {best.lower:.8f} and {best.upper:.8f}", flush=True)
        if 1 - best.lower / best.upper < GAP:
            break
    return best


def main() -> None:
    """Solve and write."""
    parser = argparse.ArgumentParser(prog="python -m language_model.max_margin")
    parser.add_argument("--out", type=Path, default=OUTPUT, help="file to write (%(default)s)")
    arguments = parser.parse_args()
    model = ntpnb_book.language_model()
    found = solve(model.data(), model.counts, 0.1 * model.decoders[-1])
    table = found.multipliers.tocoo()
    contexts, losers = table.coords
    np.savez_compressed(
        arguments.out,
        contexts=contexts.astype(np.uint16),
        losers=losers.astype(np.uint16),
        weights=table.data,
        W=found.W.astype(np.float32),
    )


if __name__ == "__main__":
    main()
