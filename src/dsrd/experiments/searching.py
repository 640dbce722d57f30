"""`search`: look for settings with Optuna, on validation alone.

A trial is a run of the plan with other settings, trained without being evaluated: its value is the best validation
score of its epochs, and no score on test events is ever made. Optuna keeps what was tried in a journal file, so a
search that is killed goes on where it was.
"""

from __future__ import annotations

import json
import time
import warnings
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsrd.config import DataConfig, digest_of_json
from dsrd.errors import DsrdError
from dsrd.experiments.board import Board
from dsrd.experiments.folder import SweepFolder
from dsrd.experiments.places import Place
from dsrd.experiments.plan import Plan, PlannedRun
from dsrd.experiments.sweeping import PAUSE, REFRESH, PlanLike, default_folder, opened, ready
from dsrd.files import write_text

if TYPE_CHECKING:
    import optuna

WARM_UP = 2  # epochs before a trial may be pruned
STARTED = 4  # trials that are finished before others are pruned


@dataclass(frozen=True)
class Best:
    """The best settings of one model on one data set."""

    planned: PlannedRun  # the run of the plan with these settings
    settings: Mapping[str, Any]  # what the search chose
    value: float  # validation, percent
    trials: Mapping[str, int]  # how many were complete, pruned, failed


@dataclass(frozen=True)
class Search:
    """How a search ended."""

    folder: Path
    best: tuple[Best, ...]
    failed: Mapping[str, str]  # reasons, by trial

    @property
    def plan_file(self) -> Path:
        """A plan with the best settings, for `sweep`."""
        return self.folder / "best.toml"


def search(
    plan: PlanLike,
    *,
    folder: str | Path | None = None,
    jobs: int = 1,
    ray: str | None = None,
    threads: int = 0,
    data_dir: str | Path | None = None,
    present: bool = False,
    progress: bool = True,
) -> Search:
    """Try settings from the table `search` of a plan, for each of its models, data sets and protocols.

    `jobs` trials are trained at a time. The seed is the first of the plan. Trials whose validation stays below the
    median of the others are ended early. The best settings are written to `best.toml`, a plan of their own.
    """
    checked = ready(plan, data_dir, present)
    if checked.space is None:
        raise DsrdError(f"{checked.name}: has no table [search]; name the settings to try and their ranges")
    if find_spec("optuna") is None:
        raise DsrdError("Optuna is not installed; run `pip install dsrd[search]`")
    target = SweepFolder(Path(folder) if folder is not None else default_folder(checked))
    with target.claimed(checked):
        studies = [_Study(run, checked, target) for run in _templates(checked)]
        with Board(target, {}, {}, show=progress) as board:
            board.to_come = sum(study.left for study in studies)
            if board.to_come:
                with opened(target, board.to_come, jobs, ray, threads, data_dir) as place:
                    _Trials(studies, place, board, target, jobs).run()
            failed = {row.name: row.reason for row in board.rows.values() if row.state == "failed"}
        best = tuple(best for study in studies if (best := study.best()) is not None)
        done = Search(target.path, best, failed)
        if best:
            write_text(done.plan_file, _plan_of(checked, best))
    return done


def _templates(plan: Plan) -> list[PlannedRun]:
    """The run that each study varies: the first seed of each model, data set and protocol."""
    assert plan.space is not None
    first: dict[tuple[str, str, str], PlannedRun] = {}
    for run in plan.runs:
        if run.label in plan.space.models:
            first.setdefault((run.label, run.stream.name, run.run.protocol), run)
    return list(first.values())


@dataclass
class _Active:
    """A trial that is being trained."""

    study: _Study
    trial: optuna.trial.Trial
    planned: PlannedRun
    reported: int = 0  # epochs


class _Study:
    """The trials of one model on one data set."""

    def __init__(self, template: PlannedRun, plan: Plan, folder: SweepFolder) -> None:
        import optuna

        assert plan.space is not None
        self.template, self.space, self.folder = template, plan.space, folder
        self.name = f"{template.label} / {template.stream.name} / {template.run.protocol}"
        self.states = optuna.trial.TrialState
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.study = optuna.create_study(
            study_name=f"{self.name} / {digest_of_json([template.digest, str(self.space.space)])}",
            storage=_storage(folder.journal),
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTED, n_warmup_steps=WARM_UP),
            load_if_exists=True,
        )
        self.study.sampler = optuna.samplers.TPESampler(seed=template.run.seed + len(self.study.trials))
        self._try_again_what_was_cut_off()

    def _try_again_what_was_cut_off(self) -> None:
        """Trials of a search that was killed are asked again with the same values, and their runs continue."""
        for trial in self.study.get_trials(states=(self.states.RUNNING,)):
            if set(trial.params) == set(self.space.space):
                self.study.enqueue_trial(trial.params)
            self.study.tell(trial.number, state=self.states.FAIL)

    def counts(self) -> dict[str, int]:
        """Trials that are over, by how they ended; those of a killed search do not count."""
        ended = {"complete": 0, "pruned": 0, "failed": 0}
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state == self.states.FAIL and "reason" in trial.user_attrs:
                ended["failed"] += 1
            elif trial.state in (self.states.COMPLETE, self.states.PRUNED):
                ended[trial.state.name.lower()] += 1
        return ended

    @property
    def left(self) -> int:
        return max(0, self.space.trials - sum(self.counts().values()))

    def ask(self) -> _Active:
        """The next trial, with the run that it needs."""
        trial = self.study.ask()
        chosen = {key: values.suggest(trial, key) for key, values in self.space.space.items()}
        return _Active(self, trial, self.template.with_settings(chosen))

    def best(self) -> Best | None:
        """The best trial so far; None before the first complete one."""
        complete = self.study.get_trials(deepcopy=False, states=(self.states.COMPLETE,))
        if not complete:
            return None
        first = max(complete, key=lambda trial: trial.value or 0.0)
        planned = self.template.with_settings(first.params)
        return Best(planned, dict(first.params), float(first.value or 0.0), self.counts())


