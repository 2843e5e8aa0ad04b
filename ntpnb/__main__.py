"""The report on a text from the command line: ``ntpnb report FILE``, or ``python -m ntpnb``."""

import argparse
import json
import math
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn, TextIO

from ntpnb.basics.errors import ConvergenceError, needs_extra
from ntpnb.bias import implicit_bias
from ntpnb.problem.data import NextTokenData
from ntpnb.problem.text import EMBEDDINGS
from ntpnb.reporting import Report


class Exit(IntEnum):
    """Exit codes, as :data:`EXIT_CODES` explains them."""

    ANSWERED = 0
    NO_ANSWER = 1
    USAGE = 2
    INTERRUPTED = 128 + signal.SIGINT  # as shells say of a program that Ctrl-C ended


STANDARD_INPUT = "-"

EXIT_CODES = """\
exit status: 0 where the report answers, 1 where there is no answer (the file cannot be read, is too
short, or it stays undecided whether the text is separable), 2 where the command cannot be used, 130
where Ctrl-C ended it; what was known by then is reported"""

# What an input can lead to; anything else is a fault of the package, and shows where it happened.
EXPECTED_ERRORS = (OSError, ValueError, ImportError, ConvergenceError, MemoryError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default: what stands behind ``python -m ntpnb``.

    Returns
    -------
    int
        The exit status.

    Raises
    ------
    SystemExit
        With status 2 where the arguments cannot be used, and 0 after ``--help``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from ntpnb.__main__ import main
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "story.txt"
    ...     size = path.write_text("the fox sees the owl and the owl sees the fox")
    ...     status = main(["report", str(path), "--context-length", "1"])
    5 contexts, 5 tokens; different next tokens of a context: 1 to 2
    W has shape 5 × 5, context embeddings drawn at random
    ...
    >>> status
    0
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    told = _TerminalLine(sys.stderr) if sys.stderr.isatty() else None
    try:
        return _report(options, told)
    except BrokenPipeError:  # who reads has enough
        return Exit.NO_ANSWER
    except _UnusableError as error:
        parser.error(str(error))
    except EXPECTED_ERRORS as error:
        return _fail(parser.prog, _in_one_line(error), told)
    except KeyboardInterrupt:
        _fail(parser.prog, "interrupted", told)
        return Exit.INTERRUPTED


def _report(options: argparse.Namespace, told: "_TerminalLine | None") -> int:
    """Make the report, write it and draw it."""
    if options.embedding == "concatenated" and (options.dim or 0) % options.context_length:
        raise _UnusableError(
            "with --embedding concatenated --dim must be a multiple of --context-length"
        )
    if options.plot is not None:
        _require_drawing(options.plot)
    text = _read(options.file)
    if told is not None:
        told("counting what follows the text's words")
    data = NextTokenData.from_text(
        text,
        context_length=options.context_length,
        dim=options.dim,
        seed=options.seed,
        embedding=options.embedding,
    )
    found = Report(implicit_bias(data, seconds=options.seconds, progress=told), words=data.words)
    status = Exit.ANSWERED
    try:
        found.compute()
    except KeyboardInterrupt:  # what is known is said all the same
        status = Exit.INTERRUPTED
    if told is not None:
        told.clear()
    _write(found, options.json)
    if options.plot is not None:
        found.plot().savefig(options.plot)
    return Exit.NO_ANSWER if status == Exit.ANSWERED and found.separable is None else status


def _read(file: str) -> str:
    """The text in a file, or the one that was piped in."""
    if file == STANDARD_INPUT:
        return _decode(sys.stdin.buffer.read(), "standard input")
    return _decode(Path(file).read_bytes(), f"the file {file!r}")


def _decode(content: bytes, name: str) -> str:
    """Decode UTF-8, without the byte order mark with which some files begin, or explain."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{name} is not in UTF-8: byte {error.start} is {content[error.start]:#04x}; "
            "save it as UTF-8"
        ) from None
    if "\0" in text:
        raise ValueError(f"{name} holds a zero byte at {text.index(chr(0))}; a text has none")
    return text + "\n"  # a text with a line break is no file's name


def _write(found: Report, as_json: bool) -> None:
    written = str(found)
    if as_json:
        written = json.dumps(found.summary(), ensure_ascii=False, allow_nan=False, indent=2)
    encoding = sys.stdout.encoding or "utf-8"  # some terminals have no signs such as ×
    try:
        print(written.encode(encoding, "replace").decode(encoding), flush=True)
    except OSError as error:  # which does not say of which file it speaks
        _write_no_more()
        raise OSError(error.errno, error.strerror, "standard output") from None


def _write_no_more() -> None:
    """Let what is left in the buffer vanish, which Python would try to write again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_drawing(path: Path) -> None:
    """Raise before anything is computed where the figure could not be written."""
    with needs_extra("plot", "--plot"):
        import matplotlib as mpl
    mpl.use("Agg")
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise _UnusableError(
            f"--plot: {str(path)!r} ends in {path.suffix!r}; one of {', '.join(known)} is needed"
        )
    if not path.parent.is_dir():
        raise _UnusableError(f"--plot: there is no folder {str(path.parent)!r}")


# -- arguments ------------------------------------------------------------------------------------


class _UnusableError(Exception):
    """Arguments that do not fit each other, or what is installed."""


class _Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(Exit.USAGE, f"{self.prog}: error: {message} (--help says more)\n")


def _parser() -> _Parser:
    parser = _Parser(
        prog="ntpnb",
        description="What next-token prediction learns.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"ntpnb {version('ntpnb')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    said = commands.add_parser(
        "report",
        help="say what training on a text will do",
        description="Say what next-token training on a text will do, before training.",
        epilog=EXIT_CODES,
    )
    said.add_argument("file", metavar="FILE", help="a text in UTF-8; - for standard input")
    said.add_argument(
        "--context-length",
        type=_at_least(1, int, "positive integer"),
        default=2,
        metavar="N",
        help="words in a context (default: %(default)s)",
    )
    said.add_argument(
        "--dim",
        type=_at_least(1, int, "positive integer"),
        metavar="N",
        help="dimension of the embeddings (default: as many as vectors are drawn, in which any "
        "text is separable whose contexts have one each, or 256 where these are more than 2000)",
    )
    said.add_argument(
        "--embedding",
        choices=EMBEDDINGS,
        default=EMBEDDINGS[0],
        help="a random vector for each context, or for each word and averaged or written one after "
        "the other (default: %(default)s)",
    )
    said.add_argument(
        "--seed",
        type=_at_least(0, int, "integer from zero on"),
        default=0,
        metavar="N",
        help="of the random vectors (default: %(default)s)",
    )
    said.add_argument(
        "--seconds",
        type=_at_least(0, float, "number of seconds"),
        metavar="S",
        help="time limit; without one, what would take minutes is left out",
    )
    said.add_argument("--json", action="store_true", help="write the report as JSON")
    said.add_argument("--plot", type=Path, metavar="FILE", help="draw the report into this file")
    return parser


def _at_least(least: int, kind: Callable[[str], float], needed: str) -> Callable[[str], float]:
    """Make a function that reads a finite number, or says that it is not what is needed."""

    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = math.nan
        if not least <= number < math.inf:
            raise argparse.ArgumentTypeError(f"{text!r} is no {needed}")
        return number

    return read


# -- what is said while and instead of a report ---------------------------------------------------


class _TerminalLine:
    """The last line of a terminal, which says how far the computation is."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._quiet_until = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            return
        self._quiet_until = now + 0.1  # seconds
        width = shutil.get_terminal_size().columns - 1
        self._stream.write("\r\x1b[K" + text[:width])
        self._stream.flush()

    def clear(self) -> None:
        """Leave the line as it was."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()


def _in_one_line(error: Exception) -> str:
    """Write an error's message in one line, with the file that a system's error names."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror}: {str(error.filename)!r}"
    return " ".join(str(error).split()) or type(error).__name__


def _fail(prog: str, why: str, told: _TerminalLine | None) -> int:
    if told is not None:
        told.clear()
    print(f"{prog}: error: {why}", file=sys.stderr)
    return Exit.NO_ANSWER


if __name__ == "__main__":
    sys.exit(main())
