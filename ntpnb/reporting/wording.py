"""The words of a report: one short list of lines for each thing that it says."""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ntpnb.basics.tolerances import NEGLIGIBLE
from ntpnb.basics.validation import counted
from ntpnb.bias import Twin
from ntpnb.problem.data import sizes_of
from ntpnb.problem.text import Embedding
from ntpnb.reporting.findings import (
    ANGLES,
    DIMENSIONS,
    DIRECTION,
    FINITE_PART,
    ROOM,
    SHORTEST_RUN,
    TWIN,
    WAY,
    DescentRecord,
    DimensionSweep,
    Findings,
    Pair,
    two_digits,
)
from ntpnb.training.comparison import WeightComparison
from ntpnb.training.late_time import LateLaw

LISTED = 3  # pairs of the printed report, and contexts
NAMED = 4  # tied tokens of a listed pair
EMBEDDED: dict[Embedding | None, str] = {
    None: "",
    "random": ", context embeddings drawn at random",
    "mean": ", contexts are means of random word vectors",
    "concatenated": ", contexts are random word vectors in a row",
}


def describe(found: Findings) -> str:
    """Write a report, a line for each finding.

    Parameters
    ----------
    found : Findings

    Returns
    -------
    str

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.wording import describe
    >>> print(describe(ntpnb.report(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5]]))))
    1 context, 2 tokens; different next tokens of a context: 2
    W has shape 2 × 1
    entropy 0.6931 nats: no training loss is lower
    compatible: some finite W has the log-odds of all tied tokens right
        1 dimension is enough for embeddings in general position
    separable, for nothing is ordered: training ends at finite weights
    """
    lines = _sizes(found) + _compatibility(found) + _separability(found) + _pairs(found)
    lines += _dimensions(found) + _twin(found)
    if _grows(found):
        lines += _steps(found)
    return "\n".join(lines + _weights(found))


def summarize(found: Findings) -> str:
    """Write one line on a report.

    Parameters
    ----------
    found : Findings

    Returns
    -------
    str

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.wording import summarize
    >>> summarize(ntpnb.report(ntpnb.datasets.toy()))
    'Report(3 contexts, 5 tokens, compatible, separable with margin 0.4419)'
    """
    compatible = {
        True: "compatible",
        False: "not compatible",
        None: "compatible or not: undecided",
    }[found.compatible]
    if found.separable is None:
        separable = "separable or not: undecided"
    elif not found.separable:
        separable = "not separable"
    elif found.num_ordered_pairs:
        separable = f"separable with margin {found.margin:.4g}"
    else:
        separable = "nothing ordered"
    return f"Report({sizes_of(found.data)}, {compatible}, {separable})"


def spell_pair(found: Findings, pair: Pair) -> str:
    """Write one of a report's pairs in words.

    Parameters
    ----------
    found : Findings
    pair : Pair

    Returns
    -------
    str

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.wording import spell_pair
    >>> found = ntpnb.report(ntpnb.NextTokenData([[1.0]], [[0.5, 0.5, 0.0]]), words=["a", "b", "c"])
    >>> spell_pair(found, found.pairs[0])
    '1: a = b > c, after context row 0'
    """
    winners, losers = (
        _first_few(tokens, found.token_name, NAMED, " = ") for tokens in (pair.winners, pair.losers)
    )
    return f"{pair.share:.2g}: {winners} > {losers}, after {found.context_name(pair.context)}"


def _first_few(
    numbers: Sequence[int], name: Callable[[int], str], most: int, joint: str = ", "
) -> str:
    """Write the names of the first tokens or rows, and dots where there are others."""
    names = [name(number) for number in numbers[:most]]
    return joint.join(names if len(numbers) <= most else [*names, "…"])


def _sizes(found: Findings) -> list[str]:
    data = found.data
    sizes = found.support_sizes
    spread = f"{sizes.min()}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()}"
    drawn = EMBEDDED[found.data.embedding]
    return [
        f"{sizes_of(data)}; different next tokens of a context: {spread}",
        f"W has shape {data.shape[0]} × {data.shape[1]}{drawn}",
        f"entropy {data.entropy:.4g} nats: no training loss is lower",
        *_tiny_probabilities(found),
    ]


def _tiny_probabilities(found: Findings) -> list[str]:
    """Warn where something tiny stands in place of zeros, so that nothing is ordered."""
    smallest = found.data.sparse_target_probs.data.min()
    if smallest >= NEGLIGIBLE:  # as any count of next tokens is
        return []
    tiny = f"{NEGLIGIBLE:g}"
    return [
        f"    the smallest target probability is {smallest:.2g}; only tokens of probability zero",
        f"    must lose; NextTokenData(…, support_threshold={tiny}) takes what is smaller for zero",
    ]


