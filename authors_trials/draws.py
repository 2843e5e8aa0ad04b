"""Draw the data of L24's released notebooks again: ``python -m authors_trials.draws OUT.json``.

The notebooks set torch's seed to 1 and draw everything from its CPU generator. What is needed to
follow them is the order of the draws, which this script states in its own words: embeddings as
single-precision normals, normalized in double precision; for each sequence distinct tokens;
labels from the vocabulary, of which those that are not in their sequence are drawn again from it;
all of it again until some graph has a cycle; then the weights of each linear layer of the trial,
uniform in ±1/√d, in single precision. The first layer is W; those for W^cyc are set to zero
afterwards, but drawn. The older notebooks draw, before the sequences, a permutation of the
vocabulary for each sequence, whose entry at the last token is the label; a label outside its
sequence, and in the acyclic notebook a cycle, lets all be drawn again.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Log:
    """One notebook with printed trials, and what it declares.

    Attributes
    ----------
    trials, tokens, dimension, sequences, length : int
        How many trials; V, d, n, T.
    acyclic : bool
        Whether graphs with a cycle are rejected, or those without.
    layers : int
        How many linear layers a trial draws.
    permuted : bool
        Whether labels are entries of permutations, drawn before the sequences.
    """

    trials: int
    tokens: int
    dimension: int
    sequences: int
    length: int
    acyclic: bool
    layers: int
    permuted: bool = False


LOGS = {
    "global 514473c": Log(10, 6, 8, 6, 4, False, 2),
    "global 0d105ef": Log(1, 5, 8, 3, 3, False, 2),
    "local 514473c": Log(10, 6, 8, 6, 4, False, 3),
    "local 0d105ef": Log(10, 6, 8, 6, 4, False, 3, permuted=True),
    "acyclic 0d105ef": Log(2, 8, 8, 4, 6, True, 2, permuted=True),
}


def has_cycle(sequences: list[list[int]], labels: list[int]) -> bool:
    """Whether the graph of some last token has a cycle of two or more tokens."""
    for last in {row[-1] for row in sequences}:
        below: dict[int, set[int]] = {}
        for row, label in zip(sequences, labels, strict=True):
            if row[-1] == last:
                below.setdefault(label, set()).update(set(row) - {label})
        for start in below:
            reached: set[int] = set()
            waiting = list(below[start])
            while waiting:
                token = waiting.pop()
                if token not in reached:
                    reached.add(token)
                    waiting.extend(below.get(token, ()))
            if start in reached:
                return True
    return False


def draw_trial(log: Log) -> dict[str, list]:
    """Draw one trial from the generator as it stands."""
    equal = torch.ones(log.tokens)
    while True:
        normals = torch.randn(log.tokens, log.dimension).double()
        embeddings = torch.nn.functional.normalize(normals, dim=-1)
        each = equal.expand(log.sequences, log.tokens)
        if log.permuted:
            permutations = torch.multinomial(each, log.tokens, replacement=False)
            sequences = torch.multinomial(each, log.length, replacement=False)
            labels = permutations[torch.arange(log.sequences), sequences[:, -1]]
            if not (sequences == labels[:, None]).any(dim=1).all():
                continue
        else:
            sequences = torch.multinomial(each, log.length, replacement=False)
            labels = torch.multinomial(equal, log.sequences, replacement=True)
            for i in range(log.sequences):
                if labels[i] not in sequences[i]:
                    labels[i] = sequences[i, torch.randint(log.length, (1,))]
        if has_cycle(sequences.tolist(), labels.tolist()) != log.acyclic:
            break
    shape = (log.dimension, log.dimension)
    layers = [torch.nn.Linear(*shape, bias=False).weight for _ in range(log.layers)]
    return {
        "embeddings": embeddings.tolist(),
        "sequences": sequences.tolist(),
        "labels": labels.tolist(),
        "start": layers[0].double().tolist(),
    }


def main() -> None:
    """Write the trials of all logs to the file that the command line names."""
    drawn = {}
    for name, log in LOGS.items():
        torch.manual_seed(1)
        drawn[name] = [draw_trial(log) for _ in range(log.trials)]
    provenance = {
        "script": "authors_trials/draws.py",
        "torch": torch.__version__.split("+")[0],
        "generator": "CPU, seed 1",
        "follows": "the notebooks of yixiao-huang/next-token-prediction",
    }
    text = json.dumps({"provenance": provenance, "trials": drawn}, separators=(",", ":"))
    Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
