"""The size of real text: `is_separable` and `max_margin` against general solvers, within limits.

Every measurement is a process of its own: ``python -m benchmarks.text`` with a race as JSON. It
makes its data, solves a tiny problem, which pays for imports, imposes the limits on itself, and
then works against the clock.
"""

import json
import sys

import numpy as np
import scipy.sparse as sp

import ntpnb
from benchmarks import limits, margin
from benchmarks.margin import Anchored
from ntpnb import NextTokenData, datasets

CONTENDERS = {
    "HiGHS": ("scipy",),
    "Clarabel": ("cvxpy", "clarabel"),
    "SCS": ("cvxpy", "scs"),
    "LinearSVC": ("sklearn",),
}
"""Contenders, and the modules each needs."""

SECONDS = 30
"""CPU seconds after which a process is ended, unless an aim allows ours more."""

GIBIBYTES = 6
"""Address space that a process may have."""

PROGRAMS_OF_VERDICTS = ("ours", "HiGHS", "Clarabel", "SCS")

GENESIS = [["bigrams", "Genesis", 106, dim] for dim in (30, 60, 120, 200, 300, 400)]
EDGE = [["bigrams", "Genesis", 106, dim] for dim in (190, 210)]
"""Near the dimension from which on the text is separable; so is its fourth."""

STATES = [["hidden states", 500, 300, 64], ["hidden states", 400, 500, 256]]
LONG_TEXT = ["random text", 100_000, 8000, 256]
ONE_HOT = ["random", 500, 1600, 60, 1]
LARGEST = ["random", 5000, 20_000, 256, 3]

RACES = [
    *[(problem, "verdict", "ours", 60) for problem in STATES],
    *[(problem, "verdict", "ours", 60) for problem in GENESIS[:3]],
    (LONG_TEXT, "verdict", "ours", 60),
    (ONE_HOT, "solution", "ours", 60),
    *[(ONE_HOT, "solution", name, SECONDS) for name in ("Clarabel", "SCS", "LinearSVC")],
    *[(problem, "verdict", "SCS", SECONDS) for problem in STATES],
    *[(problem, "solution", "ours", 60) for problem in GENESIS[4:]],
    *[(problem, "verdict", "ours", 60) for problem in (EDGE[0], GENESIS[3], EDGE[1])],
    *[(problem, "verdict", name, SECONDS) for problem in STATES for name in ("HiGHS", "Clarabel")],
    *[(GENESIS[5], "solution", name, SECONDS) for name in ("Clarabel", "SCS")],
    (LONG_TEXT, "verdict", "HiGHS", SECONDS),
    (LARGEST, "gap", "ours", 300),
]
"""What is measured: a problem, a question, who answers, and CPU seconds."""

AIMS = {
    **dict.fromkeys([("verdict", *problem) for problem in GENESIS[:4]], (5, None)),
    **dict.fromkeys([("solution", *problem) for problem in GENESIS[4:]], (20, None)),
    ("verdict", *LONG_TEXT): (15, 1024),
    **dict.fromkeys([("verdict", *problem) for problem in STATES], (10, None)),
    ("gap", *LARGEST): (300, None),
}
"""What the project set out to reach: at most so many CPU seconds, and MiB."""

ENDED = ("time", "memory")
"""Outcomes of a process that a limit ended."""

# -- problems -------------------------------------------------------------------------------------


def bigrams(name, parts, dim):
    """Each two words of a shipped text and the words that follow; random vectors."""
    read = {"Genesis": datasets.text_corpus, "Declaration": datasets.declaration_corpus}[name]
    rng = np.random.default_rng(0)
    text = [np.concatenate(read(parts).verses)]
    return NextTokenData.from_sequences(
        text, lambda context: rng.standard_normal(dim), context_length=2
    )


def drawn_words(rng, vocab_size, shape):
    """Numbers of words, drawn by Zipf and Mandelbrot's law."""
    frequency = 1 / (np.arange(vocab_size) + 2.7)
    return rng.choice(vocab_size, shape, p=frequency / frequency.sum())


def random_text(num_words, vocab_size, dim):
    """Bigrams of drawn words; random vectors."""
    rng = np.random.default_rng(0)
    words = drawn_words(rng, vocab_size, num_words)
    _, words = np.unique(words, return_inverse=True)
    return NextTokenData.from_sequences(
        [words], lambda context: rng.standard_normal(dim), context_length=2
    )