def _compatibility(found: Findings) -> list[str]:
    if found.compatible is None:
        lines = _failed("compatible or not", found.failures[FINITE_PART])
    elif found.compatible:
        lines = ["compatible: some finite W has the log-odds of all tied tokens right"]
    else:
        lines = [
            "not compatible: no W has the log-odds of all tied tokens right,",
            "    so the loss stays above the entropy",
        ]
        if found.separable:
            lines[-1] += f": it tends to {found.bias.twin.loss_limit:.4g} nats"
    return lines + _room(found)


def _room(found: Findings) -> list[str]:
    """Say how many dimensions the supports need, and which tokens are to blame."""
    if ROOM in found.failures:
        return _failed("    dimensions that are needed", found.failures[ROOM])
    need = found.generic_dimension
    if need is None or need.dim == 0:
        return []
    dim = found.data.shape[1]
    names = _first_few(need.tokens.tolist(), found.token_name, NAMED)
    asked = f"{need.equations} log-odds are asked of {len(need.tokens)} tokens"
    if need.dim > dim:  # whatever the embeddings, so many fit by coincidence only
        free = dim * (len(need.tokens) - 1)
        but = "by coincidence: " if found.compatible else ""
        return [
            f"    {but}{asked}, whose rows have {counted(free, 'number')}:",
            f"    {names}; {need.dim} dimensions would do in general position",
        ]
    if found.compatible is False:
        return [f"    {counted(need.dim, 'dimension')} would do for embeddings in general position"]
    if need.dim == 1:
        return ["    1 dimension is enough for embeddings in general position"]
    return [
        f"    {need.dim} dimensions are enough for embeddings in general position, fewer only",
        f"    by coincidence, for {asked}: {names}",
    ]


def _separability(found: Findings) -> list[str]:
    if found.separable is None:
        return _failed("separable or not", _why_undecided(found))
    total = found.num_ordered_pairs
    deciding = f"{len(found.pairs)} of {counted(total, 'ordered pair')}"
    if found.svm is None:
        if not found.pairs:
            return [
                "not separable: there is no W^mm, and the loss stays above "
                f"{found.bias.floor.lower:.4g} nats"
            ]
        contexts = len({pair.context for pair in found.pairs})
        clash = "contradict each other" if len(found.pairs) > 1 else "can have no positive margin"
        return [
            "not separable: there is no W^mm, and the loss stays above the entropy",
            f"{deciding}, in {counted(contexts, 'context')}, {clash}",
        ]
    if not total:
        return ["separable, for nothing is ordered: training ends at finite weights"]
    proof = max(found.svm.kkt_residual, 1e-10)
    shared = ["    (one of the tokens that never follow stands for all of them)"]
    return [
        f"separable with margin {found.margin:.4g} (KKT residual at most {proof:.0e}):",
        "    the weights grow without bound towards W^mm",
        f"{deciding} {'decides' if len(found.pairs) == 1 else 'decide'} W^mm",
        *(shared if found.has_shared_losers else []),
    ]


def _dimensions(found: Findings) -> list[str]:
    """Say what is separable by construction, and in how few dimensions this text is."""
    if DIMENSIONS in found.failures:
        return _failed("    in fewer dimensions", found.failures[DIMENSIONS])
    sweep = found.dimensions
    if sweep is None:
        return _of_drawn_vectors(found)
    lines = [
        f"by construction any text is separable in as many dimensions as contexts, "
        f"{found.data.num_contexts};",
        f"    this one is so in {sweep.separable} of them",
    ]
    below = found.contradiction
    if below is None:
        return lines
    lines[-1] += f", and not in {below.data.shape[1]}, where these contradict each other:"
    lines += _pairs(below)
    if sweep.random_separable is not None:
        again = "are separable there" if sweep.random_separable else "contradict each other too"
        lines.append(f"    as many next tokens for each context, drawn at random, {again}")
    return lines


def _of_drawn_vectors(found: Findings) -> list[str]:
    """Say of contexts that were given random vectors that the verdict is one on these."""
    data = found.data
    dim = data.shape[1]
    is_asked = data.embedding == "random" and found.separable is not None
    if not is_asked or dim >= data.num_contexts or not found.num_ordered_pairs:
        return []
    return [
        f"    (with {counted(dim, 'dimension')} drawn for each context; with as many as contexts, "
        f"{data.num_contexts:,},",
        "    any text is separable)",
    ]


