"""What long work says while it runs: a bar before a person, a line every few seconds in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import TypeAlias

from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with (what, done, total) as work goes on; total is 0 if nobody knows how much there is."""

BAR_AFTER = 1.0  # seconds; shorter work needs no bar
LINE_EVERY = 5.0  # seconds between two lines of a log; shorter work says nothing
WIDE = 120  # columns of a terminal that has room for the figures beside the bar; otherwise they stand below it


class Reporter:
    """Shows how far long work has come, on standard error. Use it in a `with` block.

    In a terminal or a notebook a bar, with the figures of the last epoch beside it; elsewhere plain lines, at most
    one every 5 seconds. `show=False` says nothing at all.

    >>> with Reporter(show=False) as report:
    ...     report("train", 200, 1000)
    ...     report.epoch(1, {"loss": 0.4, "val_ap": 91.2, "val_auc": 92.3})
    >>> report.figures
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
        self._form = _form(console, clock, unit) if show else _Silence()
        self._figures = _Figures()

    def __enter__(self) -> Reporter:
        self._form.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._form.stop(finished=kind is None)

    def __call__(self, what: str, done: int, total: int) -> None:
        """Work called `what` has come to `done` of `total`; another `what` starts over."""
        self._form.progress(what, done, total)

    def epoch(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Set the figures to show: `loss`, `val_ap`, `val_auc`, `best_epoch`, as far as there are any.

        Without `best_epoch` the best one is that with the highest mean of the validation AP and AUC.
        """
        if self._show:
            self._figures.update(epoch, metrics)
            self._form.show_figures(self.figures)

    @property
    def figures(self) -> str:
        """The figures of the last epoch in words; empty before the first one."""
        return self._figures.text

    def note(self, *lines: str) -> None:
        """Say something above the bar, or as lines of their own."""
        for line in lines:
            self._form.note(line)


class _Figures:
    """The figures of the last epoch, and which epoch was the best so far."""

    def __init__(self) -> None:
        self.text, self.last, self.best_epoch, self.best = "", 0, 0, float("-inf")

    def update(self, epoch: int, metrics: Mapping[str, float]) -> None:
        if epoch <= self.last:  # another training began
            self.best_epoch, self.best = 0, float("-inf")
        self.last = epoch
        validation = [metrics[name] for name in ("val_ap", "val_auc") if name in metrics]
        if validation and sum(validation) > self.best:
            self.best_epoch, self.best = epoch, sum(validation)
        shown = [
            f"{label} {metrics[name]:.{digits}f}"
            for name, label, digits in (("loss", "loss", 4), ("val_ap", "val AP", 2), ("val_auc", "val AUC", 2))
            if name in metrics
        ]
        best = int(metrics.get("best_epoch", self.best_epoch))
        shown += [f"best epoch {best}"] if best else []
        self.text = f"epoch {epoch}: {', '.join(shown)}" if shown else ""


class _Silence:
    """Says nothing; the base of the two forms that do."""

    def start(self) -> None: ...

    def stop(self, finished: bool) -> None: ...

    def progress(self, what: str, done: int, total: int) -> None: ...

    def show_figures(self, figures: str) -> None: ...

    def note(self, line: str) -> None: ...


class _Lines(_Silence):
    """Plain lines for a log: no carriage returns, no escape codes, and none for what is over soon."""

    def __init__(self, console: Console, clock: Callable[[], float], unit: str) -> None:
        self.console, self.clock, self.unit = console, clock, unit
        self.what, self.figures, self.unsaid = "", "", False
        self.began = self.last = clock()
        self.spoken = False

    def start(self) -> None:
        self.began = self.last = self.clock()

    def stop(self, finished: bool) -> None:
        if finished and self.spoken and self.unsaid:  # else the figures of the last epoch would never be seen
            self._say("done")

    def progress(self, what: str, done: int, total: int) -> None:
        self.what = f"{what} {self._amount(done)}/{self._amount(total)}" if total else what
        self._say_if_due()

    def show_figures(self, figures: str) -> None:
        self.figures, self.unsaid = figures, True
        self._say_if_due()

    def note(self, line: str) -> None:
        print(line, file=self.console.file, flush=True)

    def _amount(self, count: int) -> str:
        return decimal(count) if self.unit == "bytes" else f"{count:,}"

    def _say_if_due(self) -> None:
        if self.clock() - self.last >= LINE_EVERY:
            self._say(self.what)

    def _say(self, what: str) -> None:
        self.last = self.clock()
        self.spoken, self.unsaid = True, False
        figures = f"  ({self.figures})" if self.figures else ""
        self.note(f"{_duration(self.last - self.began)}  {what}{figures}")