def hidden_states(num_contexts, vocab_size, dim):
    """States of an untrained recurrent network that reads the Declaration, word by word.

    Each position is a context, and one word follows it. The network is an echo-state network: its
    weights are random, and the recurrent ones an orthogonal matrix times 0.9. Tokens beyond the
    text's words never follow, as most tokens of a language model never do.
    """
    rng = np.random.default_rng(0)
    words = np.concatenate(datasets.declaration_corpus().verses)[: num_contexts + 1]
    _, words = np.unique(words, return_inverse=True)
    recurrent = 0.9 * np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    word_vectors = rng.standard_normal((vocab_size, dim))
    state, states = np.zeros(dim), []
    for word in words[:-1]:
        state = np.tanh(recurrent @ state + word_vectors[word])
        states.append(state)
    return _followed_by(states, words[1:, None], vocab_size)


def random_rows(vocab_size, num_contexts, dim, most):
    """Random vectors, each followed by 1 to ``most`` tokens; all tokens follow where most is 1."""
    rng = np.random.default_rng(0)
    H = rng.standard_normal((num_contexts, dim))
    if most == 1:
        followers = (rng.permutation(num_contexts) % vocab_size)[:, None]
    else:
        followers = rng.integers(vocab_size, size=(num_contexts, most))
        repeated = rng.integers(1, most + 1, num_contexts)  # how many of them count
        beyond = np.arange(most) >= repeated[:, None]
        followers = np.where(beyond, followers[:, :1], followers)
    return _followed_by(H, followers, vocab_size)


def _followed_by(H, followers, vocab_size):
    row = np.repeat(np.arange(len(followers)), followers.shape[1])
    ones = np.ones(followers.size)
    shape = (len(followers), vocab_size)
    return NextTokenData.from_counts(H, sp.csr_array((ones, (row, followers.ravel())), shape=shape))


PROBLEMS = {
    "bigrams": bigrams,
    "random text": random_text,
    "hidden states": hidden_states,
    "random": random_rows,
}

# -- the same problem for general solvers ---------------------------------------------------------


class Stacked:
    """``A x ≤ b`` on strict entries and ``A x = 0`` on ties; x holds ``W`` row by row, then ``c``.

    With a common score ``c_j`` of what follows context ``j``, free, a strict entry says
    ``w_v · h_j − c_j ≤ −1`` and a tie ``w_v · h_j − c_j = 0``. That takes half as many numbers as
    comparing pairs, and has the same ``W``.
    """

    def __init__(self, data):
        H = data.context_embeddings
        m, d = H.shape
        V = data.vocab_size
        ties = (data.sparse_target_probs.toarray() > 0).T.ravel()  # token by token, as below
        scores = sp.kron(sp.eye_array(V), sp.csr_array(H), format="csr")
        common = sp.kron(np.ones((V, 1)), sp.eye_array(m), format="csr")
        every = sp.hstack([scores, -common], format="csr")
        self.shape = (V, d)
        self.strict = every[~ties]
        self.ties = every[ties]

    @property
    def num_weights(self):
        """Numbers in ``W``."""
        return self.shape[0] * self.shape[1]

    def weights(self, x):
        """Return the ``W`` in a solution."""
        return x[: self.num_weights].reshape(self.shape)


def highs(question, data):
    """Ask for any solution: a linear program without an objective."""
    from scipy.optimize import linprog

    program = Stacked(data)
    num_strict, num_unknowns = program.strict.shape
    found = linprog(
        np.zeros(num_unknowns),
        program.strict,
        -np.ones(num_strict),
        program.ties,
        np.zeros(program.ties.shape[0]),
        bounds=(None, None),
        method="highs",
    )
    if found.status == 2:
        return False
    return program.weights(found.x) if found.status == 0 else None


def clarabel(question, data):
    """Compare pairs, by the interior-point method, with one thread as all others."""
    import cvxpy as cp

    program = Anchored(data)
    strict, ties = program.rows(strict=True), program.rows(strict=False)
    x = cp.Variable(strict.shape[1])
    problem = cp.Problem(cp.Minimize(cp.sum_squares(x) / 2), [strict @ x >= 1, ties @ x == 0])
    x = _solve(problem, x, solver="CLARABEL", max_threads=1)
    return x.reshape(data.shape) if isinstance(x, np.ndarray) else x