def _pairs(found: Findings) -> list[str]:
    lines = [f"    {spell_pair(found, pair)}" for pair in found.pairs[:LISTED]]
    others = len(found.pairs) - LISTED
    if others > 0:
        lines.append(f"    and {others} more")  # which may weigh as much
    return lines


def _twin(found: Findings) -> list[str]:
    """Say where training goes though the data are not separable."""
    if TWIN in found.failures:
        return _failed("where training goes then", found.failures[TWIN])
    twin = found.twin
    if twin is None:
        return []
    num_finite = len(twin.finite)
    loss = f"the loss tends to {twin.loss_limit:.4g} nats"
    norm = float(np.linalg.norm(twin.finite_part.W))
    is_zero = norm <= NEGLIGIBLE * math.sqrt(found.step)  # √(1/L): a length whose scores are of one
    size = "finite part that is zero" if is_zero else f"finite part of norm {norm:.4g}"
    svm = twin.require_max_margin()
    if not len(twin.won):
        return [
            f"training converges: all {num_finite} ordered pairs are part of a contradiction,",
            f"    no score grows without bound, and {loss}",
            f"    W tends to a {size}",
        ]
    return [
        f"training wins {len(twin.won)} of the ordered pairs; {num_finite} are part of a "
        "contradiction and stay",
        f"    finite, and {loss}",
        f"    W grows towards the direction that wins the others, with margin {1 / svm.norm:.4g},",
        f"    beside a {size}",
    ]


def _grows(found: Findings) -> bool:
    """Whether the weights grow without bound, in a direction that is known."""
    if found.twin is not None:
        return len(found.twin.won) > 0
    return bool(found.separable and found.num_ordered_pairs)


def name_direction(found: Findings, *, in_title: bool = False) -> str:
    """Name the direction in which the weights grow, in a text or, shorter, in a figure's title.

    Examples
    --------
    >>> import ntpnb
    >>> from ntpnb.reporting.wording import name_direction
    >>> name_direction(ntpnb.report(ntpnb.datasets.toy()))
    'W^mm'
    """
    if found.twin is None:
        return "$W^{\\mathrm{mm}}$" if in_title else "W^mm"
    return "what wins" if in_title else "the direction that wins"


def _steps(found: Findings) -> list[str]:
    if WAY in found.failures:
        return _failed("steps to a given angle", found.failures[WAY])
    if found.way is None:
        return [
            f"steps to a given angle: not known, for {SHORTEST_RUN} of descent take over a second"
        ]
    lines = [f"steps of gradient descent, of size 1/L = {found.step:.3g} from zero:"]
    run = found.descent
    for degrees in ANGLES:
        decades = found.log10_steps(degrees)
        if not math.isnan(decades):
            number = _number_of_steps(decades)
            by_law = run is not None and np.radians(degrees) < run.angle[-1]
            lines.append(
                f"    about {number} to come within {degrees}° of {name_direction(found)}"
                f"{' (by the late law)' if by_law else ''}"
            )
    if run is not None and math.isnan(found.log10_steps(ANGLES[-1])):
        angle = np.degrees(run.angle[-1])
        lines.append(f"    {run.steps[-1]:,} came within {angle:.3g}°, and more were not tried")
    return lines


def _why_undecided(found: Findings) -> Exception | None:
    """Why it is not known whether the data are separable."""
    return found.failures.get(DIRECTION, found.refusal)


def _failed(what: str, error: Exception | None) -> list[str]:
    """Say that a part of the report is not known, and why."""
    return textwrap.wrap(f"{what}: {error}", subsequent_indent="    ")


def _weights(found: Findings) -> list[str]:
    """Say where the weights that were given stand."""
    seen = found.weights
    if seen is None:
        return []
    direction = name_direction(found)
    subspace = "F" if found.twin is None else "F with the contradictions"
    shown = {
        "loss above the entropy, in nats": seen.excess,
        "loss above the least of all W, in nats": seen.above_floor,
        f"degrees to {direction}": np.degrees(seen.angle),
        f"degrees to {direction} without the finite part": np.degrees(
            np.arccos(seen.corrected_alignment)
        ),
        f"distance from the finite part, in {subspace}": seen.finite_error,
        "smallest margin": seen.smallest_margin,
    }
    number = seen.excess.size
    lines = [f"your {number} matrices W, from the first to the last:" if number > 1 else "your W:"]
    chosen = np.unique(np.linspace(0, number - 1, 6).round().astype(int))
    if np.array_equal(seen.above_floor, seen.excess):  # the entropy is the least
        del shown["loss above the least of all W, in nats"]
    for name, values in shown.items():
        if not np.isnan(values).all():
            row = "  ".join(f"{value:.3g}" for value in np.atleast_1d(values)[chosen])
            lines.append(f"    {name}: {row}")
    return lines + _wrong_contexts(found, seen)


