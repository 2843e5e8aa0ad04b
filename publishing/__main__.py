"""Command line of the book: `python -m publishing` with run, stale, collect and others."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from ntpnb_book import output
from publishing import (
    address,
    archives,
    build,
    collect,
    execute,
    keys,
    live,
    manifest,
    project,
    release,
    runner,
    verify,
    versions,
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m publishing", description=__doc__)
    commands = parser.add_subparsers(required=True)

    def command(do: Callable[..., int], words: str) -> argparse.ArgumentParser:
        """Add the command that a function carries out, named after it."""
        added = commands.add_parser(do.__name__.strip("_"), help=words)
        added.set_defaults(do=do)
        return added

    def writing(do: Callable[..., int], words: str) -> argparse.ArgumentParser:
        """Add a command that writes files of the checkout: one at a time is carried out."""
        return command(project.alone()(do), words)

    run = writing(_run, "execute the stale notebooks")
    run.add_argument(
        "names", nargs="*", metavar="NAME", help="01_toy, 01 or gd_theorem; default: all"
    )
    run.add_argument("--force", action="store_true", help="execute them even if they are not stale")
    run.add_argument(
        "--draw", action="store_true", help="execute all for their figures, and replace nothing"
    )
    run.add_argument("--figure", metavar="NAME", help="draw one figure, such as t24-fig4")
    run.add_argument(
        "-p",
        "--parameter",
        dest="parameters",
        action="append",
        metavar="NAME=VALUE",
        help="set a parameter of one notebook; the result goes to _build/nb, not into the book",
    )
    whole = writing(_build, "build the book, from stale notebooks to its pages")
    for one in (run, whole):
        one.add_argument("--jobs", type=int, default=2, help="notebooks at a time (default: 2)")
    words = "list the notebooks whose executed file is not what the sources give"
    stale = command(_stale, words)
    stale.add_argument("--why", action="store_true", help="say of each why")
    stale.add_argument("--check", action="store_true", help="fail where there are any")
    words = "list what nbval has to execute: this clone has not done so itself"
    command(_unrepeated, words)
    words = "compare values, seeds, names and pictures with this clone's own execution"
    command(_verify, words)
    in_browser = writing(_live, "let pages run in the reader's browser")
    in_browser.add_argument("--fetch", action="store_true", help="fetch Python for it, if need be")
    several = writing(_versions, "put releases of the book beside the newest")
    several.add_argument("folder", metavar="FOLDER", help="with TAG.zip, its built pages, for each")
    ready = command(_release, "say what is in the way of a release")
    ready.add_argument("tag", metavar="TAG", help="such as v1.0.0")
    writing(_collect, "close the ledger and write the generated pages")
    return parser


def _experiment(names: Sequence[str], assignments: Sequence[str]) -> int:
    """Execute one notebook with a reader's parameters; what the book shows stays as it is."""
    parameters: dict[str, Any] = {}
    for assignment in assignments:
        parameter, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(f"-p {assignment}: NAME=VALUE is needed")
        parameters[parameter] = yaml.safe_load(value)
    if len(names) != 1:
        raise ValueError("-p needs the name of one notebook")
    [name] = project.select(names)
    target = project.executed(name, folder=project.HERE)
    output.write(target, execute.execute(name, parameters, figures=target.parent / "figures"))
    print(target)
    return 0


def _run(
    names: Sequence[str],
    parameters: Sequence[str] | None,
    figure: str | None,
    jobs: int,
    *,
    force: bool,
    draw: bool,
) -> int:
    """Execute notebooks; the status says whether one failed."""
    if parameters:
        return _experiment(names, parameters)
    if figure:
        names = manifest.drawing(figure)
    failed = runner.run(names, force=force, draw=draw or bool(figure), jobs=jobs)
    return 1 if failed else 0


def _build(jobs: int) -> int:
    """Execute what is stale, close the ledger, build the pages and what they lead to."""
    if runner.run((), jobs=jobs):
        return 1
    _collect()
    if not build.pages():
        return 1
    for path in archives.publish(output.ROOT / build.SITE):
        print(f"{path.relative_to(output.ROOT)}: {path.stat().st_size / 1e6:.1f} MB")
    return _live(fetch=False)


def _stale(*, why: bool, check: bool) -> int:
    """List the notebooks whose committed file is stale; nothing else goes to the output."""
    reasons = keys.outdated(project.names())
    for name, reason in reasons.items():
        print(f"{name}: {reason}" if why else name)
    if not (check and reasons):
        return 0
    print(
        f"{len(reasons)} executed notebooks in book/nb are not what the sources give; "
        "run `make book` and commit book/nb",
        file=sys.stderr,
    )
    return 1


def _unrepeated() -> int:
    """List the executed notebooks that nbval has to compare; how many are left out is a note."""
    remaining = verify.remaining()
    for path in remaining:
        print(path.relative_to(output.ROOT).as_posix())
    repeated_here = len(project.names()) - len(remaining)
    print(f"{repeated_here} notebooks: executed in this clone, and compared", file=sys.stderr)
    return 0


def _verify() -> int:
    """Say where the committed notebooks differ from what this clone's own execution gave."""
    found = []
    exactly = verify.is_same_machine()
    compared = verify.comparable()
    for name in project.names():
        if name in compared:
            found += verify.differences(name, exactly=exactly)
        else:
            found.append(f"{name}: not executed in this clone from these sources")
    for line in found:
        print(line)
    how = "to the last digit" if exactly else "coarsely: another processor wrote them"
    print(f"{len(project.names())} notebooks, {len(found)} differences ({how})", file=sys.stderr)
    return 1 if found else 0


def _collect() -> int:
    """Close the ledger and say how many claims it has."""
    print(f"{len(collect.collect())} claims")
    return 0


def _live(*, fetch: bool) -> int:
    """Let pages run in the browser; without a Python for it they stay as they are."""
    site = output.ROOT / build.SITE
    try:
        if fetch:
            live.runtime.fetch()
        if site.exists():
            print(f"{live.place(site)} pages run in the browser")
    except live.runtime.NoRuntimeError as error:
        print(f"pages do not run in the browser: {error}", file=sys.stderr)
        return 1 if fetch else 0
    return 0


def _versions(folder: str) -> int:
    """Put releases of the book beside the newest version, and name them."""
    for tag in versions.assemble(output.ROOT / build.SITE, Path(folder)):
        print(tag)
    return 0


def _release(tag: str) -> int:
    """Print what is in the way of a release; the status says whether anything is."""
    found = list(release.problems(tag, address.find_repository(output.ROOT, os.environ)))
    for line in found:
        print(line)
    return 1 if found else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status."""
    options = vars(_parser().parse_args(arguments))
    do = options.pop("do")
    try:
        return int(do(**options))
    except KeyboardInterrupt:
        print("interrupted; finished notebooks are kept, the next run resumes", file=sys.stderr)
        return 130
    except (ValueError, OSError, SyntaxError, execute.NotebookError) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
