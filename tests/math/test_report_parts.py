"""A report whose parts fail one by one, that is limited in time, or that is given weights."""

import numpy as np
import pytest
from problems import t24
from saved import again

import ntpnb
from ntpnb import datasets
from ntpnb.basics.watch import Watch
from ntpnb.bias import partition
from ntpnb.reporting import findings
from ntpnb.tied import large

TOY = datasets.toy()
CONTRADICTION = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0], [0, 1]])
TEXT = "the fox sees the owl and the owl sees the fox and the fox runs"


@pytest.fixture(autouse=True)
def short_descents(monkeypatch):
    """Thousands of steps are enough here."""
    monkeypatch.setattr(findings, "LONGEST_RUN", 15_000)


def lines(found):
    return str(found).splitlines()


# -- what is said, to the letter ------------------------------------------------------------------

# The arguments of data, the options, and the report; its numbers are judged in `test_report`.
REPORTS = {
    "a contradiction, and what is won": (
        ([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]], np.eye(2)[[0, 1, 0]]),
        {"words": ["yes", "no"]},
        """
3 contexts, 2 tokens; different next tokens of a context: 1
W has shape 2 × 2
entropy 0 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
not separable: there is no W^mm, and the loss stays above the entropy
2 of 3 ordered pairs, in 2 contexts, contradict each other
    0.67: yes > no, after context row 0
    0.33: no > yes, after context row 1
training wins 1 of the ordered pairs; 2 are part of a contradiction and stay
    finite, and the loss tends to 0.428 nats
    W grows towards the direction that wins the others, with margin 1.414,
    beside a finite part of norm 0.2967
steps of gradient descent, of size 1/L = 1.2 from zero:
    about 2 to come within 30° of the direction that wins
    about 15 to come within 10° of the direction that wins
    about 10^10.5 to come within 1° of the direction that wins
""",
    ),
    "tokens that ask too much": (
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [[0.5, 0.5, 0], [0.2, 0.8, 0], [0.7, 0.3, 0]]),
        {"words": ["up", "down", "away"]},
        """
3 contexts, 3 tokens; different next tokens of a context: 2
W has shape 3 × 2
entropy 0.6015 nats: no training loss is lower
not compatible: no W has the log-odds of all tied tokens right,
    so the loss stays above the entropy: it tends to 0.6615 nats
    3 log-odds are asked of 2 tokens, whose rows have 2 numbers:
    up, down; 3 dimensions would do in general position
separable with margin 0.866 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
2 of 3 ordered pairs decide W^mm
    0.5: up = down > away, after context row 0
    0.5: up = down > away, after context row 1
steps of gradient descent, of size 1/L = 2 from zero:
    about 1 to come within 30° of W^mm
    about 43 to come within 10° of W^mm
    about 10^13.8 to come within 1° of W^mm
""",
    ),
    "room for what they ask": (
        (np.eye(3), [[0.5, 0.5, 0], [0.2, 0.8, 0], [0.7, 0.3, 0]]),
        {},
        """
3 contexts, 3 tokens; different next tokens of a context: 2
W has shape 3 × 3
entropy 0.6015 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
    3 dimensions are enough for embeddings in general position, fewer only
    by coincidence, for 3 log-odds are asked of 2 tokens: 0, 1
separable with margin 0.7071 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
3 of 3 ordered pairs decide W^mm
    0.33: 0 = 1 > 2, after context row 0
    0.33: 0 = 1 > 2, after context row 1
    0.33: 0 = 1 > 2, after context row 2
steps of gradient descent, of size 1/L = 6 from zero:
    about 2 to come within 30° of W^mm
    about 79 to come within 10° of W^mm
    about 10^20.2 to come within 1° of W^mm
""",
    ),
    "embeddings in special position": (
        ([[1.0, 0.0], [1.0, 0.0]], [[0.5, 0.5, 0], [0.2, 0.8, 0]]),
        {},
        """
2 contexts, 3 tokens; different next tokens of a context: 2
W has shape 3 × 2
entropy 0.5968 nats: no training loss is lower
not compatible: no W has the log-odds of all tied tokens right,
    so the loss stays above the entropy: it tends to 0.6474 nats
    2 dimensions would do for embeddings in general position
separable with margin 1.225 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
2 of 2 ordered pairs decide W^mm
    0.5: 0 = 1 > 2, after context row 0
    0.5: 0 = 1 > 2, after context row 1
steps of gradient descent, of size 1/L = 2 from zero:
    about 1 to come within 30° of W^mm
    about 16 to come within 10° of W^mm
    about 10^13.2 to come within 1° of W^mm
""",
    ),
    "compatible by coincidence": (
        ([[1.0], [1.0]], [[0.3, 0.7], [0.3, 0.7]]),
        {"W": [[-1.0], [1.0]]},
        """
2 contexts, 2 tokens; different next tokens of a context: 2
W has shape 2 × 1
entropy 0.6109 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
    by coincidence: 2 log-odds are asked of 2 tokens, whose rows have 1 number:
    0, 1; 2 dimensions would do in general position
separable, for nothing is ordered: training ends at finite weights
your W:
    loss above the entropy, in nats: 0.116
    distance from the finite part, in F: 0.815
    smallest margin: inf
""",
    ),
    "tiny probabilities": (
        (np.eye(2), [[0.5, 0.5, 1e-12], [1e-12, 0.3, 0.7]]),
        {},
        """
2 contexts, 3 tokens; different next tokens of a context: 3
W has shape 3 × 2
entropy 0.652 nats: no training loss is lower
    the smallest target probability is 1e-12; only tokens of probability zero
    must lose; NextTokenData(…, support_threshold=1e-09) takes what is smaller for zero
compatible: some finite W has the log-odds of all tied tokens right
    2 dimensions are enough for embeddings in general position, fewer only
    by coincidence, for 4 log-odds are asked of 3 tokens: 0, 1, 2
separable, for nothing is ordered: training ends at finite weights
""",
    ),
    "many tied tokens": (
        ([[1.0]], [[0.2] * 5 + [0.0]]),
        {},
        """
1 context, 6 tokens; different next tokens of a context: 5
W has shape 6 × 1
entropy 1.609 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
    1 dimension is enough for embeddings in general position
separable with margin 1.095 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
1 of 1 ordered pair decides W^mm
    1: 0 = 1 = 2 = 3 = … > 5, after context row 0
steps of gradient descent, of size 1/L = 2 from zero:
    about 1 to come within 30° of W^mm
    about 1 to come within 10° of W^mm
    about 1 to come within 1° of W^mm
""",
    ),
    "pairs that are not listed": (
        ([[1.0]], [[1, 0, 0, 0, 0]]),
        {"words": ["\n", " b", "", "d", "e"]},
        """
1 context, 5 tokens; different next tokens of a context: 1
W has shape 5 × 1
entropy 0 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
separable with margin 1.118 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
4 of 4 ordered pairs decide W^mm
    0.25: '\\n' > ' b', after context row 0
    0.25: '\\n' > '', after context row 0
    0.25: '\\n' > d, after context row 0
    and 1 more
steps of gradient descent, of size 1/L = 2 from zero:
    about 1 to come within 30° of W^mm
    about 1 to come within 10° of W^mm
    about 1 to come within 1° of W^mm
""",
    ),
    "one of each": (
        ([[1.0]], [[1.0]]),
        {"W": [[1.0]]},
        """
1 context, 1 token; different next tokens of a context: 1
W has shape 1 × 1
entropy 0 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
separable, for nothing is ordered: training ends at finite weights
your W:
    loss above the entropy, in nats: 0
    distance from the finite part, in F: 0
    smallest margin: inf
""",
    ),
    "one pair of two": (
        ([[1.0], [2.0]], [[1, 0], [1, 0]]),
        {"W": [[-1.0], [1.0]]},
        """
2 contexts, 2 tokens; different next tokens of a context: 1
W has shape 2 × 1
entropy 0 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
separable with margin 1.414 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
1 of 2 ordered pairs decides W^mm
    1: 0 > 1, after context row 0
steps of gradient descent, of size 1/L = 0.8 from zero:
    about 1 to come within 30° of W^mm
    about 1 to come within 10° of W^mm
    about 1 to come within 1° of W^mm
your W:
    loss above the entropy, in nats: 3.07
    degrees to W^mm: 180
    degrees to W^mm without the finite part: 180
    distance from the finite part, in F: 0
    smallest margin: -4
    it has pairs in the wrong order in 2 of 2 contexts:
    context row 1, context row 0
""",
    ),
    "many contexts in the wrong order": (
        (np.eye(4), np.eye(4)[[1, 0, 3, 2]]),
        {"W": [np.zeros((4, 4)), np.eye(4)], "words": list("abcd")},
        """
4 contexts, 4 tokens; different next tokens of a context: 1
W has shape 4 × 4
entropy 0 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
separable with margin 0.5774 (KKT residual at most 1e-10):
    the weights grow without bound towards W^mm
12 of 12 ordered pairs decide W^mm
    0.083: b > a, after context row 0
    0.083: b > c, after context row 0
    0.083: b > d, after context row 0
    and 9 more
steps of gradient descent, of size 1/L = 8 from zero:
    about 1 to come within 30° of W^mm
    about 1 to come within 10° of W^mm
    about 1 to come within 1° of W^mm
your 2 matrices W, from the first to the last:
    loss above the entropy, in nats: 1.39  1.74
    degrees to W^mm: nan  107
    degrees to W^mm without the finite part: nan  107
    distance from the finite part, in F: 0  0
    smallest margin: 0  -1
    the last one has pairs in the wrong order in 4 of 4 contexts:
    context row 0 (before 'b'), context row 1 (before 'a'), context row 2 (before 'd'), …
""",
    ),
    "nothing to win": (
        ([[1.0], [1.0]], [[1, 0], [0, 1]]),
        {"W": [[1.0], [-1.0]]},
        """
2 contexts, 2 tokens; different next tokens of a context: 1
W has shape 2 × 1
entropy 0 nats: no training loss is lower
compatible: some finite W has the log-odds of all tied tokens right
not separable: there is no W^mm, and the loss stays above the entropy
2 of 2 ordered pairs, in 2 contexts, contradict each other
    0.5: 0 > 1, after context row 0
    0.5: 1 > 0, after context row 1
training converges: all 2 ordered pairs are part of a contradiction,
    no score grows without bound, and the loss tends to 0.6931 nats
    W tends to a finite part that is zero
your W:
    loss above the entropy, in nats: 1.13
    loss above the least of all W, in nats: 0.434
    distance from the finite part, in F with the contradictions: 1.41
    smallest margin: -2
    it has pairs in the wrong order in 1 of 2 contexts:
    context row 1
""",
    ),
}


