"""`LinkPredictor`: fit, evaluate, predict, observe, save. The command line uses nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsrd.config import RunConfig
from dsrd.data.growing import Arrival, Late
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.estimator.fitted import Fitted, opened, same_stream
from dsrd.estimator.fitting import Callbacks, clock_notes, measure_run, train_run
from dsrd.estimator.later_events import measured_ahead
from dsrd.estimator.names import Names, as_names, asked_pairs, moment
from dsrd.estimator.results import Results
from dsrd.estimator.surprise import percentiles, recent_surprises, surprises
from dsrd.estimator.tables import Table, given_table
from dsrd.evaluate.protocol import protocol as protocol_called
from dsrd.evaluate.task import Task
from dsrd.files import write_json
from dsrd.models import DEFAULT, TemporalModel, configured, full_names
from dsrd.reporter import Reporter
from dsrd.train.build import build
from dsrd.train.run_folder import RunFolder

Shown = bool | Reporter
"""Whether progress is shown, or by whom."""


class LinkPredictor:
    """Predicts who meets whom next in a stream of events, and goes on as the stream does.

    >>> stream = load("synth:events=600")
    >>> model = LinkPredictor(epochs=1, dim=8, seed=1).fit(stream, progress=False)
    >>> model.partners(3, k=2, progress=False).columns
    ['source', 'target', 'probability', 'known']
    >>> model.get_params()["epochs"]
    1
    """

    def __init__(
        self,
        model: str = DEFAULT,
        *,
        preset: str = "published",
        protocol: str | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        """Settings are those of training, evaluation and the model, by name: `epochs=5, dim=64`.

        A name that occurs twice is written with its part: `train__batch_size=100`. The protocol is `strict`
        unless said, `dyglib` for a data set of the catalogue.
        """
        self._params = {"model": model, "preset": preset, "protocol": protocol, "seed": seed, **settings}
        self._given = full_names(model, settings)
        if protocol is not None:
            protocol_called(protocol)
        chosen = {"preset": preset, "seed": seed}
        self._base = configured(RunConfig(dataset="", model=model), {**chosen, **self._given})
        self._fitted: Fitted | None = None

    # As in scikit-learn.

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What the constructor was given."""
        return dict(self._params)

    def set_params(self, **params: Any) -> LinkPredictor:
        """Change what the constructor was given; a fitted model has to be fitted again."""
        self.__init__(**{**self._params, **params})  # type: ignore[misc]
        return self

    def clone(self) -> LinkPredictor:
        """A new, unfitted model with the same parameters."""
        return type(self)(**self._params)

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._params.items() if value != _DEFAULTS.get(name, ...)}
        return f"LinkPredictor({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    @property
    def fitted(self) -> Fitted:
        """The run behind this model; an error before there is one."""
        if self._fitted is None:
            raise DsrdError("this model is not fitted; call fit(stream) or dsrd.open(folder) first")
        return self._fitted

    @property
    def run(self) -> RunConfig:
        """Every setting of the fitted run."""
        return self.fitted.run

    @property
    def module(self) -> TemporalModel:
        """The torch module that predicts."""
        return self.fitted.online.model

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, in the order of `embed()`."""
        stream = self.fitted.online.stream
        return [stream.name(node) for node in range(1, stream.num_nodes)]

    def run_for(self, stream: Any, *, final: bool | None = None) -> RunConfig:
        """All settings of the run that `fit` would make of a stream."""
        dataset = load(stream)
        run = replace(
            self._base,
            dataset=dataset.name,
            protocol=self._params["protocol"] or ("dyglib" if dataset.catalogued else "strict"),
            data=dataset.columns,
        )
        if "evaluate.order" not in self._given and not dataset.catalogued:
            run = run.with_overrides({"evaluate.order": "fast"})  # the published order needs all pairs in memory
        return run if final is None else run.with_overrides({"train.final": final})

    def fit(
        self,
        stream: Any,
        *,
        folder: str | Path | None = None,
        final: bool | None = None,
        history: bool = True,
        on_epoch: Callbacks = (),
        progress: Shown = True,
    ) -> LinkPredictor:
        """Train on a stream: a `Dataset`, or what `dsrd.load` takes with the usual column names.

        With a folder the run is kept there as it goes, and goes on there after a kill; without `history` the
        events themselves are not kept. `final` trains once more on all events, for as many epochs as were best on
        validation. `on_epoch` is called with (epoch, metrics) after every epoch.
        """
        dataset = load(stream)
        run = self.run_for(dataset, final=final)
        with _shown(progress) as report:
            report.note(*dataset.notes)
            task = Task.of(dataset)
            report.note(*clock_notes(build(run, dataset, task.split.train), run, dataset))
            if folder is None:
                self._fitted = train_run(run, task, None, on_epoch, report)
                return self
            target = RunFolder(Path(folder))
            with target.claimed(run):
                known = same_stream(target, dataset, report.note)
                if target.record.exists() and target.best.exists():
                    report.note(f"{target.path}: this run is complete")
                    self._fitted = opened(target, None if target.has_history else dataset)
                    return self
                if history and not target.has_history:
                    target.write_history(known)
                task = task if known is dataset else Task.of(known)
                self._fitted = train_run(run, task, target, on_epoch, report)
                self._fitted.write_now(target, history=target.has_history)
        return self

    def evaluate(
        self,
        events: Any = None,
        *,
        protocol: str | None = None,
        head: str | None = None,
        progress: Shown = True,
        **settings: Any,
    ) -> Results:
        """Measure on the test part of the stream it was fitted on, beside the rules that learn nothing.

        With `events`, on those: events that follow everything known, each asked about before it is taken in. The
        model and its state stay as they are. Settings are those of evaluation: `negatives`, `candidates`, ...
        """
        fitted, run = self.fitted, self._evaluated_as(protocol, head, settings)
        with _shown(progress) as report:
            if events is not None:
                return Results(measured_ahead(run, fitted, self._arrival(events, "refuse"), report))
            if run == fitted.run and fitted.record is not None:
                return Results(fitted.record)
            record = measure_run(run, fitted, report)
        if run == fitted.run:
            fitted.record = record
            if fitted.folder is not None:
                write_json(RunFolder(fitted.folder).record, record)
        else:
            record["trained"] = {"protocol": fitted.run.protocol, "config": fitted.run.digest}
        return Results(record)

    def _evaluated_as(self, protocol: str | None, head: str | None, settings: Mapping[str, Any]) -> RunConfig:
        """The run, measured as asked for."""
        given = full_names(self.run.model, settings)
        for key in given:
            if not key.startswith("evaluate."):
                raise DsrdError(f"{key}: a trained run keeps its settings; only those of evaluate can change here")
        if head is not None:
            given["evaluate.head"] = self.module.head_called(head)
        if protocol is not None:
            protocol_called(protocol)
        return replace(self.run, protocol=protocol or self.run.protocol).with_overrides(given)

    def predict(
        self,
        pairs: Any,
        at: Any = None,
        *,
        head: str | None = None,
        strict_names: bool = False,
        progress: Shown = False,
    ) -> Any:
        """The probability that each pair is a true event at its time, rather than one with a random target.

        `pairs` is a list of tuples, a frame or the path of a file; columns are called as in the stream, and come
        back with `probability` and `known` (whether both names have been seen) added. The time is the table's
        own, `at`, or the moment after the last event. With `strict_names` an unknown name is an error.
        """
        online, asked = self.fitted.online, self.module.head_called(head)
        given = given_table(pairs, self._column_names, "pairs")
        names = Names(online.stream, strict_names)
        query, known = asked_pairs(given, online.stream, names, moment(at, online.stream))
        with _shown(progress) as report:
            report.note(*names.note(), *self._early_note(query.time.numpy()))
            scores = online.score(query, asked, report)
        return given.with_columns({"probability": scores.numpy(), "known": known})

    def partners(
        self,
        nodes: Any,
        k: int = 10,
        at: Any = None,
        *,
        head: str | None = None,
        strict_names: bool = False,
        progress: Shown = False,
    ) -> Table:
        """The k likeliest targets of each node at a time, likeliest first, among all who were a target by then."""
        online, asked = self.fitted.online, self.module.head_called(head)
        time, names = moment(at, online.stream), Names(online.stream, strict_names)
        source, target, when = self._column_names
        found: dict[str, list[Any]] = {source: [], target: [], "probability": [], "known": []}
        ids = [names.id(name) for name in as_names(nodes)]
        with _shown(progress) as report:
            report.note(*names.note(), *self._early_note(np.array([] if time is None else [time])))
            for name, (node, known) in zip(as_names(nodes), ids, strict=True):
                best, scores = online.partners(node, k, time, asked, report)
                found[source] += [name] * len(best)
                found[target] += [online.stream.name(each) for each in best.tolist()]
                found["probability"] += scores.tolist()
                found["known"] += [known] * len(best)
        if at is not None:
            found[when] = [str(at)] * len(found[source])
        return Table(found)

    def surprise(self, events: Any, *, head: str | None = None, progress: Shown = False) -> Any:
        """How unexpected each of the events to come is, knowing everything before it.

        Their table comes back with `surprise` (bits: minus log2 of the chance that the source turns to this
        target), `percentile` (share of recent events that were less surprising) and `known` added.
        """
        online, asked = self.fitted.online, self.module.head_called(head)
        given = given_table(events, self._column_names, "events")
        arrival = online.stream.arrival(given.table, given.origin)
        if arrival.skipped:
            raise given.origin.error(
                f"the first {arrival.skipped:,} events are known already; give those that follow"
            )
        with _shown(progress) as report:
            bits, recent = surprises(online, arrival, asked, report), self._recent_surprises(asked, report)
        back = np.argsort(arrival.row)  # events are in the order of time, the table in its own
        columns = {"surprise": bits.numpy(), "percentile": percentiles(bits, recent), "known": arrival.known}
        return given.with_columns({name: values[back] for name, values in columns.items()})

    def _recent_surprises(self, head: str, report: Reporter) -> torch.Tensor:
        """Those of the latest events, worked out again when as many new ones have come."""
        online = self.fitted.online
        bits, after = self.fitted.recent.get(head, (None, 0))
        if bits is None or online.stream.num_events - after >= len(bits):
            bits = recent_surprises(online, head, report)
            self.fitted.recent[head] = (bits, online.stream.num_events)
        return bits

    def observe(self, events: Any, *, late: Late = "refuse", progress: Shown = False) -> LinkPredictor:
        """Take in events that follow: new nodes, new events. They may begin with all that is known already.

        `late` says what happens to events older than the newest one known: `refuse`, `drop`, or `now`.
        """
        arrival = self._arrival(events, late)
        with _shown(progress) as report:
            if arrival.skipped:
                report.note(f"{arrival.skipped:,} events were known already")
            if arrival.late:
                report.note(
                    f"{arrival.late:,} late events {'left out' if late == 'drop' else 'taken as happening now'}"
                )
            self.fitted.online.observe(arrival, report)
        return self

    def _arrival(self, events: Any, late: Late) -> Arrival:
        given = given_table(events, self._column_names, "events")
        return self.fitted.online.stream.arrival(given.table, given.origin, late)

    def embed(
        self, nodes: Any = None, at: Any = None, *, head: str | None = None, progress: Shown = False
    ) -> NDArray[np.float32]:
        """A vector for each node (all of them, in the order of `nodes`, if none are named) at a time.  # [n, d]

        The vectors are the same for every head.
        """
        online = self.fitted.online
        self.module.head_called(head)
        time, names = moment(at, online.stream), Names(online.stream, strict=True)
        if nodes is None:
            ids = torch.arange(1, online.stream.num_nodes)
        else:
            ids = torch.tensor([names.id(name)[0] for name in as_names(nodes)])
        with _shown(progress) as report:
            report.note(*self._early_note(np.array([] if time is None else [time])))
            return online.embed(ids, time, report).numpy()

    def save(self, folder: str | Path | None = None, *, history: bool = True, overwrite: bool = False) -> Path:
        """Write the run into a folder from which `dsrd.open` takes it up: anywhere, without the original file.

        Without a folder it is written where it came from. Without `history` the events are left out; the stream
        then has to be given again when it is opened.
        """
        target = self.fitted.folder if folder is None else Path(folder)
        if target is None:
            raise DsrdError("save: this model came from no folder; say where to save it")
        return self.fitted.write(RunFolder(target), history=history, overwrite=overwrite)

    @property
    def _column_names(self) -> tuple[str, str, str]:
        columns = self.fitted.online.stream.columns
        return columns.source, columns.target, columns.time

    def _early_note(self, time: NDArray[np.float64]) -> list[str]:
        """Weights cannot forget: a question about the time of training is answered by what came after."""
        early = int((time <= self.fitted.trained_until()).sum()) if self.module.num_parameters else 0
        return (
            [f"{early:,} questions lie in the time of training: the weights know what came after"] if early else []
        )


_DEFAULTS = {"model": DEFAULT, "preset": "published", "protocol": None, "seed": 0}


@contextmanager
def _shown(progress: Shown) -> Iterator[Reporter]:
    """A reporter of one's own, or the one that was given."""
    if isinstance(progress, Reporter):
        yield progress
    else:
        with Reporter(show=progress) as report:
            yield report


def open_run(folder: str | Path, stream: Any = None, *, data_dir: str | Path | None = None) -> LinkPredictor:
    """Take up a run that was trained into a folder or saved there.

    `stream` is needed for a run that was saved without its events.
    """
    fitted = opened(RunFolder(Path(folder)), stream, data_dir)
    model = LinkPredictor(**_params_of(fitted.run))
    model._fitted = fitted
    return model


def _params_of(run: RunConfig) -> dict[str, Any]:
    """What the constructor would have to be given for this run."""
    usual = configured(RunConfig(dataset="", model=run.model, preset=run.preset), {})
    changed = {
        f"{part}__{name}": value
        for part in ("train", "evaluate")
        for name, value in vars(getattr(run, part)).items()
        if value != getattr(getattr(usual, part), name)
    }
    own = {f"model__{name}": value for name, value in run.model_args.items()}
    fixed = {"model": run.model, "preset": run.preset, "protocol": run.protocol, "seed": run.seed}
    return {**fixed, **changed, **own}
