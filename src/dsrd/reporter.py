"""Progress of long work: a bar for a person, a line every few seconds for a log.

Code that works for a while calls `step`, which goes to the reporter of the enclosing `with Reporter():` block, or
nowhere if there is none. The current reporter is a context variable: every thread has its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from importlib.util import find_spec
from types import TracebackType

from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

BAR_AFTER = 1.0  # seconds; shorter work needs no bar
LINE_EVERY = 5.0  # seconds between two lines of a log; shorter work prints nothing
WIDE = 120  # columns of a terminal with room for the metrics beside the bar; a narrower one gets them below it


SHOWN_METRICS = (
    ("loss", "loss", 4),
    ("val_ap", "val AP", 2),
    ("val_auc", "val AUC", 2),
    ("val_mrr", "val MRR", 2),
)
"""Metrics of an epoch: name, label, digits."""


class Reporter:
    """Shows the progress of long work on standard error. Everything in its `with` block reports to it.

    A terminal or a notebook gets a bar with the metrics of the last epoch. Any other output gets plain lines, at
    most one every 5 seconds. `show=False` prints nothing.

    >>> with Reporter(show=False) as report:
    ...     step("train", 200, 1000)
    ...     report.epoch(1, {"loss": 0.4, "val_ap": 91.2, "val_auc": 92.3})
    >>> report.metrics
    ''
    """

    def __init__(
        self,
        show: bool = True,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
        unit: str = "",
    ) -> None:
        """`unit="bytes"` writes amounts as sizes; `console` and `clock` are for tests and other outputs."""
        self._show = show
        self._display = _display(console, clock, unit) if show else _Silence()
        self._last_epoch = _LastEpoch()
        self._tokens: list[Token[Reporter | None]] = []

    def __enter__(self) -> Reporter:
        self._tokens.append(_current.set(self))
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop(finished=kind is None)
        _current.reset(self._tokens.pop())

    def step(self, name: str, done: int = 0, total: int = 0) -> None:
        """Report that the work `name` has finished `done` of `total` units; 0 if the total is unknown."""
        self._display.step(name, done, total)

    def epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of an epoch: `loss`, `val_ap`, `val_auc`, `val_mrr` and `best_epoch`, where present.

        Without `best_epoch`, the best epoch is the one with the highest MRR, or mean of validation AP and AUC.
        """
        if self._show:
            self._last_epoch.update(epoch, metrics)
            self._display.show_metrics(self.metrics)

    @property
    def metrics(self) -> str:
        """The metrics of the last epoch as text; empty before the first one."""
        return self._last_epoch.text

    def note(self, *lines: str) -> None:
        """Print lines above the bar, or among the other lines of a log."""
        for line in lines:
            self._display.note(line)


class _LastEpoch:
    """The metrics of the last epoch as text, and the best epoch so far."""

    def __init__(self) -> None:
        self.text, self.number, self.best_epoch, self.best = "", 0, 0, float("-inf")

    def update(self, epoch: int, metrics: Mapping[str, float]) -> None:
        if epoch <= self.number:  # another training began
            self.best_epoch, self.best = 0, float("-inf")
        self.number = epoch
        deciding = ("val_mrr",) if "val_mrr" in metrics else ("val_ap", "val_auc")
        validation = [metrics[name] for name in deciding if name in metrics]
        if validation and sum(validation) > self.best:
            self.best_epoch, self.best = epoch, sum(validation)
        parts = [f"{label} {metrics[name]:.{digits}f}" for name, label, digits in SHOWN_METRICS if name in metrics]
        best = int(metrics.get("best_epoch", self.best_epoch))
        parts += [f"best epoch {best}"] if best else []
        self.text = f"epoch {epoch}: {', '.join(parts)}" if parts else ""


class _Silence:
    """Shows nothing; the base class of the two displays that do."""

    def start(self) -> None: ...

    def stop(self, finished: bool) -> None: ...

    def step(self, name: str, done: int, total: int) -> None: ...

    def show_metrics(self, metrics: str) -> None: ...

    def note(self, line: str) -> None: ...


class _Lines(_Silence):
    """Plain lines for a log, without carriage returns or escape codes; short work prints none."""

    def __init__(self, console: Console, clock: Callable[[], float], unit: str) -> None:
        self.console, self.clock, self.unit = console, clock, unit
        self.text, self.metrics = "", ""
        self.started = self.last = clock()
        self.printed, self.metrics_pending = False, False

    def start(self) -> None:
        self.started = self.last = self.clock()

    def stop(self, finished: bool) -> None:
        if finished and self.printed and self.metrics_pending:  # otherwise the last epoch would never be shown
            self._print("done")

    def step(self, name: str, done: int, total: int) -> None:
        self.text = f"{name} {self._amount(done)}/{self._amount(total)}" if total else name
        self._print_if_due()

    def show_metrics(self, metrics: str) -> None:
        self.metrics, self.metrics_pending = metrics, True
        self._print_if_due()

    def note(self, line: str) -> None:
        print(line, file=self.console.file, flush=True)

    def _amount(self, count: int) -> str:
        return decimal(count) if self.unit == "bytes" else f"{count:,}"

    def _print_if_due(self) -> None:
        if self.clock() - self.last >= LINE_EVERY:
            self._print(self.text)

    def _print(self, text: str) -> None:
        self.last = self.clock()
        self.printed, self.metrics_pending = True, False
        metrics = f"  ({self.metrics})" if self.metrics else ""
        self.note(f"{duration(self.last - self.started)}  {text}{metrics}")