@pytest.mark.parametrize("case", REPORTS)
def test_a_report_to_the_letter(case):
    arguments, options, said = REPORTS[case]
    assert str(ntpnb.report(ntpnb.NextTokenData(*arguments), **options)) == said.strip()


def test_the_verdict_on_a_text_says_in_how_many_dimensions_it_is_one():
    text = "the cat and the dog and the cat saw the owl and the dog saw the cat"
    said = "    (with 2 dimensions drawn for each context; with as many as contexts, 10,"
    few, many = (ntpnb.NextTokenData.from_text(text, dim=dim) for dim in (2, 10))
    assert said in str(ntpnb.report(few)).splitlines()
    assert "drawn for each context; with" not in str(ntpnb.report(many))


# -- what fails in one part leaves the others -----------------------------------------------------

ERRORS = {
    "undecided": (ntpnb.ConvergenceError("it stayed at 1e-3", 1e-3), "it stayed at 1e-3"),
    "too large": (ValueError("65 ties need too many numbers"), "65 ties need too many numbers"),
    "memory": (MemoryError("7 GiB"), "there is not enough memory: 7 GiB"),
}
PARTS = {
    # the part, what computes it, how its failure is said, and how its success is
    "finite part": (ntpnb.bias, "finite_part", "compatible or not: ", "compatible: some"),
    "direction": (ntpnb.bias, "max_margin", "separable or not: ", "separable with margin"),
    "room": (findings, "compatible_dimension", "    dimensions that are needed: ", "general posi"),
    "way": (findings, "gradient_flow", "steps to a given angle: ", "steps of gradient descent"),
}