class _Bar(_Silence):
    """A bar that appears once the work takes long enough to wonder about, and goes when it is done."""

    def __init__(self, console: Console, clock: Callable[[], float], unit: str) -> None:
        amount = DownloadColumn() if unit == "bytes" else _Clock()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(bar_width=20), amount)
        self.bars = _PatientBars(console, clock, *columns)

    def start(self) -> None:
        self.bars.start()

    def stop(self, finished: bool) -> None:
        self.bars.stop()

    def progress(self, what: str, done: int, total: int) -> None:
        shown = self.bars.tasks[0] if self.bars.tasks else None
        if shown is None or shown.description != what:
            for old in self.bars.task_ids:
                self.bars.remove_task(old)
            self.bars.add_task(what, total=total or None)
        self.bars.update(self.bars.task_ids[0], completed=done, total=total or None)

    def show_figures(self, figures: str) -> None:
        self.bars.figures = figures

    def note(self, line: str) -> None:
        self.bars.console.print(line, markup=False, highlight=False, soft_wrap=True)


class _PatientBars(Bars):
    def __init__(self, console: Console, clock: Callable[[], float], *columns: ProgressColumn) -> None:
        self.clock, self.began, self.figures = clock, clock(), ""
        beside = _Beside(self)
        super().__init__(
            *columns,
            beside,
            console=console,
            transient=True,
            get_time=clock,
            redirect_stdout=sys.stdout.isatty(),  # what goes to a file or a pipe must get there
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        if self.clock() - self.began < BAR_AFTER:
            return
        yield from super().get_renderables()
        if self.figures and self.console.width < WIDE:
            yield Text(self.figures, no_wrap=True, overflow="ellipsis")


class _Beside(ProgressColumn):
    """The figures of the last epoch, where there is room for them."""

    max_refresh = None

    def __init__(self, bars: _PatientBars) -> None:
        super().__init__()
        self.bars = bars

    def render(self, task: Task) -> Text:
        return Text(self.bars.figures if self.bars.console.width >= WIDE else "")


class _Clock(ProgressColumn):
    """What is done of how much, the time taken, and the time left where it can be estimated."""

    def render(self, task: Task) -> Text:
        taken = _duration(task.elapsed or 0)
        if not task.total:
            return Text(taken)
        left = f", {_duration(task.time_remaining)} left" if task.time_remaining is not None else ""
        return Text(f"{int(task.completed):,}/{int(task.total):,}  {taken}{left}")


def _form(console: Console | None, clock: Callable[[], float], unit: str) -> _Silence:
    console = console or _standard_error()
    notebook = console.is_jupyter and find_spec("ipywidgets") is not None  # rich needs it there
    return (_Bar if notebook or console.is_interactive else _Lines)(console, clock, unit)


def _standard_error() -> Console:
    """Standard error, with a bar only if a person looks at it: FORCE_COLOR does not make a log a terminal."""
    watched = sys.stderr is not None and sys.stderr.isatty()
    return Console(stderr=True, force_interactive=None if watched else False)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def download_bar(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Progress of a download in bytes, called with (there, expected)."""
    with Reporter(unit="bytes") as reporter:
        what = name.rpartition("/")[2]
        yield lambda there, expected: reporter(what, there, expected or 0)


silent = Reporter(show=False)
"""Says nothing; for work whose caller did not ask for a report."""
