"""The lines of chapter 16 that read a model in PyTorch, run as they are printed."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ntpnb

torch = pytest.importorskip("torch", reason="authors_trials/requirements.lock brings it")

CHAPTER = Path(__file__).parents[2] / "notebooks" / "16_your_data.md"


def recipe():
    """The block of code below the label of the recipe."""
    below = CHAPTER.read_text("utf-8").partition("(your-data-torch)=")[2]
    return re.search(r"^```python\n(.*?)^```$", below, re.DOTALL | re.MULTILINE).group(1)


def small_model(num_words, dim, device):
    """Two tables of vectors, of a token and of the one before it, and a decoder."""
    torch.manual_seed(0)
    here, before = (torch.nn.Embedding(num_words, dim).to(device) for _ in range(2))

    def body(tokens):
        return torch.tanh(here(tokens) + before(tokens.roll(1, dims=1)))

    return SimpleNamespace(body=body, decoder=torch.nn.Linear(dim, num_words).to(device))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_recipe_reports_on_a_small_model(device, capsys):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    model = small_model(num_words=7, dim=5, device=device)
    rng = np.random.default_rng(0)
    # Batches of other sizes, as the last one of a text is.
    batches = [
        torch.tensor(rng.integers(0, 7, shape), device=device) for shape in [(4, 9), (2, 9), (3, 6)]
    ]
    vocabulary = {f"word {token}": token for token in reversed(range(7))}
    names = {"model": model, "batches": batches, "vocabulary": vocabulary}
    exec(compile(recipe(), str(CHAPTER), "exec"), names)  # the lines as readers take them

    positions = sum((batch.shape[1] - 1) * len(batch) for batch in batches)
    assert names["H"].shape == (positions, 5)
    data = names["data"]
    assert isinstance(data, ntpnb.NextTokenData)
    assert data.vocab_size == 7
    assert sum(map(len, data.merged_rows)) == positions
    written = capsys.readouterr().out
    assert "7 tokens" in written
    assert "word " in written
    # The decoder that is judged is the model's own, on the states that it reads.
    with torch.no_grad():
        logits = torch.tensor(names["H"], device=device) @ model.decoder.weight.T
        loss = torch.nn.functional.cross_entropy(
            logits, torch.tensor(names["following"], device=device)
        )
    found = ntpnb.cross_entropy(names["W"], data)
    assert found == pytest.approx(float(loss), rel=1e-5)  # the states are in single precision
