"""What `help` says: the papers, and for every public name its parameters and an example."""

import importlib.util
import inspect
import pydoc
import re
from textwrap import dedent

import public_names

import ntpnb

THINGS = public_names.public_things()
CALLED = {name: thing for name, thing in THINGS.items() if callable(thing)}
MEMBERS = public_names.public_members()
METHODS = {name: member for name, member in MEMBERS.items() if member.is_method}

# Nobody calls these classes: the function of the same name does, or the package raises them.
NOT_CONSTRUCTED = {"ntpnb.EqualSubspace", "ntpnb.NotSeparableError", "ntpnb.ConvergenceError"}


def section(docstring, title):
    """Lines of a section of a numpy docstring; empty where it has none."""
    pattern = rf"^{title}\n-+\n(.*?)(?=^\w[\w ]*\n---|\Z)"
    found = re.search(pattern, docstring, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def described(docstring):
    """Names in the docstring's lists of parameters and attributes."""
    lists = section(docstring, "Parameters") + section(docstring, "Attributes")
    heads = re.findall(r"^([\w*][\w, *]*)(?: :.*)?$", lists, re.MULTILINE)
    return {name.strip(" *") for head in heads for name in head.split(",")}


def parameters(function):
    """Names of a call's parameters, private ones left out."""
    names = inspect.signature(function).parameters
    return {name for name in names if not name.startswith("_")} - {"self"}


def has_example(docstring):
    """Whether a docstring has a section of examples with one."""
    return ">>> " in section(docstring, "Examples")


def test_help_says_which_papers():
    text = pydoc.render_doc(ntpnb, renderer=pydoc.plaintext)
    assert "T24 is C. Thrampoulidis" in text
    assert "L24 is Y. Li" in text
    assert re.findall(r"arXiv:\d+\.\d+", text) == ["arXiv:2402.18551", "arXiv:2403.08081"]


def test_no_module_shadows_a_public_name():
    # Names of ntpnb itself: there `ntpnb.report.Report` would look into the function.
    direct = [name for name in THINGS if name.count(".") == 1]
    assert [name for name in direct if importlib.util.find_spec(name) is not None] == []


def test_every_public_name_has_an_example():
    assert [name for name, it in CALLED.items() if not has_example(inspect.getdoc(it) or "")] == []


def test_every_method_has_an_example_of_its_own_or_in_its_class():
    missing = []
    for name, method in METHODS.items():
        of_class = section(inspect.getdoc(method.owner) or "", "Examples")
        if not (has_example(method.docstring) or f".{method.name}(" in of_class):
            missing.append(name)
    assert missing == []


def test_every_property_says_what_it_is():
    assert [name for name, member in MEMBERS.items() if not member.docstring] == []


def test_every_parameter_is_described():
    missing = {}
    for name in CALLED.keys() - NOT_CONSTRUCTED:
        lost = parameters(CALLED[name]) - described(inspect.getdoc(CALLED[name]) or "")
        if lost:
            missing[name] = sorted(lost)
    assert missing == {}


def test_a_method_describes_its_parameters_where_there_are_several():
    missing = {}
    for name, method in METHODS.items():
        needed = parameters(getattr(method.owner, method.name))
        if len(needed) > 1 and needed - described(method.docstring):
            missing[name] = sorted(needed - described(method.docstring))
    assert missing == {}


def test_no_propertys_first_line_has_a_colon():
    # Sphinx would take the words before it for the property's type.
    wrong = []
    for name, member in MEMBERS.items():
        first = member.docstring.partition("\n")[0]
        if not member.is_method and ": " in re.sub("``.*?``", "", first):
            wrong.append(name)
    assert wrong == []


def test_sections_are_found():
    docstring = dedent(
        """\
        A word.

        Parameters
        ----------
        W, V : array
            Two.
        n : int

        Returns
        -------
        int
        """
    )
    assert described(docstring) == {"W", "V", "n"}
    assert section(docstring, "Returns") == "int\n"
    assert not has_example(docstring)
