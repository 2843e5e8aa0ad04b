"""What `import ntpnb` promises: the public names, and that it stays light."""

import inspect
import json
import pydoc
import subprocess
import sys

import public_names
import pytest

import ntpnb
from ntpnb.basics import saving

# DESIGN's public surface, with the parameters that callers may name.
PUBLIC = {
    "NextTokenData": (
        "context_embeddings target_probs context_probs token_embeddings candidate_counts "
        "context_groups"
    ),
    "NextTokenData.from_sequences": "sequences embed context_length vocab_size",
    "NextTokenData.from_counts": "context_embeddings counts",
    "NextTokenData.from_attention": "embeddings sequences labels",
    "cross_entropy": "W data",
    "gradient": "W data",
    "excess_loss": "W data",
    "token_priority": "data",
    "equal_subspace": "data",
    "finite_part": "data",
    "max_margin": "data norm",
    "report": "data words W seconds progress",
    "is_separable": "data",
    "descend": "data method steps init record",
    "GD": "step",
    "NGD": "step",
    "Adam": "step beta1 beta2",
    "SGD": "step batch_size seed over",
    "NotSeparableError": "",
    "ConvergenceError": "",
    "datasets.toy": "",
    "datasets.overparameterized": "",
}


def loaded(statement):
    """Modules in memory after ``statement`` in a fresh interpreter."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_loads_only_the_mathematics():
    modules = loaded("import ntpnb")
    assert "numpy" in modules
    heavy = {"cvxpy", "matplotlib", "pandas", "networkx", "jupyter_core", "papermill", "yaml"}
    assert not modules & heavy
    assert "ntpnb_book" not in modules


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_has_its_parameters_in_order(name):
    thing = ntpnb
    for part in name.split("."):
        thing = getattr(thing, part)
    if PUBLIC[name]:
        found = list(inspect.signature(thing).parameters)
        assert found[: len(PUBLIC[name].split())] == PUBLIC[name].split()
    assert inspect.getdoc(thing)


def test_all_is_sorted_and_true():
    assert all(hasattr(ntpnb, name) for name in ntpnb.__all__)
    assert {name.split(".")[0] for name in PUBLIC} <= set(ntpnb.__all__)
    assert len(set(ntpnb.__all__)) == len(ntpnb.__all__)


def test_errors_are_of_the_promised_kinds():
    assert issubclass(ntpnb.NotSeparableError, ValueError)
    error = ntpnb.NotSeparableError("why", [1.0])
    assert (str(error), error.certificate) == ("why", [1.0])
    error = ntpnb.ConvergenceError("why", 1e-3)
    assert isinstance(error, RuntimeError)
    assert (str(error), error.residual) == ("why", 1e-3)


def test_every_class_of_results_is_exported_and_in_help():
    public = public_names.public_things()
    bases = {saving.Storable, saving.Result}
    inner = {"ExactTrace", "Findings", "Recorded"}  # what public classes are made from
    inner |= {kind.__name__ for kind in ntpnb.EqualSubspace.__subclasses__()}  # and how
    found = [*saving.Storable.__subclasses__()]
    for kind in found:
        found += [sub for sub in kind.__subclasses__() if sub not in found]
    names = {
        kind.__name__
        for kind in found
        if kind.__module__.startswith("ntpnb")
        and hasattr(sys.modules[kind.__module__], kind.__name__)  # no example of a docstring's
    }
    needed = {name for name in names if not name.startswith("_")} - inner - {"Result"}
    assert {"MarginSolution", "FinitePart", "Trace", "FlowTrace", "Report"} <= needed
    assert needed <= {thing.__name__ for thing in public.values() if inspect.isclass(thing)}
    assert bases <= set(public.values())
    text = pydoc.render_doc(ntpnb, renderer=pydoc.plaintext)
    for name in set(ntpnb.__all__) & needed:
        assert f"class {name}(" in text
