"""The live table of a sweep: runs done, running with epoch and validation, failed with the reason, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.plan import PlannedRun
from dsrd.reporter import duration, standard_error

State = Literal["running", "done", "failed", "pruned", "waiting"]
STATES: tuple[State, ...] = get_args(State)
MOST_ROWS = 20  # of running and of failed runs
OVERDUE = 0.2  # what a run that takes longer than expected still needs, as a share of its time
LINE_EVERY = 30.0  # seconds between two lines of a log without news


@dataclass
class Row:
    """A run on the board."""

    planned: PlannedRun
    state: State
    expected: float | None  # seconds
    since: float = 0.0  # when it was started, by the clock of the board
    reason: str = ""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    title: str = ""  # of a trial

    @property
    def name(self) -> str:
        run = self.planned.run
        return self.title or f"{self.planned.label} on {self.planned.stream.name}, {run.protocol}, seed {run.seed}"

    @property
    def progress(self) -> str:
        """The last epoch and its validation."""
        if not self.epochs:
            return ""
        last = self.epochs[-1]
        names = {"val_ap": "AP", "val_auc": "AUC", "val_mrr": "MRR"}
        shown = ", ".join(f"{label} {last[key]:.2f}" for key, label in names.items() if key in last)
        epochs = self.planned.run.train.epochs
        return f"epoch {last['epoch']}/{epochs}, {shown}{', measuring' if last['epoch'] >= epochs else ''}"


class Board:
    """Shows how a sweep stands, on standard error: a table on a terminal, otherwise lines."""

    def __init__(
        self,
        folder: SweepFolder,
        runs: Mapping[str, PlannedRun],
        expected: Mapping[str, float],
        *,
        show: bool = True,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folder, self.clock = folder, clock
        self.rows = {key: Row(run, "waiting", expected.get(key)) for key, run in runs.items()}
        self.console = console or standard_error()
        self.live: Live | None = None
        if show and self.console.is_interactive:
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.lines = show and self.live is None
        self.said = clock()
        self.taken: dict[str, list[float]] = {}  # seconds of the runs that ended here, by model
        self.to_come = 0  # trials that are not known yet

    def __enter__(self) -> Board:
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    # --- What happens ---

    def add(self, key: str, planned: PlannedRun, title: str) -> None:
        """A trial of a search has been chosen."""
        self.rows[key] = Row(planned, "waiting", None, title=title)
        self.to_come = max(0, self.to_come - 1)

    def done_before(self, key: str) -> None:
        self.rows[key].state = "done"

    def started(self, key: str) -> None:
        row = self.rows[key]
        row.state, row.since, row.epochs, row.reason = "running", self.clock(), [], ""

    def ended(self, key: str, reason: str | None, state: State = "done") -> None:
        """A run has ended: it failed for a reason, or it is done."""
        row = self.rows[key]
        row.state, row.reason = ("failed", reason) if reason is not None else (state, "")
        self.taken.setdefault(row.planned.label, []).append(self.clock() - row.since)
        if self.lines:
            took = duration(self.clock() - row.since)
            self._say(f"failed: {row.name}: {reason}" if reason is not None else f"{state}: {row.name} ({took})")

    def refresh(self) -> None:
        """Look at the running runs and show how everything stands."""
        for key, row in self.rows.items():
            if row.state == "running":
                row.epochs = self.folder.history(key)
        if self.live is not None:
            self.live.update(Group(Text(self.summary, style="bold"), self.table()), refresh=True)
        elif self.lines and self.clock() - self.said > LINE_EVERY:
            self._say(self.summary)

    # --- How it looks ---

    def count(self, state: State) -> int:
        return sum(row.state == state for row in self.rows.values())

    @property
    def summary(self) -> str:
        """One line: how many runs are done, running, failed, waiting, and the time left."""
        done = f"{self.count('done')} of {len(self.rows) + self.to_come} runs done"
        counts = {state: self.count(state) for state in STATES if state != "done"}
        counts["waiting"] += self.to_come
        others = [f"{count} {state}" for state, count in counts.items()]
        shown = [done, *(words for words in others if not words.startswith("0 "))]
        left = self.time_left()
        return ", ".join(shown) + (f"; about {duration(left)} left" if left is not None else "")

    def time_left(self) -> float | None:
        """Seconds until the end, from the estimates and the runs so far; None where nothing is known."""
        open_rows = [row for row in self.rows.values() if row.state in ("waiting", "running")]
        taken = [seconds for each in self.taken.values() for seconds in each]
        usual = sum(taken) / len(taken) if taken else None
        work = self.to_come * (usual or 0.0)
        for row in open_rows:
            expected = self._expected(row, usual)
            if expected is None:
                return None
            spent = self.clock() - row.since if row.state == "running" else 0.0
            work += max(expected - spent, OVERDUE * spent)
        return work / max(1, self.count("running")) if open_rows or self.to_come else None

    def _expected(self, row: Row, usual: float | None) -> float | None:
        """Seconds that a run will take: its estimate, or as long as others of its model, or of any, took here."""
        if row.expected is not None:
            return row.expected
        alike = self.taken.get(row.planned.label)
        return sum(alike) / len(alike) if alike else usual

    def table(self) -> Table:
        """Running and failed runs."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
        for state in ("running", "failed"):
            rows = [row for row in self.rows.values() if row.state == state]
            for row in rows[-MOST_ROWS:]:
                detail = row.reason if state == "failed" else row.progress or "preparing"
                took = duration(self.clock() - row.since) if state == "running" else ""
                table.add_row(Text(state, style="red" if state == "failed" else ""), row.name, took, Text(detail))
            if len(rows) > MOST_ROWS:
                table.add_row(state, f"and {len(rows) - MOST_ROWS} more", "", "")
        return table

    def _say(self, line: str) -> None:
        self.said = self.clock()
        print(line, file=self.console.file, flush=True)