FAILURES = [(part, error) for part in PARTS for error in ERRORS]
FAILURES.remove(("way", "undecided"))  # a flow that cannot be followed: descent is run instead


@pytest.mark.parametrize(("part", "error"), FAILURES)
def test_what_fails_in_one_part_leaves_the_others(part, error, monkeypatch):
    module, name, says, _ = PARTS[part]
    raised, why = ERRORS[error]

    def fail(*arguments, **options):
        raise raised

    monkeypatch.setattr(module, name, fail)
    found = ntpnb.report(TOY)
    text = str(found)
    undecided = part == "direction" and error == "undecided"  # a refusal, and no failure
    assert set(found.failures) == (set() if undecided else {part})
    assert any(line.startswith(says + why) for line in lines(found))
    for other, (*_, succeeds) in PARTS.items():
        lost = {part, "way"} if part == "direction" else {part}  # without direction no way
        assert (succeeds in text) == (other not in lost), other
    assert "entropy 0.8811 nats" in text
    assert repr(found).startswith("Report(3 contexts, 5 tokens, ")
    assert found._repr_html_()


def test_what_a_failed_part_answers(monkeypatch):
    raised = ntpnb.ConvergenceError("it stayed at 1e-3", 1e-3)

    def fail(*arguments, **options):
        raise raised

    monkeypatch.setattr(ntpnb.bias, "finite_part", fail)
    found = ntpnb.report(TOY, W=np.ones((5, 2)))
    assert found.compatible is None
    assert found.failures["finite part"] is raised
    with pytest.raises(ntpnb.ConvergenceError, match="stayed"):
        assert found.finite
    assert found.separable
    assert found.flow is None  # it needs the finite part
    assert found.log10_steps(30) > 0  # descent does not
    assert np.isnan(found.weights.finite_error)
    assert found.weights.angle == pytest.approx(np.pi / 2)
    assert "undecided" in repr(found)


