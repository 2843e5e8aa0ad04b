"""Time and memory of a report by the size of its text, or model: ``python -m benchmarks.sizes``.

Texts are the beginnings of what every Python has, its documentation and its own code, and of a log
that is made up. The model has random weights and the shape of GPT-2; the lines of chapter 16 read
it, which takes PyTorch (``authors_trials/requirements.lock``). Each report is a process of its own.
"""

import os
import re
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import ntpnb
from benchmarks import report
from benchmarks.files import cell, table
from benchmarks.text import drawn_words
from benchmarks.timing import clock, isolated

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "benchmarks/results/sizes.csv"
SIZES = (1_000, 10_000, 100_000, 1_000_000, 5_000_000)
MODELS = ((640, 50_257, 768), (2560, 50_257, 768))
"""Positions, tokens and dimensions."""


def documentation():
    """What ``help`` knows of the language, half a megabyte of English."""
    from pydoc_data.topics import topics

    return "\n".join(topics.values())


def code():
    """The modules of the standard library, and then those in its folders, one after the other."""
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(library.glob("*.py"))
    for folder in ("asyncio", "email", "idlelib", "lib2to3", "multiprocessing", "unittest"):
        files += sorted((library / folder).glob("*.py"))
    return "\n".join(path.read_text("utf-8", errors="replace") for path in files)


def log():
    """Lines of a made-up log, with times, hosts and numbers."""
    rng = np.random.default_rng(0)
    events = ["request served", "cache missed", "user logged in", "connection closed", "retry"]
    number = 120_000
    lines = []
    for second, host, event, took in zip(
        rng.exponential(2, number).cumsum(),
        rng.integers(40, size=number),
        rng.choice(events, number, p=[0.5, 0.2, 0.15, 0.1, 0.05]),
        rng.exponential(30, number),
        strict=True,
    ):
        time = f"{int(second // 3600):02}:{int(second // 60) % 60:02}:{second % 60:06.3f}"
        lines.append(f"{time} host{host} INFO {event} in {took:.1f} ms")
    return "\n".join(lines)


TEXTS = {"English": documentation, "code": code, "log": log}


def of_text(kind, size):
    """Report on the first bytes of a text: a record, with no seconds where it is shorter."""
    text = TEXTS[kind]().encode()[:size]
    if len(text) < size:
        return {}
    _, (_, cpu) = clock(lambda: str(ntpnb.report(text.decode(errors="ignore"))))
    return {"cpu": cpu}


def of_model(positions, vocab_size, dim):
    """Run the lines of chapter 16 on a model with random weights: a record."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    here, before = (torch.nn.Embedding(vocab_size, dim) for _ in range(2))
    model = SimpleNamespace(
        body=lambda tokens: torch.tanh(here(tokens) + before(tokens.roll(1, dims=1))),
        decoder=torch.nn.Linear(dim, vocab_size),
    )
    drawn = drawn_words(np.random.default_rng(0), vocab_size, (positions // 80, 81))
    names = {
        "model": model,
        "batches": torch.tensor(drawn).split(8),
        "vocabulary": {f"word {token}": token for token in range(vocab_size)},
    }
    chapter = (ROOT / "notebooks/16_your_data.md").read_text("utf-8")
    below = chapter.partition("(your-data-torch)=")[2]
    lines = re.search(r"^```python\n(.*?)^```$", below, re.DOTALL | re.MULTILINE)[1]
    _, (_, cpu) = clock(exec, lines, names)
    return {"cpu": cpu}


def main():
    """Measure all sizes, and write the table that the book shows."""
    asked = [(of_text, kind, size) for size in SIZES for kind in TEXTS]
    if find_spec("torch"):
        asked += [(of_model, *shape) for shape in MODELS]
    else:
        print("models are left out: PyTorch is not installed")
    rows = []
    for measure, *of in asked:
        found = isolated(measure, *of)
        if "cpu" not in found:  # the text is shorter
            continue
        if measure is of_text:
            what = f"{of[0]}, {of[1] // 1000:,} kB"
        else:
            what = "{:,} positions, {:,} tokens, {} dimensions".format(*of)
        rows.append((what, cell(found["cpu"], "cpu"), cell(found["peak_mb"], "peak")))
        print(*rows[-1], sep=", ", flush=True)
    rows.append((f"({report.today()}, {report.processor()}, {os.cpu_count()} cores)", "", ""))
    table(TABLE, [("report on", "CPU s", "MiB"), *rows])


if __name__ == "__main__":
    main()