class _Trials:
    """Trains the trials of all studies, a few at a time."""

    def __init__(
        self, studies: list[_Study], place: Place, board: Board, folder: SweepFolder, at_a_time: int
    ) -> None:
        self.place, self.board, self.folder, self.at_a_time = place, board, folder, at_a_time
        self.waiting = deque(study for study in studies for _ in range(study.left))
        self.active: dict[str, _Active] = {}

    def run(self) -> None:
        """Train until every study has its number of trials."""
        looked = 0.0
        while self.waiting or self.active:
            while self.waiting and self.place.has_room and len(self.active) < self.at_a_time:
                self._start(self.waiting.popleft())
            for key in self.active:
                if self.board.rows[key].state == "waiting" and self.folder.has_started(key):
                    self.board.started(key)
            for key, reason in self.place.ended().items():
                self._finish(key, reason)
            for key in list(self.active):
                self._prune_if_poor(key)
            if time.monotonic() - looked > REFRESH:
                self.board.refresh()
                looked = time.monotonic()
            time.sleep(PAUSE)

    def _start(self, study: _Study) -> None:
        active = study.ask()
        key = active.planned.key
        if key in self.active:  # the same values are being tried right now
            active.trial.set_user_attr("reason", "the same values as another trial at work")
            study.study.tell(active.trial, state=study.states.FAIL)
            return
        self.active[key] = active
        chosen = ", ".join(f"{name}={_short(value)}" for name, value in active.trial.params.items())
        self.board.add(key, active.planned, f"{study.name}, trial {active.trial.number}: {chosen}")
        self.folder.write_spec(active.planned, evaluate=False)
        self.place.start(key)

    def _finish(self, key: str, reason: str | None) -> None:
        active = self.active.pop(key)
        study, values = active.study, self._values(active)
        if reason is None and not values:
            reason = "no epoch was finished"
        if reason is not None:
            active.trial.set_user_attr("reason", reason)
            study.study.tell(active.trial, state=study.states.FAIL)
        else:
            self._report(active, values)
            study.study.tell(active.trial, max(values))
        self.board.ended(key, reason)

    def _prune_if_poor(self, key: str) -> None:
        active = self.active[key]
        if not self._report(active, self._values(active)):
            return
        if active.trial.should_prune():
            self.place.stop(key)
            active.study.study.tell(active.trial, state=active.study.states.PRUNED)
            self.board.ended(key, None, "pruned")
            del self.active[key]

    def _values(self, active: _Active) -> list[float]:
        """The validation score after each epoch: what the training itself keeps its best epoch by."""
        names = ("val_mrr",) if active.planned.run.train.keep == "mrr" else ("val_ap", "val_auc")
        epochs = self.folder.history(active.planned.key)
        return [sum(epoch[name] for name in names) / len(names) for epoch in epochs]

    def _report(self, active: _Active, values: list[float]) -> bool:
        """Tell Optuna of new epochs; whether there were any."""
        new = list(enumerate(values))[active.reported :]
        for epoch, value in new:
            active.trial.report(value, epoch)
        active.reported = len(values)
        return bool(new)


def _storage(journal: Path) -> Any:
    """Optuna's journal file. What a killed process left of it is removed: half a line, and its lock."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    journal.parent.mkdir(parents=True, exist_ok=True)
    for lock in journal.parent.glob(f"{journal.name}.lock*"):
        lock.unlink(missing_ok=True)
    if journal.exists():
        content = journal.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with journal.open("r+b") as file:
                file.truncate(len(whole))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of features that are marked experimental
        return JournalStorage(JournalFileBackend(str(journal)))


def _plan_of(plan: Plan, best: tuple[Best, ...]) -> str:
    """A plan with the best settings: one model for each study, with the seeds of the plan."""
    seeds = sorted({run.run.seed for run in plan.runs})
    lines = [
        f"# The best settings that a search of '{plan.name}' found, chosen on validation.",
        f"title = {_toml(plan.title)}",
        f"seeds = {_toml(seeds)}",
    ]
    for each in best:
        run, stream = each.planned.run, each.planned.stream
        columns = {key: value for key, value in vars(stream.data).items() if value != vars(DataConfig())[key]}
        dataset = _toml({"name": stream.text, **columns} if columns and not stream.catalogued else stream.text)
        lines += [
            "",
            "[[models]]  # validation: " + f"{each.value:.2f} percent",
            f"name = {_toml(run.model)}",
            f"label = {_toml(f'{each.planned.label} on {stream.name}')}",
            f"preset = {_toml(run.preset)}",
            f"datasets = [{dataset}]",
            f"protocols = [{_toml(run.protocol)}]",
            f"settings = {_toml(dict(each.planned.settings))}",
        ]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it.

    >>> _toml({"train.lr": 1e-05, "model.name": "a", "train.final": True})
    '{"train.lr" = 1e-05, "model.name" = "a", "train.final" = true}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
