"""`LinkPredictor`: fit, evaluate, predict, observe, save. The command line is built on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dsrd.config import RunConfig
from dsrd.data.growing import Late
from dsrd.data.read import load
from dsrd.errors import DsrdError
from dsrd.estimator.answers import best_partners
from dsrd.estimator.batch_scoring import FileJob, PairScorer, early_notes, score_file
from dsrd.estimator.fitted import Callbacks, Fitted, open_folder, params_of
from dsrd.estimator.fitting import Where, fitted
from dsrd.estimator.later_events import evaluate_later_events
from dsrd.estimator.queries import NodeIds, as_names, time_of, upcoming
from dsrd.estimator.ranking import is_retrieved, shortlist_for
from dsrd.estimator.ray_scoring import score_file_on_ray
from dsrd.estimator.results import Results
from dsrd.estimator.surprise import percentiles, surprises
from dsrd.estimator.tables import Table, answer_name, input_table, with_answers
from dsrd.models import DEFAULT, TemporalModel, configured, full_names
from dsrd.reporter import Reporter, reporting
from dsrd.train.run_folder import RunFolder

RETRIEVED = "ranked the {:,} of {:,} targets that a first score put in front; ask for exact answers to rank all"
Shown = bool | Reporter
"""Whether to show progress, or the reporter that shows it."""


class LinkPredictor:
    """Predicts which nodes interact next in a stream of events, and learns of new events as they arrive.

    A fitted model may be asked, and given events, from several threads: see `OnlineModel`.

    >>> stream = load("synth:events=600")
    >>> model = LinkPredictor(epochs=1, dim=8, seed=1).fit(stream, progress=False)
    >>> model.partners(3, k=2, progress=False).columns
    ['source', 'target', 'probability', 'partner', 'rate', 'surprise', 'known']
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
        """`settings` are those of training, evaluation and the model, by name: `epochs=5, dim=64`.

        If two parts have a setting of that name, write the part too: `train__batch_size=100`. The default protocol
        is `strict`; for a data set of the catalogue or of TGB it is `dyglib`.
        """
        self._params = {"model": model, "preset": preset, "protocol": protocol, "seed": seed, **settings}
        self._settings = full_names(model, settings)
        run = RunConfig(dataset="", model=model, protocol="strict" if protocol is None else protocol)
        self._base = configured(run, {"preset": preset, "seed": seed, **self._settings})
        self._fitted: Fitted | None = None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor, as in scikit-learn."""
        return dict(self._params)

    def set_params(self, **params: Any) -> LinkPredictor:
        """Change arguments of the constructor; a fitted model has to be fitted again."""
        self.__init__(**{**self._params, **params})  # type: ignore[misc]
        return self

    def clone(self) -> LinkPredictor:
        """A new, unfitted model with the same arguments."""
        return type(self)(**self._params)

    def __repr__(self) -> str:
        shown = {name: value for name, value in self._params.items() if value != _DEFAULTS.get(name, ...)}
        return f"LinkPredictor({', '.join(f'{name}={value!r}' for name, value in shown.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return self._fitted is not None

    @property
    def fitted(self) -> Fitted:
        """The fitted run of this model; an error before `fit`."""
        if self._fitted is None:
            raise DsrdError("this model is not fitted; call fit(stream) or dsrd.open(folder) first")
        return self._fitted

    @property
    def run(self) -> RunConfig:
        """All settings of the fitted run."""
        return self.fitted.run

    @property
    def module(self) -> TemporalModel:
        """The torch module that predicts."""
        return self.fitted.online.model

    @property
    def nodes(self) -> list[str]:
        """The names of all nodes, in the order of `embed()`."""
        online = self.fitted.online
        with online.lock.shared():
            return [online.stream.name(node) for node in range(1, online.stream.num_nodes)]

    def run_for(self, stream: Any, *, final: bool | None = None) -> RunConfig:
        """The settings with which `fit` would train on a stream."""
        dataset = load(stream)
        run = replace(
            self._base,
            dataset=dataset.name,
            protocol=self._params["protocol"] or ("dyglib" if dataset.published else "strict"),
            data=dataset.columns,
        )
        if "evaluate.order" not in self._settings and not dataset.catalogued:
            # the published order needs all possible pairs in memory
            run = run.with_overrides({"evaluate.order": "fast"})
        return run if final is None else run.with_overrides({"train.final": final})

    def fit(
        self,
        stream: Any,
        *,
        folder: str | Path | None = None,
        final: bool | None = None,
        history: bool = True,
        ray: str | None = None,
        on_epoch: Callbacks = (),
        progress: Shown = True,
    ) -> LinkPredictor:
        """Train on a stream: a `Dataset`, or anything `dsrd.load` accepts with the default column names.

        With a folder, the run is saved there after every epoch and continues from there after a kill; without
        `history` the events are not saved. `final` trains once more on all events, for the number of epochs that
        was best on validation. `on_epoch` is called with (epoch, metrics) after every epoch.

        A model made with `workers=N` is trained by N processes that share every batch: processes of this machine,
        or workers of the Ray cluster at the address `ray` (`local`: one started here). In a script that `torchrun`
        started with as many processes, it is these.
        """
        dataset = load(stream)
        run = self.run_for(dataset, final=final)
        where = Where(None if folder is None else Path(folder), history, ray)
        with reporting(progress) as report:
            report.note(*dataset.notes)
            self._fitted = fitted(run, dataset, where, on_epoch, report.note)
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
        """Evaluate on the test part of the stream, next to the rules that learn nothing.

        With `events`, evaluate on those: they must follow the stream, and each is scored before it is observed.
        The model and its state do not change. `settings` are those of evaluation: `questions=True`, ...
        """
        fitted, run = self.fitted, self._evaluation_run(protocol, head, settings)
        table = None if events is None else input_table(events, self._column_names, "events")
        with fitted.online.lock.alone(), reporting(progress):
            if table is not None:
                arrival = fitted.online.stream.arrival(table.table, table.origin)
                return Results(evaluate_later_events(run, fitted, arrival))
            if run == fitted.run and fitted.record is not None:
                return Results(fitted.record)
            record = fitted.evaluate(run)
            if run == fitted.run:
                fitted.record = record
                if fitted.folder is not None:
                    RunFolder(fitted.folder).write_record(record)
        if run != fitted.run:
            record["trained"] = {"protocol": fitted.run.protocol, "config": fitted.run.digest}
        return Results(record)

    def _evaluation_run(self, protocol: str | None, head: str | None, settings: Mapping[str, Any]) -> RunConfig:
        """The run with other settings of evaluation."""
        changes = full_names(self.run.model, settings)
        for key in changes:
            if not key.startswith("evaluate."):
                raise DsrdError(f"{key}: a trained run keeps its settings; only those of evaluate can change here")
        if head is not None:
            changes["evaluate.head"] = self.module.head_called(head)
        return replace(self.run, protocol=protocol or self.run.protocol).with_overrides(changes)

    def predict(
        self,
        pairs: Any,
        at: Any = None,
        *,
        head: str | None = None,
        strict_names: bool = False,
        progress: Shown = False,
    ) -> Any:
        """What the model says about each pair at its time, from everything before it.

        `pairs` is a list of tuples, a frame or the path of a file, with the column names of the stream. The time
        is that of the table, `at`, or the first time after the last event. The result has the columns of `pairs`,

        * `probability`: that the pair is a true event, and not one with a random target (by `head="pair"`: and not
          a random pair);
        * `partner`: that the source chooses this target, given that the source acts;
        * `rate`: expected events of this pair per day if times are dates, otherwise per unit of the time column;
        * `surprise`: in bits, -log2 of the probability of this pair, given that an event happens;
        * `known`: whether both names occur in the stream; with `strict_names` unknown ones are errors.

        A model without an intensity (`has_intensity`) does not know when sources act: there is no `rate`, and
        `surprise` is -log2 of `partner`.
        """
        table = input_table(pairs, self._column_names, "pairs")
        scorer = PairScorer(self.fitted, at, head, strict_names)
        with reporting(progress) as report:
            answered = scorer.answered(table)
            report.note(*scorer.notes())
        return answered

    def predict_file(
        self,
        pairs: str | Path,
        out: str | Path,
        at: Any = None,
        *,
        head: str | None = None,
        strict_names: bool = False,
        ray: str | None = None,
        progress: Shown = True,
    ) -> int:
        """`predict` for files of any length: Parquet or CSV in, Parquet or CSV out; returns the number of rows.

        Rows are read, answered and written a piece at a time. With `ray`, the address of a cluster or `local`, all
        its processors answer them; this model must then be saved in a folder that all machines see. `out` is a
        file or, with `ray`, also a folder for one Parquet file per piece.
        """
        job = FileJob(Path(pairs), Path(out), at, self.module.head_called(head), strict_names)
        with reporting(progress) as report:
            if ray is not None:
                return score_file_on_ray(self.fitted, job, ray)
            return score_file(self.fitted, job, report.note)

    def partners(
        self,
        nodes: Any,
        k: int = 10,
        at: Any = None,
        *,
        head: str | None = None,
        exact: bool = False,
        strict_names: bool = False,
        progress: Shown = False,
    ) -> Table:
        """The k most likely targets of each node at a time, best first. Candidates are all targets before it.

        The columns are those of `predict`; `partner` adds up to 1 over all candidates. With thousands of them a
        model that can (`has_first_features`) retrieves by a cheap first score, scores the best few hundred and
        estimates the sum of the rest; a note says so. `exact` scores all.
        """
        online, head_name = self.fitted.online, self.module.head_called(head)
        sources, (source, target, time_column) = as_names(nodes), self._column_names

        def answer() -> Table:
            time, node_ids = time_of(at, online.stream), NodeIds(online.stream, strict_names)
            columns: dict[str, list[Any]] = {source: [], target: []}
            ids = {name: node_ids.find(name) for name in sources}
            early = np.array([] if time is None else [time])
            online.settle(torch.from_numpy(early))
            with reporting(progress) as report:
                num_targets = len(online.targets(online.after_last if time is None else time))
                retrieved = is_retrieved(self.module, num_targets, k, exact)
                report.note(*node_ids.notes(), *early_notes(self.fitted, early))
                report.note(*[RETRIEVED.format(shortlist_for(k), num_targets)] * retrieved)
                for name in sources:
                    node, known = ids[name]
                    best, answers = best_partners(online, node, k, time, head_name, exact)
                    columns[source] += [name] * len(best)
                    columns[target] += [online.stream.name(each) for each in best.tolist()]
                    for column, values in {**answers.columns(), "known": np.full(len(best), known)}.items():
                        columns.setdefault(answer_name(column, self._column_names), []).extend(values.tolist())
            if at is not None:
                columns[time_column] = [str(at)] * len(columns[source])
            return Table(columns)

        return online.lock.run(answer)

    def surprise(self, events: Any, *, head: str | None = None, progress: Shown = False) -> Any:
        """How surprising each upcoming event is, given everything before it.

        The result has the columns of `events` and `surprise` (bits: minus log2 of the probability of this pair,
        given that an event happens), its two parts `source_bits` (this source acts) and `partner_bits` (it chooses
        this target), `percentile` (share of recent events that were less surprising) and `known`. For a model
        without an intensity `surprise` is the second part, by `head`.
        """
        online, head_name = self.fitted.online, self.module.head_called(head)
        table = input_table(events, self._column_names, "events")
        with online.lock.alone(), reporting(progress) as report:
            arrival = upcoming(table, online.stream)
            bits = surprises(online, arrival, head_name)  # [E, 2]
            total, recent = bits.sum(dim=1), self.fitted.recent_surprises(head_name)
            columns: dict[str, NDArray[Any]] = {"surprise": total.numpy()}
            if self.module.has_intensity:
                columns |= {"source_bits": bits[:, 0].numpy(), "partner_bits": bits[:, 1].numpy()}
            columns |= {"percentile": percentiles(total, recent), "known": arrival.known}
            table_order = np.argsort(arrival.row)  # events are sorted by time, the table may not be
            in_order = {name: values[table_order] for name, values in columns.items()}
            return with_answers(table, in_order, self._column_names, report.note)

    def observe(self, events: Any, *, late: Late = "refuse", progress: Shown = False) -> LinkPredictor:
        """Observe events that follow the stream. The table may start with all events of the stream so far.

        `late` decides about events older than the last one of the stream: `refuse`, `drop`, or `now`.
        """
        table, online = input_table(events, self._column_names, "events"), self.fitted.online
        with online.lock.alone(), reporting(progress) as report:
            arrival = online.stream.arrival(table.table, table.origin, late)
            if arrival.skipped:
                report.note(f"{arrival.skipped:,} events were known already")
            if arrival.late:
                report.note(
                    f"{arrival.late:,} late events {'left out' if late == 'drop' else 'taken as happening now'}"
                )
            online.observe(arrival)
        return self

    def embed(
        self, nodes: Any = None, at: Any = None, *, head: str | None = None, progress: Shown = False
    ) -> NDArray[np.float32]:
        """A vector for each node at a time; without `nodes`, for all in the order of `self.nodes`.  # [n, d]

        The vectors are the same for every head.
        """
        online, names = self.fitted.online, None if nodes is None else as_names(nodes)
        self.module.head_called(head)

        def answer() -> NDArray[np.float32]:
            time, node_ids = time_of(at, online.stream), NodeIds(online.stream, strict=True)
            if names is None:
                ids = torch.arange(1, online.stream.num_nodes)
            else:
                ids = torch.tensor([node_ids.find(name)[0] for name in names])
            early = np.array([] if time is None else [time])
            online.settle(torch.from_numpy(early))
            with reporting(progress) as report:
                report.note(*early_notes(self.fitted, early))
                return online.embed(ids, time).numpy()

        return online.lock.run(answer)

    def save(self, folder: str | Path | None = None, *, history: bool = True, overwrite: bool = False) -> Path:
        """Save the run to a folder that `dsrd.open` can open anywhere, without the original data.

        Without `folder` the run is saved where it came from. Without `history` the events are left out; the stream
        is then needed again to open it.
        """
        target = self.fitted.folder if folder is None else Path(folder)
        if target is None:
            raise DsrdError("save: this model came from no folder; say where to save it")
        with self.fitted.online.lock.alone():
            return self.fitted.save(RunFolder(target), history=history, overwrite=overwrite)

    @property
    def _column_names(self) -> tuple[str, str, str]:
        columns = self.fitted.online.stream.columns
        return columns.source, columns.target, columns.time


_DEFAULTS = {"model": DEFAULT, "preset": "published", "protocol": None, "seed": 0}


def open_run(folder: str | Path, stream: Any = None, *, data_dir: str | Path | None = None) -> LinkPredictor:
    """Open a run that was trained in a folder or saved there.

    `stream` is needed for a run that was saved without its events.
    """
    fitted = open_folder(RunFolder(Path(folder)), stream, data_dir)
    model = LinkPredictor(**params_of(fitted.run))
    model._fitted = fitted
    return model