def _wrong_contexts(found: Findings, seen: WeightComparison) -> list[str]:
    """Say in which contexts the last matrix has some pair in the wrong order."""
    margins = seen.margin.reshape(-1, seen.margin.shape[-1])
    if not len(margins) or not (margins[-1] < 0).any():
        return []
    last = margins[-1]
    num_wrong = np.count_nonzero(last < 0)
    worst_first = np.argsort(last, kind="stable")[:num_wrong].tolist()
    of_which = "the last one" if len(margins) > 1 else "it"
    return [
        f"    {of_which} has pairs in the wrong order in {num_wrong} of "
        f"{counted(len(last), 'context')}:",
        f"    {_first_few(worst_first, found.row_name, LISTED)}",
    ]


def _number_of_steps(decades: float) -> str:
    if decades < 6:
        return f"{two_digits(10**decades):,.0f}"
    return f"10^{decades:.1f}"


# -- for programs ----------------------------------------------------------------------------------


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
    >>> from ntpnb.reporting.wording import plain_values
    >>> said = plain_values(ntpnb.report(ntpnb.datasets.toy()))
    >>> said["separable"], round(said["margin"], 4), said["pairs"][0]["winners"]
    (True, 0.4419, ['0', '3', '4'])
    """
    data = found.data
    sizes = found.support_sizes
    room, sweep = found.generic_dimension, found.dimensions
    said = {
        "contexts": data.num_contexts,
        "tokens": data.vocab_size,
        "shape": list(data.shape),
        "next_tokens": {"fewest": sizes.min(), "most": sizes.max()},
        "embedding": data.embedding,
        "entropy": data.entropy,
        "compatible": found.compatible,
        "dimensions_needed": None if room is None else room.dim,
        "demanding_tokens": [] if room is None else [found.token_name(v) for v in room.tokens],
        "separable": found.separable,
        "margin": found.margin,
        "undecided_because": None if found.separable is not None else str(_why_undecided(found)),
        "dimensions": None if sweep is None else _plain_sweep(sweep),
        "ordered_pairs": None if found.separable is None else found.num_ordered_pairs,
        "used_pairs": len(found.pairs),
        "pairs": [
            {
                "share": pair.share,
                "context": found.context_name(pair.context),
                "winners": [found.token_name(token) for token in pair.winners],
                "losers": [found.token_name(token) for token in pair.losers],
            }
            for pair in found.pairs[:100]
        ],
        "twin": None if found.twin is None else _plain_twin(found.twin),
        "step": found.step,
        "log10_steps_to_degrees": {str(degrees): found.log10_steps(degrees) for degrees in ANGLES},
        "descent": None if found.descent is None else _plain_descent(found.descent, found.law),
        "weights": None if found.weights is None else _plain_weights(found.weights),
        "failures": {part: str(error) for part, error in found.failures.items()},
    }
    plain: dict[str, Any] = _plain(said)
    return plain


def _plain(value: Any) -> Any:
    """What JSON can write of a value: lists of arrays, and None of numbers that are not finite."""
    match value:
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
        case dict():
            return {key: _plain(part) for key, part in value.items()}
        case list():
            return [_plain(part) for part in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value


def _plain_sweep(sweep: DimensionSweep) -> dict[str, Any]:
    below = sweep.contradicted
    return {
        "separable_in": sweep.separable,
        "not_separable_in": None if below is None else below.shape[1],
        "random_separable_there": sweep.random_separable,
    }


def _plain_descent(run: DescentRecord, law: LateLaw | None) -> dict[str, Any]:
    return {
        "steps": run.steps,
        "degrees": np.degrees(run.angle),
        "excess": run.excess,
        "law_holds": law is not None,
    }


def _plain_twin(twin: Twin) -> dict[str, Any]:
    svm = twin.require_max_margin()
    return {
        "finite_pairs": len(twin.finite),
        "won_pairs": len(twin.won),
        "loss_tends_to": twin.loss_limit,
        "finite_part_norm": np.linalg.norm(twin.finite_part.W),
        "margin": 1 / svm.norm if svm.norm else None,
        "certificate_residual": twin.residual,
    }


def _plain_weights(seen: WeightComparison) -> dict[str, Any]:
    names = ("alignment", "corrected_alignment", "finite_error", "norm", "excess", "above_floor")
    plain = {"degrees": np.degrees(seen.angle)} | {name: getattr(seen, name) for name in names}
    return plain | {"smallest_margin": seen.smallest_margin}