def test_failures_last(monkeypatch):
    for name, error in (("finite_part", ValueError("large")), ("max_margin", MemoryError("7 GiB"))):

        def fail(*arguments, error=error, **options):
            raise error

        monkeypatch.setattr(ntpnb.bias, name, fail)
    found = ntpnb.report(TOY)
    back = again(found)
    assert str(back) == str(found)
    assert {part: type(error) for part, error in back.failures.items()} == {
        "finite part": ValueError,
        "direction": MemoryError,
    }
    assert back.separable is None
    assert back.svm is None
    assert back.pairs == []


def test_errors_of_other_kinds_are_not_hidden(monkeypatch):
    def fail(*arguments, **options):
        raise KeyError("a fault of the package")

    monkeypatch.setattr(ntpnb.bias, "finite_part", fail)
    with pytest.raises(KeyError):
        ntpnb.report(TOY)


# -- progress and time ----------------------------------------------------------------------------


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(findings, "FLOW_UP_TO", -1)
    told = []
    found = ntpnb.report(TEXT, progress=told.append)
    assert all(isinstance(line, str) and "\n" not in line for line in told)
    assert any("residual" in line for line in told)  # of the margin problem
    assert any(line.startswith("gradient descent: ") for line in told)
    assert str(found) == str(ntpnb.report(TEXT))
    assert again(found).bias.data.contexts == found.data.contexts


def test_a_report_that_is_out_of_time_says_what_it_knows():
    found = ntpnb.report(TEXT, seconds=0)
    assert found.separable is None
    assert found.compatible
    stopped = "separable or not: undecided: 0 seconds are over"
    assert any(line.startswith(stopped) for line in lines(found))
    with pytest.raises(ntpnb.ConvergenceError, match="0 seconds are over"):
        found.bias.require_max_margin()
    assert "0 seconds are over" in ntpnb.compare(np.ones((5, 2)), TOY, seconds=0).missing


