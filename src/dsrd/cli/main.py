"""The `dsrd` program: its commands, error messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NoReturn

import typer

from dsrd import __version__
from dsrd.cli import (
    bench,
    calibration,
    classify,
    compare,
    data,
    demo,
    embed,
    inspect,
    models,
    new_events,
    output,
    predict,
    refit,
    report,
    runs,
    serve,
    stream,
    sweep,
)
from dsrd.cli.repeated_options import refuse_repeated
from dsrd.errors import DsrdError, DsrdWarning, MachineError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes: a bug or a problem of the machine; wrong input; Ctrl-C."""

UsageError: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""What typer raises for a wrong command line; newer versions of typer contain their own copy of click."""

app = typer.Typer(
    name="dsrd",
    epilog="\b\nHelp on a command: `dsrd COMMAND --help`.\n"
    "Exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted.",
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
app.command("calibration", epilog=calibration.EXAMPLES)(calibration.calibration)
app.command("predict", epilog=predict.EXAMPLES)(predict.predict)
app.command("surprise", epilog=new_events.SURPRISE_EXAMPLES)(new_events.surprise)
app.command("update", epilog=new_events.UPDATE_EXAMPLES)(new_events.update)
app.command("compare", epilog=compare.EXAMPLES)(compare.compare)
app.command("sweep", epilog=sweep.EXAMPLES)(sweep.sweep)
app.command("classify", epilog=classify.EXAMPLES)(classify.classify)
app.command("embed", epilog=embed.EXAMPLES)(embed.embed)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("report", epilog=report.EXAMPLES)(report.report)
app.command("refit", epilog=refit.EXAMPLES)(refit.refit)
app.command("stream", epilog=stream.EXAMPLES)(stream.stream)
app.command("serve", epilog=serve.EXAMPLES)(serve.serve)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def _version(requested: bool) -> None:
    if requested:
        print(f"dsrd {__version__}")
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; works with every command.")
    ] = False,
) -> None:
    """Learning on dynamic graphs: streams of timestamped events between nodes.

    \b
    Start with
      dsrd demo                                  a first look, in a minute
      dsrd demo --own-data                       the same with a CSV file, step by step
      dsrd train --dataset calls.csv --out RUN   train on your own file
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; an error is one line on standard error, with `--debug` a traceback as well."""
    all_words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in all_words
    words = [word for word in all_words if word != "--debug"]
    warnings.showwarning = _show_warning(warnings.showwarning)
    try:
        refuse_repeated(typer.main.get_command(app), words)
        code = app(words, prog_name="dsrd", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, such as `head`, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:
        if debug:
            traceback.print_exc()
        sys.exit(_print_error(error))
    except KeyboardInterrupt:
        sys.exit(_interrupted())
    if code == INTERRUPTED:  # newer versions of typer return this for a KeyboardInterrupt
        _interrupted()
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(usual: Callable[..., None]) -> Callable[..., None]:
    """Warnings of dsrd as one line, all others as usual."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, DsrdWarning):
            output.note(str(message))
        else:
            usual(message, category, *place, **more)

    return show


def _print_error(error: Exception) -> int:
    """Print one line about the error; returns the exit code."""
    if isinstance(error, typer.Abort):
        return _interrupted()
    if isinstance(error, UsageError):
        return _print_usage_error(error)
    if isinstance(error, MachineError):
        return _print_line(str(error), FAILED)
    if isinstance(error, DsrdError):
        return _print_line(str(error), BAD_INPUT)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _print_line(
            f"{error.filename or 'output'}: the disk is full; free some space and run the command again", FAILED
        )
    if isinstance(error, OSError) and error.filename:
        reason = (error.strerror or str(error)).lower()
        return _print_line(f"{error.filename}: {reason}; check the path and its permissions", FAILED)
    if isinstance(error, UnicodeEncodeError):
        return _print_line(
            f"the output cannot show {error.object[error.start : error.end]!r} in {error.encoding}; set "
            "PYTHONIOENCODING=utf-8, or write to a file",
            FAILED,
        )
    if isinstance(error, MemoryError) or "not enough memory" in str(error):
        return _print_line("out of memory; use a smaller train.batch_size or less data", FAILED)
    return _print_line(
        f"{type(error).__name__}: {error} (a bug in dsrd; run again with --debug and report it)", FAILED
    )


def _print_usage_error(error: Any) -> int:
    """Print one line about a wrong command line; the help if there is no command at all."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return BAD_INPUT
    message, path = error.format_message().strip().rstrip("."), getattr(context, "command_path", "dsrd")
    return _print_line(f"{message[:1].lower()}{message[1:]}; see `{path} --help`", BAD_INPUT)


def _print_line(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _interrupted() -> int:
    print("interrupted; the same command continues a training run after its last epoch", file=sys.stderr)
    return INTERRUPTED
