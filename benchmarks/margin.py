"""The max-margin problem: ``max_margin`` against general solvers on the same constraints.

All get the anchor form: in every context one supported token stands for the others, which has far
fewer constraints than all pairs and the same solution. Solvers of programs keep their defaults.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

import ntpnb
from benchmarks.timing import clock, duel
from benchmarks.training import apart

CONTENDERS = {
    "cvxpy + Clarabel": ("cvxpy", "clarabel"),
    "cvxpy + OSQP": ("cvxpy", "osqp"),
    "cvxpy + SCS": ("cvxpy", "scs"),
    "qpsolvers + DAQP": ("qpsolvers", "daqp"),
    "qpsolvers + PIQP": ("qpsolvers", "piqp"),
    "ortools + PDLP": ("ortools",),
    "scikit-learn LinearSVC": ("sklearn",),
}
"""Contenders, and the modules each needs."""

CALLS = 5
"""Problems that ``max_margin`` solves in a round, each of them new."""


@dataclass
class Anchored:
    """``min ‖W‖²/2`` with ``R x ≥ 1`` and ``E x = 0``, ``x`` being ``W`` row by row."""

    data: ntpnb.NextTokenData
    solver_cpu: float | None = None  # seconds of the last solve without compilation

    def pairs(self, strict):
        """Contexts, their anchors, and the tokens below the anchor (strict) or level with it."""
        support = self.data.support
        if sp.issparse(support):
            support = support.toarray()
        anchor = support.argmax(1)
        level = support & (np.arange(support.shape[1]) != anchor[:, None])
        g, v = np.nonzero(~support if strict else level)
        return g, anchor[g], v

    def rows(self, strict):
        """Return the sparse matrix ``R``, or ``E``."""
        (g, i, j), (m, V) = self.pairs(strict), self.data.target_probs.shape
        where = np.tile(np.arange(len(g)), 2), np.concatenate([i * m + g, j * m + g])
        pick = sp.csr_array((np.repeat([1.0, -1.0], len(g)), where), shape=(len(g), V * m))
        return (pick @ sp.kron(sp.eye_array(V), self.data.context_embeddings)).tocsc()

    def kkt(self, W, lam, nu):
        """Largest violation of ``x = Rᵀλ − Eᵀν``, ``R x ≥ 1``, ``E x = 0``, ``λ (R x − 1) = 0``.

        Margins are relative as in ``MarginSolution.kkt_residual``.
        """
        x, norm, R, E = W.ravel(), np.linalg.norm(W), self.rows(True), self.rows(False)
        scale = np.maximum(1, norm * np.linalg.norm(self.data.context_embeddings, axis=1))
        room = (R @ x - 1) / scale[self.pairs(True)[0]]
        ties = np.abs(E @ x) / scale[self.pairs(False)[0]]
        stationary = np.linalg.norm(x - R.T @ lam + E.T @ nu) / norm
        complementary = np.abs(lam) @ np.abs(room) / np.abs(lam).sum()
        return float(max(stationary, ties.max(initial=0.0), -room.min(), complementary))


def cvxpy(solver, problem):
    """Write the constraints context by context, and solve."""
    import cvxpy as cp

    W = cp.Variable(problem.data.shape)
    S = [W @ h for h in problem.data.context_embeddings]
    above, tied = (
        [S[c][i[g == c][0]] - S[c][j[g == c]] for c in np.unique(g)]
        for g, i, j in (problem.pairs(True), problem.pairs(False))
    )
    above, tied = [gap >= 1 for gap in above], [gap == 0 for gap in tied]
    qp = cp.Problem(cp.Minimize(cp.sum_squares(W) / 2), above + tied)
    # The three parts of qp.solve, to time the middle one.
    program, chain, inverse = qp.get_problem_data(getattr(cp, solver.upper()), solver_opts={})
    raw, (_, problem.solver_cpu) = clock(lambda: chain.solve_via_data(qp, program, solver_opts={}))
    qp.unpack_results(raw, chain, inverse)
    lam, nu = (np.concatenate([np.zeros(0), *(c.dual_value for c in k)]) for k in (above, tied))
    return W.value, lam, nu


def qpsolvers(solver, problem):
    """Hand over the matrices: dense to DAQP, which takes no others, sparse to PIQP."""
    import qpsolvers

    n, R, E = np.prod(problem.data.shape), problem.rows(True), problem.rows(False)
    P = sp.eye_array(n, format="csc")
    if solver == "daqp":
        P, R, E = P.toarray(), R.toarray(), E.toarray()
    h, b = -np.ones(R.shape[0]), np.zeros(E.shape[0])
    qp = qpsolvers.Problem(P, np.zeros(n), -R, h, E, b)
    found, (_, problem.solver_cpu) = clock(lambda: qpsolvers.solve_problem(qp, solver=solver))
    return found.x.reshape(problem.data.shape), found.z, found.y


def ortools(_, problem):
    """Hand the sparse matrices to PDLP itself, as cvxpy passes it linear programs only.

    Once cvxpy is loaded, PDLP cannot be: the two bring different versions of HiGHS, whose names
    clash (google/or-tools#5246). Every race has a process of its own, so they never meet.
    """
    from ortools.pdlp import solve_log_pb2, solvers_pb2
    from ortools.pdlp.python import pdlp

    n, R, E = np.prod(problem.data.shape), problem.rows(True), problem.rows(False)
    one, zero, free = np.ones(R.shape[0]), np.zeros(E.shape[0]), np.full(n, np.inf)
    qp = pdlp.QuadraticProgram()
    qp.objective_vector = np.zeros(n)
    qp.set_objective_matrix_diagonal(np.ones(n))
    qp.variable_lower_bounds, qp.variable_upper_bounds = -free, free
    qp.constraint_matrix = sp.vstack([R, E], format="csc")
    qp.constraint_lower_bounds = np.concatenate([one, zero])
    qp.constraint_upper_bounds = np.concatenate([np.inf * one, zero])
    defaults = solvers_pb2.PrimalDualHybridGradientParams()
    found, (_, problem.solver_cpu) = clock(pdlp.primal_dual_hybrid_gradient, qp, defaults)
    if found.solve_log.termination_reason != solve_log_pb2.TERMINATION_REASON_OPTIMAL:
        raise RuntimeError(f"PDLP ended without a solution: {found.solve_log}")
    lam, minus_nu = np.split(found.dual_solution, [len(one)])
    return found.primal_solution.reshape(problem.data.shape), lam, -minus_nu


def sklearn(_, problem):
    """Crammer and Singer's machine, hard in the limit C → ∞; it tells no multipliers."""
    from sklearn.svm import LinearSVC

    data, options = problem.data, {"C": 1e3, "tol": 1e-10, "max_iter": 10**6}
    machine = LinearSVC(multi_class="crammer_singer", fit_intercept=False, **options)
    machine.fit(data.context_embeddings, np.ravel(data.target_probs.argmax(axis=1)))
    return machine.coef_, None, None


def random_problem(seed, V, m, d, S):
    """Return fresh random data; every token occurs as a label when S = 1, as LinearSVC needs."""
    data = ntpnb.datasets.overparameterized(seed, V, m, d, S)
    if S > 1:
        return Anchored(data)
    labels = np.random.default_rng(seed).permutation(np.arange(m) % V)
    return Anchored(ntpnb.NextTokenData(data.context_embeddings, np.eye(V)[labels]))


def against(name, size, repeats):
    """Race ``max_margin`` against one contender: a record."""
    library, *solver = CONTENDERS[name]
    calls = {"cvxpy": cvxpy, "qpsolvers": qpsolvers, "ortools": ortools, "sklearn": sklearn}
    theirs = calls[library]
    alone_cpu = []

    def solve(problem):
        answer = theirs(*solver or [None], problem)
        alone_cpu.append(problem.solver_cpu)
        return problem, answer

    small = (3, 6, 8, min(size[3], 2))
    for dimensions, rounds in ((small, 1), (size, repeats)):  # the first pays for imports
        alone_cpu.clear()
        svm, (problem, (W, lam, nu)), record = duel(
            lambda problem: ntpnb.max_margin(problem.data),
            solve,
            rounds,
            lambda k, dimensions=dimensions: random_problem(k, *dimensions),
            CALLS,
        )
    record |= dict(zip("VmdS", size, strict=True)) | {"contender": name, "method": svm.solver}
    if None not in alone_cpu:
        record["solver_cpu"] = float(np.median(alone_cpu))
        record["ratio_solver"] = record["solver_cpu"] / record["ours_cpu"]
    norm = np.linalg.norm(W)
    return record | {
        "kkt_ours": svm.kkt_residual,
        "kkt_theirs": None if lam is None else problem.kkt(W, lam, nu),
        "difference": apart(svm.W, W),
        "angle": 2 * np.arcsin(apart(svm.W / svm.norm, W / norm) / 2),
        "norm_ratio": float(norm / svm.norm),
    }


def alone(size, repeats):
    """``max_margin`` by itself: a record."""
    ntpnb.max_margin(random_problem(0, 3, 6, 8, 2).data)
    runs = [clock(ntpnb.max_margin, random_problem(k, *size).data) for k in range(repeats)]
    wall, cpu = np.median([spent for _, spent in runs], axis=0)
    record = dict(zip("VmdS", size, strict=True)) | {"method": runs[-1][0].solver}
    record |= {"ours_wall": float(wall), "ours_cpu": float(cpu), "repeats": repeats}
    return record | {"kkt_ours": max(svm.kkt_residual for svm, _ in runs)}