def test_descent_that_is_out_of_time_keeps_what_it_recorded(monkeypatch):
    monkeypatch.setattr(findings, "FLOW_UP_TO", -1)
    whole = ntpnb.report(TOY)
    bias = ntpnb.implicit_bias(TOY, seconds=1e9)
    assert bias.separable
    bias._watch.seconds = 0.0  # from now on
    found = ntpnb.report(bias)
    assert found.descent.steps.tolist() == [1]
    assert found.failures == {}
    assert found.descent.across[0] == whole.descent.across[0]
    assert "1 came within " in str(found)


def test_limits_belong_to_where_a_bias_is_made():
    bias = ntpnb.implicit_bias(TOY)

    def compare(bias, **limits):
        return ntpnb.compare(np.eye(5, 2), bias, **limits)

    for call in (ntpnb.report, ntpnb.implicit_bias, compare):
        for limit in ({"seconds": 5}, {"progress": print}):
            with pytest.raises(ValueError, match="given where a bias is made"):
                call(bias, **limit)


# -- weights --------------------------------------------------------------------------------------


def test_a_report_says_where_a_matrix_stands():
    bias = ntpnb.implicit_bias(TOY)
    W = bias.finite_part.W + 3 * bias.max_margin.W
    found = ntpnb.report(bias, W=W)
    expected = ntpnb.compare(W, bias)
    for field in ("angle", "finite_error", "excess", "margin", "norm"):
        np.testing.assert_array_equal(getattr(found.weights, field), getattr(expected, field))
    assert str(found).startswith(str(ntpnb.report(bias)))


def test_a_report_says_where_checkpoints_stand():
    run = ntpnb.descend(TOY, ntpnb.GD(0.5), 100, record=range(0, 101, 5))
    found = ntpnb.report(TOY, W=list(run.W))
    said = lines(found)[lines(found).index("your 21 matrices W, from the first to the last:") :]
    losses = said[1].split(": ")[1].split()
    assert losses == [f"{run.excess[k]:.3g}" for k in (0, 4, 8, 12, 16, 20)]
    assert max(map(len, said)) < 80


@pytest.mark.parametrize(("number", "panels"), [(None, 4), (1, 5), (3, 6)])
def test_weights_are_drawn(number, panels, agg):
    run = ntpnb.descend(TOY, ntpnb.GD(0.5), 30, record=[0, 10, 30])
    fig = ntpnb.report(TOY, W=None if number is None else run.W[:number]).plot()
    assert len(fig.axes) == panels
    fig.draw_without_rendering()
    refused = ntpnb.report(CONTRADICTION, W=np.zeros((3, 2, 1))).plot()
    assert len(refused.axes) == 4


# -- large data -----------------------------------------------------------------------------------


def test_large_data_are_reported_without_their_order(monkeypatch):
    """The same answers from the certificate's few pairs, and no list of all pairs is made."""
    data = t24(2, m=14, d=4)
    small = ntpnb.report(data)
    monkeypatch.setattr(large, "LARGE", 1)
    monkeypatch.setattr(partition, "HELD", 1)  # which large data soon exceed
    found = ntpnb.report(data)
    assert set(found.failures) == {"twin"}
    assert not found.separable
    assert found.num_ordered_pairs == small.num_ordered_pairs == len(small.order.strict)
    assert found.compatible == small.compatible
    assert len(found.pairs) > 1
    assert sum(pair.share for pair in found.pairs) == pytest.approx(1, abs=1e-6)
    for _, context, winners, losers in found.pairs:
        assert winners == tuple(np.flatnonzero(data.support[context]))
        [loser] = losers
        assert not data.support[context, loser]
    assert f"{len(found.pairs)} of {found.num_ordered_pairs} ordered pairs, in " in str(found)
    assert found.summary()["ordered_pairs"] == small.num_ordered_pairs
    assert not {"strict", "components", "pairs"} & vars(found.order).keys()


def test_of_large_data_it_is_said_that_one_loser_stands_for_many(monkeypatch):
    """All tokens that never follow decide alike; as few pairs as can be are listed."""
    data = ntpnb.NextTokenData([[1.0, 0.0], [0.0, 1.0]], np.eye(2, 9))
    said = "    (one of the tokens that never follow stands for all of them)"
    small = ntpnb.report(data)
    assert "16 of 16 ordered pairs decide W^mm" in str(small)
    assert said not in str(small).splitlines()
    monkeypatch.setattr(large, "LARGE", 1)
    found = ntpnb.report(data)
    assert "4 of 16 ordered pairs decide W^mm" in str(found)
    assert said in str(found).splitlines()
    every_token = ntpnb.report(data.replace(target_probs=np.eye(2)))
    assert said not in str(every_token).splitlines()


