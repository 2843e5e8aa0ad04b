"""The notebooks as a reader opens and runs them: in JupyterLab, from their text, outside `make`.

The quick half does it in this environment. The long half, a stress test, makes the environment of
Binder and of conda anew: `environment.yml`, then `postBuild`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import committed
import jupytext
import pytest
import yaml
from jupyter_server import Failed, Lab

from ntpnb_book import output
from publishing import manifest, project

ROOT, NAMES = output.ROOT, project.names()


def path(name):
    """A notebook's text, as JupyterLab names it."""
    return project.source(name).relative_to(ROOT).as_posix()


def assert_opens(lab, name):
    """The contents manager gives a notebook with the text's cells, and a kernel that exists."""
    record = lab.open(path(name))
    assert record["type"] == "notebook"
    content, text = record["content"], jupytext.read(project.source(name))
    assert content["metadata"]["kernelspec"] == text.metadata["kernelspec"]
    assert content["metadata"]["kernelspec"]["name"] in lab.ask("api/kernelspecs")["kernelspecs"]
    assert content["metadata"]["jupytext"]["text_representation"]["format_name"] == "myst"

    def parts(cells):
        return [(cell["cell_type"], cell["source"], cell["metadata"]["tags"]) for cell in cells]

    for cell in (*content["cells"], *text.cells):
        cell["metadata"].setdefault("tags", [])
    assert parts(content["cells"]) == parts(text.cells)
    assert {"code", "markdown"} <= {cell["cell_type"] for cell in content["cells"]}
    assert ["parameters"] in [cell["metadata"]["tags"] for cell in content["cells"]]


def assert_runs(lab, name):
    """Every cell runs, and prints the checks that the build, in its own folder, has printed."""
    result = lab.run(path(name))
    assert Path(result["folder"]).resolve() == (lab.root / "notebooks").resolve()
    built = [
        "".join(shown["data"]["text/plain"])
        for shown in output.outputs(project.read_executed(name))
        if "id" in shown.get("metadata", {}).get("ntpnb", {})
    ]
    assert built
    assert result["checks"] == built
    return result


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    state = tmp_path_factory.mktemp("jupyter")
    # The package whose tests these are, and not the figures of the book.
    figures = str(state / "figures")
    with Lab(ROOT, state, PYTHONPATH=str(ROOT), NTPNB_FIGURES=figures) as lab:
        yield lab


@pytest.mark.parametrize("name", NAMES)
def test_jupyterlab_opens_the_text_as_a_notebook(lab, name):
    assert_opens(lab, name)


def test_a_notebook_runs_from_its_own_folder(lab):
    assert_runs(lab, "03_overparameterization")  # the quickest


@pytest.fixture
def scratch(tmp_path):
    """A server on a folder of one's own, to try what must not work."""
    with Lab(tmp_path, tmp_path / "state", PYTHONPATH=str(ROOT)) as lab:
        yield lab


def test_a_failing_cell_is_caught_and_a_failing_check_informs(scratch):
    header = project.source(NAMES[0]).read_text("utf-8").partition("\n(toy)=")[0]
    (scratch.root / "text.md").write_text(f"{header}\n# Text\n", "utf-8")
    assert [c["cell_type"] for c in scratch.open("text.md")["content"]["cells"]] == ["markdown"]
    cell = (
        "from ntpnb_book import check\n"
        "check('t24.fig1.alignment', -1.0)\ncheck('not.listed', 2)\n{}"
    )
    for name, last in (("informs", "True"), ("fails", "1 / 0")):
        text = f"{header}\n```{{code-cell}} ipython3\n{cell.format(last)}\n```\n"
        (scratch.root / f"{name}.md").write_text(text, "utf-8")
    missed, unknown = scratch.run("informs.md")["checks"]
    assert missed.startswith("✗ t24.fig1.alignment")
    assert unknown.startswith("? not.listed")
    with pytest.raises(Failed, match="ZeroDivisionError"):
        scratch.run("fails.md")


# -- a clean environment --------------------------------------------------------------------------


def run(*command, **options):
    """Run a command in a shell without this environment; return all it said."""
    shell = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    shell |= options.pop("env", {})
    done = subprocess.run(command, env=shell, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture
def clean():
    """A clone and the environment that Binder makes for it: (clone, python).

    conda would bring Python and pip; here this Python's venv does. It hands `pip` of
    environment.yml to pip as conda does: a file of requirements beside environment.yml.
    """
    with TemporaryDirectory() as folder:
        root, environment = Path(folder) / "clone", Path(folder) / "environment"
        run(sys.executable, "-m", "venv", str(environment))
        python = str(environment / "bin/python")
        probe = (python, "-m", "pip", "--retries=0", "download", "--no-deps", "--quiet", "wheel")
        if subprocess.run((*probe, f"--dest={folder}/probe"), capture_output=True).returncode:
            pytest.skip("a clean environment needs packages, and pip reaches no index from here")
        committed.copy_to(root)
        *_, packages = yaml.safe_load((root / "environment.yml").read_text("utf-8"))["dependencies"]
        (root / "condaenv.txt").write_text("\n".join(packages["pip"]) + "\n", "utf-8")
        install = (python, "-m", "pip", "install", "-U", "-r", "condaenv.txt", "--exists-action=b")
        run(*install, cwd=root)
        (root / "condaenv.txt").unlink()
        home = Path(folder) / "home"
        home.mkdir()
        settings = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
        settings["JUPYTER_CONFIG_DIR"] = str(home)
        run("./postBuild", cwd=root, env=settings)
        assert not list(home.iterdir()), "postBuild changes a reader's other environments"
        yield root, python


@pytest.mark.stress
def test_a_clean_environment_opens_and_executes_every_notebook(clean, tmp_path):
    root, python = clean
    run(python, "-m", "pip", "check")
    listed = run(python, "-m", "jupyter", "labextension", "list")
    assert re.search(r"jupyterlab-myst v\S+ \S*enabled", listed), listed
    with Lab(root, tmp_path, python=python) as lab:
        plugin = lab.ask("lab/api/settings/@jupyterlab/docmanager-extension:plugin")
        viewers = plugin["schema"]["properties"]["defaultViewers"]["default"]
        assert viewers == {"markdown": "Jupytext Notebook"}
        for name in NAMES:
            assert_opens(lab, name)
        results = {name: assert_runs(lab, name) for name in NAMES}
    saved = {path.stem for path in (root / "figures").glob("*.csv")}
    assert saved == {row["figure"] for row in manifest.figures()}
    for name, result in results.items():
        print(f"{name}: {result['seconds']:.1f} s, {result['mib']:.0f} MiB")
        assert result["mib"] < 1024, "Binder promises no more"
