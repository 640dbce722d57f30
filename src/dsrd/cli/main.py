"""The `dsrd` program: its verbs, and what a user sees when something is wrong."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from dsrd import __version__
from dsrd.cli import bench, classify, compare, data, demo, embed, inspect, models, new_events, predict, runs
from dsrd.cli.repeated_options import refuse_repeated
from dsrd.errors import DsrdError, MachineError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes: a fault of ours or of the machine; input to be mended; Ctrl-C."""

UsageFault: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""What typer raises for a wrong command line; newer versions of it carry their own copy of click."""

app = typer.Typer(
    name="dsrd",
    epilog="\b\nExit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.\n`dsrd COMMAND --help` says more.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("demo", epilog=demo.EXAMPLES)(demo.demo)
app.command("models", epilog=models.EXAMPLES)(models.models)
app.command("train", epilog=runs.TRAIN_EXAMPLES)(runs.train)
app.command("evaluate", epilog=runs.EVALUATE_EXAMPLES)(runs.evaluate)
app.command("predict", epilog=predict.EXAMPLES)(predict.predict)
app.command("surprise", epilog=new_events.SURPRISE_EXAMPLES)(new_events.surprise)
app.command("update", epilog=new_events.UPDATE_EXAMPLES)(new_events.update)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("classify", epilog=classify.EXAMPLES)(classify.classify)
app.command("embed", epilog=embed.EXAMPLES)(embed.embed)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def _version(asked: bool) -> None:
    if asked:
        print(f"dsrd {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; works anywhere.")] = False,
) -> None:
    """Learn on streams of timestamped interactions: who met whom, when.

    \b
    Start with
      dsrd demo                                  a first look, in a minute
      dsrd train --dataset calls.csv --out RUN   your own file
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; every error is one line on standard error unless `--debug` is given."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    words = [word for word in given if word != "--debug"]
    try:
        refuse_repeated(typer.main.get_command(app), words)
        code = app(words, prog_name="dsrd", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        sys.exit(_explained(error))
    except KeyboardInterrupt:
        sys.exit(_interrupted())
    if code == INTERRUPTED:  # newer versions of typer make this of a KeyboardInterrupt
        _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _explained(error: Exception) -> int:
    if isinstance(error, typer.Abort):
        return _interrupted()
    if isinstance(error, UsageFault):
        return _misused(error)
    if isinstance(error, MachineError):
        return _say(str(error), FAILED)
    if isinstance(error, DsrdError):
        return _say(str(error), BAD_INPUT)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _say(f"{error.filename or 'output'}: the disk is full; free some space and run it again", FAILED)
    if isinstance(error, OSError) and error.filename:
        reason = (error.strerror or str(error)).lower()
        return _say(f"{error.filename}: {reason}; check the path and your rights", FAILED)
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return _say("out of memory; take a smaller train.batch_size or a smaller stream", FAILED)
    return _say(f"{type(error).__name__}: {error} (a fault in dsrd; run again with --debug and report it)", FAILED)


def _misused(error: Any) -> int:
    """A wrong command line; without a command at all, the help is the answer."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" or context is None:
        error.show()
        return BAD_INPUT
    message = error.format_message().strip().rstrip(".")
    return _say(f"{message[:1].lower()}{message[1:]}; see `{context.command_path} --help`", BAD_INPUT)


def _say(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _interrupted() -> int:
    print("interrupted; a training run goes on from its last epoch when given the same command", file=sys.stderr)
    return INTERRUPTED
