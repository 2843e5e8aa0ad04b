"""What is public of ours: the names that the book's API pages show and that need an example."""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from functools import cached_property

import ntpnb
import ntpnb_book

OURS = (ntpnb.__name__, ntpnb_book.__name__)

# What all rooms share is no room, and two of its modules have pages of their own.
NO_ROOMS = {"__main__", "basics"}
SHARED = ["ntpnb.basics.errors", "ntpnb.basics.saving"]
METHODS = (classmethod, staticmethod)
PROPERTIES = (property, cached_property)


def rooms():
    """The public modules and subpackages directly below ``ntpnb``, and what chapters import.

    Dotted names; each room has a page of its own.
    """
    names = {found.name for found in pkgutil.iter_modules(ntpnb.__path__)} - NO_ROOMS
    return [*SHARED, *(f"ntpnb.{name}" for name in sorted(names)), ntpnb_book.__name__]


def exported(module):
    """Names that a module offers: its ``__all__``, or else what it defines without underscore."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    return sorted(
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isroutine(thing))
        and thing.__module__ == module.__name__
    )


def public_modules():
    """``ntpnb``, the rooms, and the modules that these export."""
    modules = [ntpnb] + [importlib.import_module(room) for room in rooms()]
    for module in modules:
        for name in exported(module):
            thing = getattr(module, name)
            is_ours = inspect.ismodule(thing) and thing.__name__.partition(".")[0] in OURS
            if is_ours and thing not in modules:
                modules.append(thing)
    return modules


def public_things():
    """Everything public that is no module, by the first name that leads to it: ``ntpnb.descend``.

    What is exported in two places has one name here, that of the module listed first.
    """
    first = {}
    for module in public_modules():
        for name in exported(module):
            thing = getattr(module, name)
            if not inspect.ismodule(thing):
                first.setdefault(id(thing), (f"{module.__name__}.{name}", thing))
    return dict(sorted(first.values(), key=lambda named: named[0]))


@dataclass(frozen=True)
class Member:
    """A public method or property of a public class: where it is defined, and its docstring."""

    owner: type
    name: str
    is_method: bool
    docstring: str


def public_members():
    """Methods and properties of the public classes, by dotted name."""
    members = {}
    for dotted, owner in public_things().items():
        if not inspect.isclass(owner):
            continue
        for name, thing in vars(owner).items():
            is_method = inspect.isfunction(thing) or isinstance(thing, METHODS)
            if name.startswith("_") or not (is_method or isinstance(thing, PROPERTIES)):
                continue
            docstring = inspect.getdoc(thing) or ""
            members[f"{dotted}.{name}"] = Member(owner, name, is_method, docstring)
    return members
