"""The `dsrd` program: its verbs, and what a user sees when something is wrong."""

from __future__ import annotations

import errno
import sys
from typing import Any, NoReturn

import typer

from dsrd.cli import bench, data, demo, models, predict, runs
from dsrd.errors import DsrdError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes: a fault of ours or of the machine; input to be mended; Ctrl-C."""

UsageFault: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""What typer raises for a wrong command line; newer versions of it carry their own copy of click."""

app = typer.Typer(
    name="dsrd",
    help="Learn on streams of timestamped interactions: who did something with whom, when.\n\n"
    "Start with `dsrd demo`, then `dsrd train --dataset yours.csv`.",
    epilog="Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted. Add --debug anywhere for a traceback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("demo")(demo.demo)
app.add_typer(data.app, name="data")
app.command("models")(models.models)
app.command("train")(runs.train)
app.command("evaluate")(runs.evaluate)
app.command("predict")(predict.predict)
app.add_typer(bench.app, name="bench")


def main() -> NoReturn:
    """Run the command line; every error is one line on standard error unless `--debug` is given."""
    arguments = sys.argv[1:]
    debug = "--debug" in arguments
    try:
        code = app([word for word in arguments if word != "--debug"], prog_name="dsrd", standalone_mode=False)
    except Exception as error:
        if debug:
            raise
        sys.exit(_explained(error))
    except KeyboardInterrupt:
        sys.exit(_interrupted())
    sys.exit(code if isinstance(code, int) else 0)


def _explained(error: Exception) -> int:
    if isinstance(error, typer.Abort):
        return _interrupted()
    if isinstance(error, UsageFault):
        error.show()
        return BAD_INPUT
    if isinstance(error, DsrdError):
        return _say(str(error), BAD_INPUT)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _say(f"{error.filename or 'output'}: the disk is full; free some space and run it again", FAILED)
    if isinstance(error, OSError) and error.filename:
        return _say(
            f"{error.filename}: {(error.strerror or str(error)).lower()}; check the path and your rights", FAILED
        )
    if isinstance(error, MemoryError):
        return _say("out of memory; take a smaller --batch-size or a smaller stream", FAILED)
    return _say(f"{type(error).__name__}: {error} (a fault in dsrd; run again with --debug and report it)", FAILED)


def _say(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _interrupted() -> int:
    print("interrupted; a training run goes on from its last epoch when given the same command", file=sys.stderr)
    return INTERRUPTED