class _Bar(_Silence):
    """A bar that appears once the work takes longer than a second and disappears at the end."""

    def __init__(self, console: Console, clock: Callable[[], float], unit: str) -> None:
        amount = DownloadColumn() if unit == "bytes" else _AmountAndTime()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), amount)
        self.bars = _DelayedBars(console, clock, *columns)

    def start(self) -> None:
        self.bars.start()

    def stop(self, finished: bool) -> None:
        self.bars.stop()

    def step(self, name: str, done: int, total: int) -> None:
        bar = self.bars.tasks[0] if self.bars.tasks else None
        if bar is None or bar.description != name:
            for old in self.bars.task_ids:
                self.bars.remove_task(old)
            self.bars.add_task(name, total=total or None)
        self.bars.update(self.bars.task_ids[0], completed=done, total=total or None)

    def show_metrics(self, metrics: str) -> None:
        self.bars.metrics = metrics

    def note(self, line: str) -> None:
        self.bars.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _DelayedBars(Progress):
    def __init__(self, console: Console, clock: Callable[[], float], *columns: ProgressColumn) -> None:
        self.clock, self.started_at, self.metrics = clock, clock(), ""
        super().__init__(
            *columns,
            _MetricsColumn(self),
            console=console,
            transient=True,
            get_time=clock,
            redirect_stdout=sys.stdout.isatty(),  # output that goes to a file or a pipe must not be redirected
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.clock() - self.started_at < BAR_AFTER:
            return
        yield from super().get_renderables()
        if self.metrics and self.console.width < WIDE:
            yield Text(self.metrics, no_wrap=True, overflow="ellipsis")


class _MetricsColumn(ProgressColumn):
    """The metrics of the last epoch, in a terminal that is wide enough."""

    max_refresh = None

    def __init__(self, bars: _DelayedBars) -> None:
        super().__init__()
        self.bars = bars

    def render(self, task: Task) -> Text:
        return Text(self.bars.metrics if self.bars.console.width >= WIDE else "")


class _AmountAndTime(ProgressColumn):
    """The finished and total amount, the time taken, and an estimate of the time left."""

    def render(self, task: Task) -> Text:
        taken = duration(task.elapsed or 0)
        if not task.total:
            return Text(taken)
        left = f", {duration(task.time_remaining)} left" if task.time_remaining is not None else ""
        return Text(f"{int(task.completed):,}/{int(task.total):,}  {taken}{left}")


def _display(console: Console | None, clock: Callable[[], float], unit: str) -> _Silence:
    console = console or standard_error()
    notebook = console.is_jupyter and find_spec("ipywidgets") is not None  # rich needs it there
    return (_Bar if notebook or console.is_interactive else _Lines)(console, clock, unit)


def standard_error() -> Console:
    """Standard error, interactive only if it is a terminal: FORCE_COLOR does not turn a log into one."""
    terminal = sys.stderr is not None and sys.stderr.isatty()
    return Console(stderr=True, force_interactive=None if terminal else False)


def duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_SILENT = Reporter(show=False)
_current: ContextVar[Reporter | None] = ContextVar("reporter", default=None)
_stage: ContextVar[str] = ContextVar("stage", default="")


def current() -> Reporter:
    """The reporter of the enclosing `with Reporter():` block; a silent one outside of any."""
    return _current.get() or _SILENT


def step(name: str, done: int = 0, total: int = 0) -> None:
    """Report progress to the current reporter."""
    current().step(f"{_stage.get()}{name}", done, total)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Put `name` before the name of every step in this block: `epoch 1/20 train`."""
    token = _stage.set(f"{_stage.get()}{name} ")
    try:
        yield
    finally:
        _stage.reset(token)


@contextmanager
def reporting(progress: bool | Reporter) -> Iterator[Reporter]:
    """Report to a new reporter that shows or hides everything, or to the one passed, which stays open."""
    if isinstance(progress, Reporter):
        token = _current.set(progress)
        try:
            yield progress
        finally:
            _current.reset(token)
    else:
        with Reporter(show=progress) as report:
            yield report


@contextmanager
def download_bar(url: str) -> Iterator[Callable[[int, int | None], None]]:
    """Progress of a download in bytes: a function of (bytes so far, expected bytes)."""
    with Reporter(unit="bytes") as report:
        file_name = url.rpartition("/")[2]
        yield lambda done, expected: report.step(file_name, done, expected or 0)
