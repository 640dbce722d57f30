"""`dsrd refit`: train a model anew on what an engine has observed."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsrd.cli import options, output
from dsrd.errors import DsrdError
from dsrd.reporter import Reporter

if TYPE_CHECKING:
    from dsrd.live.data_folder import DataFolder
    from dsrd.live.refit import Refit

EXAMPLES = options.examples(
    "dsrd refit live --now", "dsrd refit live --every 1d", "dsrd refit live --when drift --set train.epochs=10"
)
LOOK = 2.0  # seconds between looks at whether it is time
UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}

Data = Annotated[
    Path, typer.Argument(metavar="DIR", help="Data folder of `dsrd serve` or `dsrd stream`.", show_default=False)
]
Now = Annotated[bool, typer.Option("--now", help="Train once, now.")]
Every = Annotated[
    str | None,
    typer.Option(
        "--every",
        metavar="TIME",
        help="Train again after that long, such as 12h or 1d, if there are new events.",
        show_default=False,
    ),
]
When = Annotated[
    str | None,
    typer.Option(
        "--when",
        metavar="drift",
        help="Train when recent events have become more surprising than at training.",
        show_default=False,
    ),
]

Nice = Annotated[
    int,
    typer.Option("--nice", metavar="N", help="How much training makes way for other processes; 0: not at all."),
]


def refit(
    data: Data,
    now: Now = False,
    every: Every = None,
    when: When = None,
    set_: options.Settings = None,
    nice: Nice = 10,
    json: options.Json = False,
    threads: options.Threads = 1,
) -> None:
    """Train anew on all events of a running server or stream.

    It then uses the new weights. Training is a process of its own: the server goes on answering, and swaps weights
    and state between two events. The run keeps its settings unless --set changes them. The number of epochs is
    found on the latest events, then the weights are trained on all. Without a server the folder starts with the
    new weights. A kill leaves the old weights or the new.
    """
    if not now and every is None and when is None:
        raise DsrdError("say when to train: --now, --every 1d or --when drift")
    if when not in (None, "drift"):
        raise DsrdError(f"--when {when}: give drift")
    period = None if every is None else seconds(every)
    settings = options.key_values(set_)
    from dsrd.live.data_folder import DataFolder
    from dsrd.live.refit import make_way, newest_refit

    options.use_threads(threads)
    folder = DataFolder(data)
    folder.base()
    make_way(nice)
    if now:
        _train(folder, settings, json)
    looked = time.time()  # a folder that was never trained here is trained a period after the start
    while period is not None or when is not None:
        newest = newest_refit(folder)
        last = looked if newest is None else newest.at
        due = period is not None and time.time() >= last + period and _has_new_events(folder, newest)
        if due or (when is not None and _has_drifted(folder)):
            _train(folder, settings, json)
            looked = time.time()
        time.sleep(LOOK)


def seconds(text: str) -> float:
    """A span of time such as 90s, 12h or 1d.

    >>> seconds("1d"), seconds("1.5h")
    (86400.0, 5400.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if match is None or not float(match[1]):
        raise DsrdError(f"--every {text}: give a number and a unit, such as 90s, 30m, 12h, 1d or 2w")
    return float(match[1]) * UNITS[match[2]]


def _train(folder: DataFolder, settings: dict[str, str], json: bool) -> Refit:
    from dsrd.live.refit import refit as train_anew

    began = time.time()
    with Reporter():
        done = train_anew(folder, settings)
    if json:
        output.as_json({**vars(done), "run": done.run, "seconds": round(time.time() - began, 1)})
    else:
        spent = time.time() - began
        output.line(f"{folder.path}/{done.run}: trained on {done.events:,} events in {spent:,.0f} s")
    return done


def _has_new_events(folder: DataFolder, newest: Refit | None) -> bool:
    from dsrd.live.log import Log

    log = Log(folder.log, read_only=True)
    try:
        return log.last > (0 if newest is None else newest.held)
    finally:
        log.close()


def _has_drifted(folder: DataFolder) -> bool:
    """Whether the weights in use are those that drifted: a refit that is not in use yet is waited for."""
    from dsrd.live.refit import newest_refit, number_of
    from dsrd.live.swap import noted_drift

    noted, base, newest = noted_drift(folder), folder.base(), newest_refit(folder)
    waits = newest is not None and newest.number > number_of(base)
    return bool(noted and noted["drifted"] and noted["run"] == base.run and not waits)
