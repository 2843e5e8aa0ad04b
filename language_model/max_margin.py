"""Solve for ``W^mm`` of all the model's contexts: ``python -m language_model.max_margin``.

Of 6.5 million ordered pairs about nine thousand decide. Their multipliers are written to
``ntpnb_book/data_files/language_model_margin.npz``. Everything follows from them without this
program: ``W^mm`` is their combination of the pairs, whose margins prove that none is larger than
its own. It takes about two minutes of one core.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

import ntpnb
from language_model.training import save_whole
from ntpnb.problem.equivalent import SharedMultipliers
from ntpnb_book import language_model

OUTPUT = Path(__file__).resolve().parents[1] / "ntpnb_book/data_files/language_model_margin.npz"


def multipliers_of(data: ntpnb.NextTokenData) -> csr_array:
    """The multipliers of the max-margin problem's pairs, by context and losing word, shape (m, V).

    Parameters
    ----------
    data : NextTokenData
        Separable, with more contexts than words that never follow one.
    """
    solution = ntpnb.max_margin(data, progress=print)
    print(solution)
    stored = solution.strict_multipliers
    assert isinstance(stored, SharedMultipliers)
    assert (stored.kept == np.arange(data.vocab_size)).all()
    return stored.table


def main() -> None:
    """Solve and write."""
    parser = argparse.ArgumentParser(prog="python -m language_model.max_margin")
    parser.add_argument("--out", type=Path, default=OUTPUT, help="file to write (%(default)s)")
    arguments = parser.parse_args()

    table = multipliers_of(language_model().data()).tocoo()
    contexts, losers = table.coords
    arrays = {
        "contexts": contexts.astype(np.uint16),
        "losers": losers.astype(np.uint16),
        "weights": table.data,
    }
    save_whole(arguments.out, arrays)


if __name__ == "__main__":
    main()
