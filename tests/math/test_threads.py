"""BLAS threads: one while the package works on small matrices, the user's own number after that.

Each test runs in a process of its own, in which nobody has said how many threads there should be.
"""

import os
import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import threading
import numpy as np
from threadpoolctl import threadpool_info
import ntpnb
from ntpnb.basics import threads

def numbers():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}

users = numbers()
if not users:
    raise SystemExit(NO_THREADS)
toy = ntpnb.datasets.toy()
seen = []

def look(line):
    seen.append(numbers())
"""
NO_THREADS = 77
"""What the process ends with where threadpoolctl can limit no BLAS, such as Apple's."""


def run(code):
    """Run code after :data:`BEGIN`; what it asserts must hold."""
    silent = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    shell = {name: value for name, value in os.environ.items() if name not in silent}
    whole = BEGIN.replace("NO_THREADS", str(NO_THREADS)) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, env=shell)
    if done.returncode == NO_THREADS:
        pytest.skip("no BLAS here whose threads can be limited")
    assert not done.returncode, done.stderr


CALLS = {
    "max_margin": "ntpnb.max_margin(toy)",
    "is_separable": "ntpnb.is_separable(toy)",
    "finite_part": "ntpnb.finite_part(toy)",
    "equal_subspace": "ntpnb.equal_subspace(toy).project(np.ones((5, 2)))",
    "token_priority": "ntpnb.token_priority(toy)",
    "descend": "ntpnb.descend(toy, ntpnb.GD(0.5), 10)",
    "gradient_flow": "ntpnb.gradient_flow(toy, [0.0, 50.0])",
    "regularization_path": "ntpnb.regularization_path(toy, [1.0, 1e3])",
    "ridge_path": "ntpnb.ridge_path(toy, [1.0, 1e-3])",
    "next_order_term": "ntpnb.next_order_term(toy)",
    "loss_floor": "ntpnb.loss_floor(contradiction)",
    "adam_metric": "ntpnb.adam_metric(toy, (0.0, 0.9), 200)",
    "report": "ntpnb.report(toy)",
    "max_margin of a bias": "ntpnb.implicit_bias(toy).max_margin",
    "finite_part of a bias": "ntpnb.implicit_bias(toy).finite_part",
    "twin": "ntpnb.implicit_bias(contradiction).twin",
    "compare": "ntpnb.compare(np.ones((5, 2)), toy)",
    "compare of a trace": "ntpnb.descend(toy, ntpnb.GD(0.5), 10).compare(ntpnb.implicit_bias(toy))",
    "cross_entropy": "ntpnb.cross_entropy(np.ones((5, 2)), toy)",
    "gradient": "ntpnb.gradient(np.ones((5, 2)), toy)",
    "excess_loss": "ntpnb.excess_loss(np.ones((5, 2)), toy)",
    "descend_head": "ntpnb.attention.descend_head(figure2, squared, ntpnb.GD(0.1), 3)",
}


def test_every_function_that_computes_has_one_thread_and_leaves_the_users_number():
    run(f"""
        figure2, squared = ntpnb.datasets.figure2(), ntpnb.attention.squared
        contradiction = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
        controller = type(threads._blas())
        limit = controller.limit

        def limited(self, **what):
            assert what == {{"limits": 1}}, what
            within = limit(self, **what)
            seen.append(numbers())
            return within

        controller.limit = limited
        for name, call in {CALLS!r}.items():
            seen.clear()
            eval(call)
            assert seen, name + " sets no limit"
            assert all(number == {{1}} for number in seen), name
            assert numbers() == users, name
    """)


def test_a_small_solve_sees_one_thread():
    run("""
        ntpnb.max_margin(toy, progress=look)
        assert seen, "nothing was looked at"
        assert all(number == {1} for number in seen), seen
        assert numbers() == users
    """)


def test_calls_inside_calls_set_no_limit_and_restore_none():
    run("""
        @threads.one_thread
        def outer():
            ntpnb.max_margin(toy)
            return numbers()

        assert outer() == {1}
        assert numbers() == users
        ntpnb.max_margin(toy, progress=lambda line: look(line) or ntpnb.is_separable(toy))
        assert set(map(frozenset, seen)) == {frozenset({1})}
        assert numbers() == users
    """)


def test_errors_restore_the_users_number():
    run("""
        def fail(line):
            raise KeyError(line)

        for call in (
            lambda: ntpnb.max_margin(5),
            lambda: ntpnb.max_margin(ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])),
            lambda: ntpnb.max_margin(toy, progress=fail),
            lambda: ntpnb.descend(toy, ntpnb.GD(0.5), 10**9, seconds=0.01),
        ):
            try:
                call()
            except (TypeError, ValueError, KeyError, ntpnb.ConvergenceError):
                pass
            else:
                raise AssertionError("no error")
            assert numbers() == users
            assert not threads._users_threads
    """)


def test_large_work_has_the_users_number_and_small_work_one_thread():
    run("""
        class Factor(np.ndarray):
            def __matmul__(self, other):
                look("product")
                return np.asarray(self) @ other

        @threads.one_thread
        def products():
            threads.product(np.ones((10, 10)).view(Factor), np.ones((10, 10)))
            side = round(threads.MUCH_WORK ** (1 / 3)) + 1
            threads.product(np.ones((side, side)).view(Factor), np.ones((side, side)))
            look("between")
            with threads.threads_for(threads.MUCH_WORK):
                look("factor")
            look("after")

        products()
        assert seen == [{1}, users, {1}, users, {1}], seen
        assert numbers() == users
        with threads.threads_for(threads.MUCH_WORK):  # outside, nothing changes
            assert numbers() == users
    """)


def test_a_large_gradient_uses_all_threads():
    run("""
        threads.MUCH_WORK = 5 * 3 * 2  # the toy's scores, and their way back
        gives = threads._users_number

        def noted():
            within = gives()
            seen.append("asked")
            return within

        threads._users_number = noted
        ntpnb.gradient(np.zeros((5, 2)), toy)
        assert len(seen) == 2
        assert numbers() == users
    """)


def test_two_python_threads_leave_the_users_number_behind():
    run("""
        inside, leave = threading.Event(), threading.Event()

        def hold(line):
            inside.set()
            leave.wait(60)

        other = threading.Thread(target=ntpnb.max_margin, args=(toy,), kwargs={"progress": hold})
        other.start()
        assert inside.wait(60)
        svm = ntpnb.max_margin(toy, progress=look)  # the other one has the limit, and keeps it
        with threads.threads_for(threads.MUCH_WORK):
            look("large")
        leave.set()
        other.join()
        assert all(number == {1} for number in seen), seen
        assert numbers() == users
        threads.one_thread(look)("again")
        assert seen[-1] == {1}
        assert numbers() == users
    """)


def test_warnings_name_the_users_line():
    run("""
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ntpnb.descend(toy, ntpnb.GD(1e9), 50)
        assert [warning.filename for warning in caught] == ["<string>"], caught
    """)
