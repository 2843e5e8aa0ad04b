"""What a report says, as plain values that JSON can write."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from ntpnb.bias import Twin
from ntpnb.reporting.findings import ANGLES, Findings

PAIRS_LISTED = 100


def plain_values(found: Findings) -> dict[str, Any]:
    """Collect a report's findings in one dictionary; None stands for what is not known.

    Parameters
    ----------
    found : Findings

    Returns
    -------
    dict
        Of numbers, truth values, strings, lists and dictionaries.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.summary import plain_values
    >>> said = plain_values(ntpnb.report(ntpnb.datasets.toy()))
    >>> said["separable"], round(said["margin"], 4), said["pairs"][0]["winners"]
    (True, 0.4419, ['0', '3', '4'])
    """
    data = found.data
    sizes = found.support_sizes
    room = found.generic_dimension
    pairs = [
        {
            "share": pair.share,
            "context": found.context_name(pair.context),
            "winners": [found.token_name(token) for token in pair.winners],
            "losers": [found.token_name(token) for token in pair.losers],
        }
        for pair in found.pairs[:PAIRS_LISTED]
    ]
    return {
        "contexts": len(data.context_probs),
        "tokens": data.vocab_size,
        "shape": list(data.shape),
        "next_tokens": {"fewest": int(sizes.min()), "most": int(sizes.max())},
        "embedding": found.data.embedding,
        "entropy": data.entropy,
        "compatible": found.compatible,
        "dimensions_needed": None if room is None else room.dim,
        "demanding_tokens": [] if room is None else [found.token_name(v) for v in room.tokens],
        "separable": found.separable,
        "margin": _number(found.margin),
        "undecided_because": None if found.separable is not None else _why_undecided(found),
        "ordered_pairs": None if found.separable is None else found.num_ordered_pairs,
        "used_pairs": len(found.pairs),
        "pairs": pairs,
        "twin": None if found.twin is None else _twin(found.twin),
        "step": _number(found.step),
        "log10_steps_to_degrees": {
            str(degrees): _number(found.log10_steps(degrees)) for degrees in ANGLES
        },
        "descent": None if found.descent is None else _descent(found),
        "weights": None if found.weights is None else _weights(found),
        "failures": {part: str(error) for part, error in found.failures.items()},
    }


def _number(value: float | None) -> float | None:
    """A number that JSON can write, or None."""
    return float(value) if value is not None and math.isfinite(value) else None


def _numbers(values: npt.NDArray[Any]) -> Any:
    """Nested lists of numbers, with None for those that JSON cannot write."""
    if values.ndim == 0:
        return _number(values.item())
    return [_numbers(row) for row in values]


def _why_undecided(found: Findings) -> str:
    return str(found.failures.get("direction", found.refusal))


def _twin(twin: Twin) -> dict[str, Any]:
    svm = twin.require_max_margin()
    return {
        "finite_pairs": len(twin.finite),
        "won_pairs": len(twin.won),
        "loss_tends_to": twin.data.entropy,
        "finite_part_norm": float(np.linalg.norm(twin.finite_part.W)),
        "margin": 1 / svm.norm if svm.norm else None,
        "certificate_residual": twin.residual,
    }


def _descent(found: Findings) -> dict[str, Any]:
    run = found.descent
    assert run is not None  # so says who asks
    return {
        "steps": run.steps.tolist(),
        "degrees": _numbers(np.degrees(run.angle)),
        "excess": _numbers(run.excess),
        "law_holds": found.law_holds,
    }


def _weights(found: Findings) -> dict[str, Any]:
    seen = found.weights
    assert seen is not None  # so says who asks
    return {
        "degrees": _numbers(np.degrees(seen.angle)),
        "alignment": _numbers(seen.alignment),
        "corrected_alignment": _numbers(seen.corrected_alignment),
        "finite_error": _numbers(seen.finite_error),
        "norm": _numbers(seen.norm),
        "excess": _numbers(seen.excess),
        "smallest_margin": _numbers(seen.smallest_margin),
    }