def scs(question, data):
    """Compare with common scores, by the splitting method."""
    import cvxpy as cp

    program = Stacked(data)
    x = cp.Variable(program.strict.shape[1])
    norm = cp.sum_squares(x[: program.num_weights]) / 2
    problem = cp.Problem(cp.Minimize(norm), [program.strict @ x <= -1, program.ties @ x == 0])
    x = _solve(problem, x, solver="SCS")
    return program.weights(x) if isinstance(x, np.ndarray) else x


def _solve(problem, x, **options):
    """Solve with cvxpy: the value of ``x``, False where infeasible, None where it gives up."""
    import cvxpy as cp

    try:
        problem.solve(**options)
    except cp.SolverError:
        return None
    if problem.status == cp.INFEASIBLE:
        return False
    return x.value if problem.status == cp.OPTIMAL else None


def linear_svc(question, data):
    """Crammer and Singer's machine, hard in the limit C → ∞."""
    weights, _, _ = margin.sklearn(None, Anchored(data))
    return weights


def ours(question, data):
    """`is_separable` for a verdict, else `max_margin`."""
    try:
        if question == "verdict":
            return ntpnb.is_separable(data)
        return ntpnb.max_margin(data, gap=1e-3 if question == "gap" else 0.0)
    except ntpnb.NotSeparableError:
        return False
    except ntpnb.ConvergenceError:
        return None


PROGRAMS = {
    "ours": ours,
    "HiGHS": highs,
    "Clarabel": clarabel,
    "SCS": scs,
    "LinearSVC": linear_svc,
}

# -- one measurement ------------------------------------------------------------------------------


def violation(data, W):
    """By how much ``W`` misses a tie or a margin of one, relative to ``max(1, ‖W‖ ‖h_j‖)``."""
    norm, worst = np.linalg.norm(W), 0.0
    for first in range(0, data.num_contexts, 256):
        rows = slice(first, first + 256)
        H = data.context_embeddings[rows]
        support = data.sparse_target_probs[rows].toarray() > 0
        scores = H @ W.T
        scale = np.maximum(1, norm * np.linalg.norm(H, axis=1))
        lowest = np.where(support, scores, np.inf).min(1)
        highest = np.where(support, scores, -np.inf).max(1)
        rival = np.where(support, -np.inf, scores).max(1)
        missing = np.maximum(highest - lowest, 1 - (lowest - rival)) / scale
        worst = max(worst, missing.max())
    return float(worst)


def measure(problem, question, program, seconds, gibibytes):
    """Answer one question about one problem by one program: a record."""
    kind, *size = problem
    data = PROBLEMS[kind](*size)
    answer = PROGRAMS[program]
    answer(question, random_rows(3, 6, 8, 1))
    record = {"V": data.vocab_size, "m": data.num_contexts, "d": data.shape[1]}
    print(json.dumps(record), flush=True)  # known even where a limit ends the rest
    limits.impose(seconds, gibibytes)
    found, measured = limits.timed(answer, question, data)
    record |= measured
    if found is None:
        return record | {"outcome": "undecided"}
    if found is False:
        return record | {"outcome": "not separable"}
    record["outcome"] = "separable"
    if found is not True:
        W = found.W if program == "ours" else found
        record |= {"norm": float(np.linalg.norm(W)), "violation": violation(data, W)}
    if isinstance(found, ntpnb.MarginSolution):
        record |= {"kkt": found.kkt_residual, "gap": found.margin_gap}
    return record


def growth(program, verses, dim, seconds=SECONDS):
    """Verdicts on longer and longer beginnings of Genesis, until a limit ends one: a record."""
    runs = []
    for number in verses:
        runs.append(race(["bigrams", "Genesis", number, dim], "verdict", program, seconds))
        if runs[-1]["outcome"] in ENDED:
            break
    return {"program": program, "runs": runs}


def race(problem, question, program, seconds=SECONDS, gibibytes=GIBIBYTES):
    """Measure in a fresh process: a record, which says where a limit ended it."""
    asked = {"problem": problem, "question": question, "program": program}
    asked |= {"seconds": seconds, "gibibytes": gibibytes}
    return asked | limits.run("benchmarks.text", asked)


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