def test_names_of_contexts_may_be_any_numbers_in_large_data(monkeypatch):
    monkeypatch.setattr(large, "LARGE", 1)
    data = ntpnb.NextTokenData([[1.0], [1.0]], [[1, 0, 0], [0, 0.5, 0.5]], context_groups=[7, 3])
    found = ntpnb.report(data)
    winners = {pair.context: pair.winners for pair in found.pairs}
    assert winners == {7: (0,), 3: (1, 2)}


def test_contexts_without_words_are_named_by_their_rows():
    """Rows of the data as they were given, whatever the groups are called, and what comes next."""
    laws = [[0.3, 0.7, 0.0], [1.0, 0.0, 0.0], [0.0, 0.2, 0.8]]
    data = ntpnb.NextTokenData(np.eye(3), laws, context_groups=[2, 0, 1])
    named = ntpnb.report(data, words=["yes", "no", "maybe"])
    for row, (group, likeliest) in enumerate([(2, "no"), (0, "yes"), (1, "maybe")]):
        assert named.context_name(group) == f"context row {row}"
        assert named.row_name(row) == f"context row {row} (before '{likeliest}')"


def test_merged_contexts_are_named_by_where_they_stand_now():
    """By the tokens, or the row, of the context that is meant, though rows before it have gone."""
    embeddings = {0: [1.0, 0.0], 1: [1.0, 1e-9], 2: [0.0, 1.0], 3: [-1.0, 0.3]}
    sequences = [[0, 1], [1, 1], [2, 0], [3, 2]]
    data = ntpnb.NextTokenData.from_sequences(
        sequences, lambda c: embeddings[c[0]], context_length=1, merge_tolerance=1e-6
    )
    assert data.contexts == ((0,), (2,), (3,))
    named = ntpnb.report(data, words=["a", "b", "c", "d"])
    assert [named.row_name(row) for row in range(3)] == ["'a'", "'c'", "'d'"]
    # What follows a context says which one it is.
    after = {(1,): "'a'", (0,): "'c'", (2,): "'d'"}
    assert all(named.context_name(pair.context) == after[pair.winners] for pair in named.pairs)

    arguments = [*embeddings.values()], np.eye(3)[[1, 1, 0, 2]]
    at_once = ntpnb.NextTokenData(*arguments, merge_tolerance=1e-6)
    later = ntpnb.NextTokenData(*arguments).replace(merge_tolerance=1e-6)
    for merged in (at_once, later, later.replace(context_probs=None)):
        unnamed = ntpnb.report(merged)
        rows = [unnamed.row_name(row) for row in range(3)]
        assert rows == ["context row 0", "context row 1", "context row 2"]


def test_contexts_of_renamed_groups_keep_their_tokens_as_names():
    data = ntpnb.NextTokenData.from_sequences([[0, 1, 0]], lambda c: [len(c)])
    found = ntpnb.report(data.replace(context_groups=[5, 0]), words=["a", "b"])
    assert [found.context_name(group) for group in (5, 0)] == ["'a'", "'a b'"]


def test_labels_are_written_as_python_would():
    data = ntpnb.NextTokenData.from_hidden_states(np.eye(4), [0, 1, 2, 3], labels=["a\nb"] * 4)
    found = ntpnb.report(data)
    assert found.context_name(0) == "'a\\nb'"
    assert "after 'a\\nb'" in str(found)


@pytest.mark.parametrize(
    ("seconds", "said"), [(1, "1 second"), (1.0, "1 second"), (2, "2 seconds")]
)
def test_a_second_is_singular(seconds, said):
    watch = Watch(seconds)
    assert watch.stopped == f"stopped after {said}"
    assert watch.over == f"{said} {'is' if seconds == 1 else 'are'} over"
