"""Epochs, early stopping, and a run folder from which a killed run goes on as if nothing had happened."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dsrd.config import EvaluateConfig, RunConfig, TrainConfig
from dsrd.errors import DsrdError
from dsrd.evaluate.evaluator import Progress, Task, catch_up, draw, measure, score_pass, silent
from dsrd.evaluate.protocol import Protocol, protocol
from dsrd.files import is_empty, leftovers, locked, write_json, write_text
from dsrd.graph.negatives import TrainingNegatives
from dsrd.models import GraphSpec, Snapshot, TemporalModel, create, settings
from dsrd.train import checkpoint
from dsrd.train.average import Average
from dsrd.train.loop import train_epoch


@dataclass
class Progressed:
    """How far a run has come; saved with every checkpoint."""

    epoch: int = 0  # epochs done
    best_epoch: int = 0
    best_ap: float = -1.0  # of the validation, percent
    best_auc: float = -1.0
    waited: int = 0  # epochs since the best
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Progressed:
        """What a checkpoint's note says; earlier versions also wrote whether the run was finished."""
        return cls(**{name: value for name, value in note["progressed"].items() if name != "finished"})

    def judge(self, ap: float, auc: float, keep: str = "both") -> bool:
        """As published, an epoch is better only if AP *and* AUC are at least as good as the kept ones."""
        if keep == "mean":
            better = ap + auc >= self.best_ap + self.best_auc
        else:
            better = ap >= self.best_ap and auc >= self.best_auc
        if better:
            self.best_epoch, self.best_ap, self.best_auc, self.waited = self.epoch, ap, auc, 0
        else:
            self.waited += 1
        return better

    def enough(self, train: TrainConfig) -> bool:
        """Whether patience, minutes or epochs have run out."""
        spent = sum(entry["seconds_with_validation"] for entry in self.history)
        late = train.minutes > 0 and spent >= 60 * train.minutes
        return late or self.waited >= train.patience or self.epoch >= train.epochs


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps itself: config.json, log.jsonl, best.safetensors, last.safetensors, record.json."""

    path: Path

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def record(self) -> Path:
        return self.path / "record.json"

    @contextmanager
    def claimed(self, run: RunConfig) -> Iterator[None]:
        """Make the folder this run's own while the block lasts.

        Refused: a folder of another run, one that holds something else, one another process is at work in.
        """
        if self.path.is_file():
            raise DsrdError(f"{self.path}: is a file; choose another --out")
        busy = f"{self.path}: another process is training in this folder; wait for it or choose another --out"
        with locked(self.path, busy):
            for file in leftovers(self.path):
                file.unlink(missing_ok=True)
            self._claim(run)
            yield

    def _claim(self, run: RunConfig) -> None:
        target = self.path / "config.json"
        if target.exists():
            if self.trains_on(run):
                self.record.unlink(missing_ok=True)  # first: beside the new limits it would pass for their record
                write_json(target, run.to_dict())
        elif not is_empty(self.path):
            raise DsrdError(f"{self.path}: is not empty and not a run; choose another --out")
        else:
            write_json(target, run.to_dict())

    def trains_on(self, run: RunConfig) -> bool:
        """Whether `run` is the one in here with a later end; one that differs in anything else is refused."""
        stored = self.config()
        longer = {name: getattr(run.train, name) for name in LIMITS if _reaches_further(name, run, stored)}
        extended = replace(stored, train=replace(stored.train, **longer))
        difference = _difference(extended.to_dict(), run.to_dict())
        if difference:
            raise DsrdError(
                f"{self.path}: holds a run with another {difference}; choose another --out or remove it"
            )
        return bool(longer)

    def config(self) -> RunConfig:
        target = self.path / "config.json"
        try:
            return RunConfig.from_dict(json.loads(target.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise DsrdError(f"{self.path}: not a run folder (no config.json); give what `--out` was") from None
        except NotADirectoryError:
            raise DsrdError(f"{self.path}: is a file; give the folder that `dsrd train --out` wrote") from None
        except (ValueError, TypeError, KeyError, DsrdError) as error:
            raise DsrdError(f"{target}: damaged ({error}); train again into a new folder") from None

    def progressed(self) -> Progressed:
        """How far the run has come, by its last checkpoint."""
        file = self.last if self.last.exists() else self.best
        with _checkpoint_faults(file):
            return Progressed.of(checkpoint.note(file))

    def log(self, history: list[dict[str, Any]]) -> None:
        write_text(self.path / "log.jsonl", "".join(json.dumps(line) + "\n" for line in history))


LIMITS = ("epochs", "patience", "minutes")  # of train: a run given more of them trains on


def _reaches_further(limit: str, run: RunConfig, stored: RunConfig) -> bool:
    """Whether a run may be given this limit instead of the one it has: 0, of minutes, is none."""
    new, old = (getattr(config.train, limit) or math.inf for config in (run, stored))
    return new > old


def _difference(stored: Mapping[str, Any], mine: Mapping[str, Any], prefix: str = "") -> str:
    """The first setting that differs, as one would write it after `--set`, and both values; empty if none does."""
    for key in dict.fromkeys([*mine, *stored]):
        old, new = stored.get(key), mine.get(key)
        if isinstance(new, Mapping) and isinstance(old, Mapping):
            inner = _difference(old, new, f"{key.removesuffix('_args')}.")
            if inner:
                return inner
        elif json.dumps(old, default=str) != json.dumps(new, default=str):
            return f"{prefix}{key} ({old}, not {new})"
    return ""


def build(run: RunConfig, task: Task, graph: GraphSpec | None = None) -> TemporalModel:
    """The run's model, freshly initialised from its seed and calibrated on the training events.

    `graph` is what it was built for when it was trained; without it, what the run asks for.
    """
    data = task.dataset
    config = settings(run.model, data.name, run.preset, run.model_args)
    for name, value in asdict(config).items():
        if isinstance(value, int | float) and not 0 <= value < math.inf:
            raise DsrdError(f"model.{name}={value}: give 0 or more")
    torch.manual_seed(run.seed)
    spec = graph or GraphSpec(
        num_nodes=data.num_nodes,
        node_dim=data.node_dim,
        edge_dim=data.edge_dim,
        whole_moments=protocol(run.protocol).strict,
    )
    try:
        model = create(run.model, spec, config)
    except (ValueError, RuntimeError, ArithmeticError) as error:
        raise DsrdError(f"{run.model}: {_reason(error)}; correct --set model.*, see `dsrd models`") from error
    model.calibrate(task.split.train)
    try:
        return model.to(run.train.device)
    except (RuntimeError, AssertionError) as error:
        device = run.train.device
        raise DsrdError(f"train.device={device}: {_reason(error)}; use cpu, or cuda where there is one") from error


class Fit:
    """Training of one model; `folder=None` keeps everything in memory."""

    def __init__(self, run: RunConfig, task: Task, folder: RunFolder | None = None) -> None:
        self.run, self.task, self.folder = run, task, folder
        self.rules: Protocol = protocol(run.protocol)
        begun = built_for(folder.last) if folder is not None and folder.last.exists() else None
        self.model = build(run, task, begun)
        weights = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = (
            torch.optim.Adam(weights, lr=run.train.lr, weight_decay=run.train.weight_decay) if weights else None
        )
        self.average = Average(self.model, run.train.average)
        self.negatives = TrainingNegatives(task.split.train, run.seed)
        selection = EvaluateConfig(batch_size=run.evaluate.batch_size, order=run.evaluate.order)
        self.validation = draw(task.passes["val"], self.rules, selection, strategies=("random",))
        self.progressed = Progressed()
        self.best: tuple[dict[str, Tensor], Snapshot] | None = None

    def __call__(self, progress: Progress = silent) -> Progressed:
        """Train to the end (or go on from the last checkpoint), then take up the best weights and their state."""
        if self.folder is not None and self.folder.last.exists():
            self._resume()
        while not self._finished():
            self._epoch(progress)
        weights, state = self._best()
        _load_weights(self.model, weights, self.folder.best if self.folder else None)
        self.model.state.restore(state)
        return self.progressed

    def _finished(self) -> bool:
        if self.optimizer is None:  # one pass shows all there is to observe
            return self.progressed.epoch > 0
        return self.progressed.enough(self.run.train)

    def _epoch(self, progress: Progress) -> None:
        run, model, done = self.run, self.model, self.progressed
        began = time.perf_counter()
        past = self.task.train_past.redrawn(run.seed).redrawn(done.epoch).to(model.device)
        loss = train_epoch(
            model,
            self.task.split.train,
            past,
            self.negatives,
            self.optimizer,
            self.rules,
            run.train.batch_size,
            lambda what, at, total: progress(f"{self._label()} {what}", at, total),
            self.average.update,
        )
        if not math.isfinite(loss):
            raise DsrdError(
                f"epoch {done.epoch + 1}: training diverged, the loss is {loss}; "
                f"lower train.lr, which is {run.train.lr}"
            )
        seconds = time.perf_counter() - began
        trained = model.state.snapshot()
        with self.average.in_place():
            ap, auc = self._validate(progress)
            learned = model.learned()  # of the weights that were judged
            done.epoch += 1
            if done.judge(ap, auc, run.train.keep):
                self._keep(trained)
        line: dict[str, Any] = {
            "epoch": done.epoch,
            "loss": loss,
            "val_ap": ap,
            "val_auc": auc,
            "seconds": seconds,
        }
        line |= {"learned": learned} if learned else {}
        line["seconds_with_validation"] = time.perf_counter() - began
        done.history.append(line)
        self._checkpoint()

    def _validate(self, progress: Progress) -> tuple[float, float]:
        """AP and AUC on the validation events, random negatives: what early stopping looks at.

        Under `strict` a model that is not exact takes these events in batches that end between timestamps: it
        lags, it does not leak, and an epoch does not take longer to judge than to train.
        """
        past = self.task.full_past.to(self.model.device)
        size = self.run.evaluate.batch_size
        label = f"{self._label()} validation"
        catch_up(self.model, self.task, self.rules, self.run.evaluate)
        scores = score_pass(
            self.model,
            self.validation,
            past,
            self.rules.lagging(),
            size,
            lambda _, at, total: progress(label, at, total),
        )
        found = measure(self.validation, scores)["random"]
        return found["ap"], found["auc"]

    def _label(self) -> str:
        return f"epoch {self.progressed.epoch + 1}/{self.run.train.epochs}"

    def _keep(self, trained: Snapshot) -> None:
        weights = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        if self.folder is None:
            self.best = (weights, trained)
        else:
            checkpoint.save(self.folder.best, {"weights": weights, "state": trained}, self._note())

    def _best(self) -> tuple[dict[str, Tensor], Snapshot]:
        if self.best is None:
            assert self.folder is not None
            groups, note = checkpoint.load(self.folder.best)
            check_note(self.folder.best, note, self.run.model, self.task)
            self.best = (groups.get("weights", {}), groups.get("state", {}))
        return self.best

    def _note(self) -> dict[str, Any]:
        return {
            "model": self.run.model,
            "run": self.run.digest,
            "data": self.task.dataset.digest,
            "graph": asdict(self.model.graph),
            "progressed": asdict(self.progressed),
        }

    def _checkpoint(self) -> None:
        if self.folder is None:
            return
        groups: dict[str, Mapping[str, Tensor]] = {
            "weights": self.model.state_dict(),
            "rng": {"torch": torch.get_rng_state()},
            "negatives": self.negatives.state(),
        }
        if self.optimizer:
            groups["optimizer"] = checkpoint.optimizer_tensors(self.optimizer)
            groups["average"] = self.average.state()
        checkpoint.save(self.folder.last, groups, self._note())
        self.folder.log(self.progressed.history)

    def _resume(self) -> None:
        assert self.folder is not None
        groups, note = checkpoint.load(self.folder.last)
        check_note(self.folder.last, note, self.run.model, self.task)
        _load_weights(self.model, groups.get("weights", {}), self.folder.last)
        with _checkpoint_faults(self.folder.last):
            if self.optimizer:
                checkpoint.restore_optimizer(self.optimizer, groups["optimizer"])
                self.average.restore(groups["average"])
            self.negatives.restore(groups["negatives"])
            torch.set_rng_state(groups["rng"]["torch"])
            self.progressed = Progressed.of(note)


def check_note(path: Path, note: Mapping[str, Any], model: str, task: Task) -> None:
    """Refuse a checkpoint that another model wrote, or that was trained on other data."""
    with _checkpoint_faults(path):
        wrote, data = note["model"], note["data"]
    if wrote != model:
        raise DsrdError(f"{path}: holds a {wrote}, not a {model}; give the folder of a {model} run")
    check_data(path, data, task)


def check_data(path: Path, digest: str, task: Task) -> None:
    """Refuse what was trained on other data."""
    if digest != task.dataset.digest:
        raise DsrdError(
            f"{path}: was trained on other data (digest {digest}) than '{task.dataset.name}' here "
            f"({task.dataset.digest}); give the data set it was trained on, or train again into a new folder"
        )


@contextmanager
def _checkpoint_faults(path: Path) -> Iterator[None]:
    """Whatever a checkpoint lacks is an error that names it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise DsrdError(f"{path}: lacks something or does not fit ({_reason(error)}); train again") from error


def built_for(path: Path) -> GraphSpec:
    """What the model of a checkpoint was built for."""
    with _checkpoint_faults(path):
        return GraphSpec(**checkpoint.note(path)["graph"])


def _load_weights(model: TemporalModel, weights: Mapping[str, Tensor], path: Path | None) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise DsrdError(f"{path}: does not fit the model's settings ({reason}); train again") from error


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def load_model(folder: RunFolder, run: RunConfig, task: Task) -> TemporalModel:
    """The best weights of a finished or unfinished run, and the state right after training."""
    groups, note = checkpoint.load(folder.best)
    check_note(folder.best, note, run.model, task)
    model = build(run, task, built_for(folder.best))
    _load_weights(model, groups.get("weights", {}), folder.best)
    model.state.restore(groups.get("state", {}))
    return model
