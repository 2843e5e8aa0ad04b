"""The words of a report: one short list of lines for each thing that it says."""

import numpy as np

from ntpnb.reporting.findings import Findings, Pair, two_digits

ANGLES = (30, 10, 1)  # degrees
LISTED = 3  # pairs of the printed report
NAMED = 4  # tied tokens of a listed pair
LARGEST_WRITTEN_OUT = 6  # decades of steps; from there on a power of ten is written


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
    1 contexts, 2 tokens; different next tokens of a context: 2
    W has shape 2 × 1
    entropy 0.6931 nats: no training loss is lower
    compatible: some finite W has the log-odds of all tied tokens right
        1 dimension is enough for embeddings in general position
    separable, for nothing is ordered: training ends at finite weights
    """
    lines = _sizes(found) + _compatibility(found) + _separability(found) + _pairs(found)
    if found.separable and len(found.order.strict):
        lines += _steps(found)
    return "\n".join(lines)


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
    '1: a = b > c, after context 0'
    """
    winners = _tie(found, pair.winners)
    losers = _tie(found, pair.losers)
    context = found.context_name(pair.context)
    return f"{pair.share:.2g}: {winners} > {losers}, after {context}"


def _tie(found: Findings, tokens: tuple[int, ...]) -> str:
    names = " = ".join(found.token_name(token) for token in tokens[:NAMED])
    return names + " = …" if len(tokens) > NAMED else names


def _sizes(found: Findings) -> list[str]:
    data = found.data
    sizes = data.support.sum(1)
    spread = f"{sizes.min()}" if np.ptp(sizes) == 0 else f"{sizes.min()} to {sizes.max()}"
    drawn = ", context embeddings drawn at random" if found.random_embeddings else ""
    return [
        f"{len(data.context_probs)} contexts, {data.vocab_size} tokens; different next "
        f"tokens of a context: {spread}",
        f"W has shape {data.shape[0]} × {data.shape[1]}{drawn}",
        f"entropy {data.entropy:.4g} nats: no training loss is lower",
    ]


def _compatibility(found: Findings) -> list[str]:
    if found.compatible:
        lines = ["compatible: some finite W has the log-odds of all tied tokens right"]
    else:
        lines = [
            "not compatible: no W has the log-odds of all tied tokens right,",
            "    so the loss stays above the entropy",
        ]
    return lines + _room(found)


def _room(found: Findings) -> list[str]:
    """Say how many dimensions the supports need, and which tokens are to blame."""
    need = found.generic_dimension
    if need is None or need.dim == 0:
        return []
    dim = found.data.shape[1]
    names = ", ".join(found.token_name(token) for token in need.tokens[:NAMED])
    if len(need.tokens) > NAMED:
        names += ", …"
    asked = f"{need.equations} log-odds are asked of {len(need.tokens)} tokens"
    if need.dim > dim:  # whatever the embeddings, so many fit by coincidence only
        free = dim * (len(need.tokens) - 1)
        but = "by coincidence: " if found.compatible else ""
        return [
            f"    {but}{asked}, whose rows have {free} numbers:",
            f"    {names}; {need.dim} dimensions would do in general position",
        ]
    if not found.compatible:
        return [f"    {need.dim} dimensions would do for embeddings in general position"]
    if need.dim == 1:
        return ["    1 dimension is enough for embeddings in general position"]
    return [
        f"    {need.dim} dimensions are enough for embeddings in general position, fewer only",
        f"    by coincidence, for {asked}: {names}",
    ]


def _separability(found: Findings) -> list[str]:
    total = len(found.order.strict)
    deciding = f"{len(found.pairs)} of {total} ordered pairs"
    if found.separable is None:
        return [f"separable or not: {found.refusal}"]
    if found.svm is None:
        contexts = len({pair.context for pair in found.pairs})
        return [
            "not separable: there is no W^mm, and the loss stays above the entropy",
            f"{deciding}, in {contexts} contexts, contradict each other",
        ]
    if not total:
        return ["separable, for nothing is ordered: training ends at finite weights"]
    proof = max(found.svm.kkt_residual, 1e-10)
    return [
        f"separable with margin {found.margin:.4g} (KKT residual at most {proof:.0e}):",
        "    the weights grow without bound towards W^mm",
        f"{deciding} decide W^mm",
    ]


def _pairs(found: Findings) -> list[str]:
    lines = [f"    {spell_pair(found, pair)}" for pair in found.pairs[:LISTED]]
    lighter = len(found.pairs) - LISTED
    if lighter > 0:
        lines.append(f"    and {lighter} lighter")
    return lines


def _steps(found: Findings) -> list[str]:
    if found.law is None:
        return ["steps to a given angle: not known, for the multipliers are not unique"]
    angles: tuple[int, ...] = ANGLES
    caution = ""
    if found.flow is None:  # the law holds at small angles only
        angles = ANGLES[-1:]
        caution = " (by the late law, often too few)"
    lines = [f"steps of gradient descent, of size 1/L = {found.step:.3g} from zero:"]
    for degrees in angles:
        number = _number_of_steps(found.log10_steps(degrees))
        lines.append(f"    about {number} to come within {degrees}° of W^mm{caution}")
    return lines


def _number_of_steps(decades: float) -> str:
    if decades < LARGEST_WRITTEN_OUT:
        return f"{two_digits(10**decades):,.0f}"
    return f"10^{decades:.1f}"
