"""Command line of the book: ``python -m publishing run | stale | collect | compare``."""

import argparse
import sys

import yaml

from ntpnb.notebook import output
from publishing import collect, compare, execute, project, runner


def _parser():
    parser = argparse.ArgumentParser(prog="python -m publishing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="execute the stale notebooks")
    run.add_argument("names", nargs="*", metavar="NAME", help="01_toy or 01; default: all")
    run.add_argument("--force", action="store_true", help="execute them even if they are not stale")
    run.add_argument("--figure", metavar="NAME", help="draw one figure anew, such as t24-fig4")
    run.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    run.add_argument(
        "-p",
        "--parameter",
        dest="parameters",
        action="append",
        metavar="NAME=VALUE",
        help="set a parameter of one notebook; the result goes to _build/nb, not into the book",
    )
    commands.add_parser("stale", help="say which notebooks would run, and why")
    commands.add_parser("collect", help="close the ledger and write the generated pages")
    against = commands.add_parser("compare", help="compare figures with another machine's")
    against.add_argument("folder", metavar="FOLDER", help="the other machine's figures/")
    against.add_argument(
        "--tolerance",
        type=float,
        default=compare.TOLERANCE,
        help="accepted difference relative to an array's largest entry (default: %(default)s)",
    )
    return parser


def _experiment(names, assignments):
    """Execute one notebook with a reader's parameters, away from the book."""
    parameters = {}
    for assignment in assignments:
        parameter, equals, value = assignment.partition("=")
        if not equals:
            raise ValueError(f"-p {assignment}: NAME=VALUE is needed")
        parameters[parameter] = yaml.safe_load(value)
    if len(names) != 1:
        raise ValueError("-p needs the name of one notebook")
    [name] = runner.select(names)
    target = output.ROOT / "_build/nb" / f"{name}.ipynb"
    execute.execute(name, target, parameters)
    print(target)


def _compare(folder, tolerance):
    """Print what `compare.compare` finds; return how many figures differ."""
    results = []
    for figure, same, differences in compare.compare(folder, tolerance):
        print(f"{figure}: {'ok' if same else 'different'}")
        for name, value in differences.items():
            print(f"  {name}: {'on one side only' if value is None else f'{value:.1e}'}")
        results.append(same)
    different = results.count(False)
    print(f"{len(results)} figures, {different} different (tolerance {tolerance:g})")
    return different


def main(arguments=None):
    """Run a command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "stale":
            for name in project.names():
                reason = runner.stale(name)
                print(f"{name}: {reason or 'up to date'}")
        elif options.command == "collect":
            print(f"{len(collect.collect())} claims")
        elif options.command == "compare":
            return int(bool(_compare(options.folder, options.tolerance)))
        elif options.parameters:
            _experiment(options.names, options.parameters)
        else:
            names = runner.redraw(options.figure) if options.figure else options.names
            return int(bool(runner.run(names, force=options.force, jobs=options.jobs)))
    except (ValueError, OSError, execute.NotebookError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished notebooks are kept, the next run resumes", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
