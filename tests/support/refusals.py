"""What a call of the package may end in: an answer of numbers, or a refusal in words; in time."""

import dataclasses
import re
import signal
import threading
import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import reference

import ntpnb
from ntpnb import ConvergenceError, NextTokenData, NotSeparableError

SECONDS = 60  # for one case; the slowest takes a few
PACKAGE = Path(ntpnb.__file__).parent


class Hang(BaseException):
    """A case that did not end in time; no `except Exception` can swallow it, nor is it shrunk."""


@contextmanager
def in_time(case, seconds=SECONDS):
    """Raise `Hang` in the main thread, where pytest and its workers run tests, after some time."""

    def stop(*_):
        described = [vars(x) if isinstance(x, NextTokenData) else x for x in case]
        raise Hang(f"still running after {seconds} s: {described}")

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def call(function, *args, **kwargs):
    """The result, or None where the call was refused in one of the ways the package documents."""
    with in_time([function, *args, kwargs]):
        try:
            result = function(*args, **kwargs)
        except NotSeparableError as error:
            assert_refutes(error.certificate, next(a for a in args if isinstance(a, NextTokenData)))
            return None
        except (ConvergenceError, ValueError, TypeError) as error:
            assert_in_words(error)
            return None
    return result


def assert_in_words(error, named=""):
    """A message that ntpnb wrote for the caller: its last line of code is a `raise` of ntpnb."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert Path(last.filename).is_relative_to(PACKAGE), f"not in words: {error!r}"
    written = "\n".join(Path(last.filename).read_text("utf-8").splitlines()[last.lineno - 1 :])
    assert written.lstrip().startswith("raise "), f"not in words: {error!r}"
    assert len(str(error)) > 20
    assert re.search(named, str(error)), error
    assert getattr(error, "residual", 0.0) >= 0, error  # false for nan


def assert_refutes(certificate, data):
    """Farkas: the certificate's sum of the strict pairs lies in the span of the ties."""
    strict = reference.pair_matrices(data, ntpnb.token_priority(data).strict.tolist())
    assert certificate.shape == (len(strict),)
    assert certificate.min() >= 0
    assert certificate.sum() > 0
    lengths = np.linalg.norm(strict, axis=1)
    if certificate[lengths <= 1e-15 * lengths.max()].any():
        return  # a pair of equal tokens, or at a zero context, needs no other
    size = certificate @ lengths
    basis = reference.pair_matrices(data, reference.equal_pairs(data), unit=True)
    total = certificate @ strict / (size or 1.0)
    if len(basis):
        total = total - np.linalg.lstsq(basis.T, total)[0] @ basis
    assert np.linalg.norm(total) <= 1e-9


def assert_numbers(result, *, but=()):
    """No float in the result is nan or infinite, apart from the fields named in `but`."""
    if dataclasses.is_dataclass(result):
        fields = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
        for name, value in fields.items():
            if name not in but:
                assert_numbers(value)
    elif isinstance(result, NextTokenData):
        for value in vars(result).values():
            assert_numbers(value)
    elif isinstance(result, tuple | list):
        for value in result:
            assert_numbers(value)
    elif isinstance(result, float | np.ndarray) and np.asarray(result).dtype.kind == "f":
        assert np.isfinite(result).all(), result
