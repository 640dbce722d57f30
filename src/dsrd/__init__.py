"""Learning on dynamic graphs: streams of timestamped interactions, measured by one protocol.

>>> import dsrd
>>> data = dsrd.synth(dsrd.SynthConfig(events=1000))  # or dsrd.load("calls.csv"), dsrd.load(frame)
>>> task = dsrd.Task.of(data)  # split in time, indexed, ready to be learned and measured
>>> run = dsrd.RunConfig(dataset=data.name, model="graphmixer", protocol="strict")
>>> fit = dsrd.Fit(run.with_overrides({"train.epochs": 1, "model.dim": 32}), task)
>>> fit().best_epoch
1
>>> trained = {"train": fit.model.state.snapshot()}
>>> results, _ = dsrd.evaluate_model(fit.model, task, fit.rules, run.evaluate, trained)
>>> list(results["test"]["transductive"]["random"])
['ap', 'auc', 'ap_split', 'auc_split']

These names are stable; everything else is imported from the module it lives in. Each is loaded at first use.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsrd.bench.embed import embed
    from dsrd.bench.predict import predict, top_partners
    from dsrd.config import RunConfig
    from dsrd.data.dataset import Dataset
    from dsrd.data.read import load
    from dsrd.data.split import split
    from dsrd.data.synthetic import SynthConfig, synth
    from dsrd.errors import DsrdError
    from dsrd.evaluate import metrics
    from dsrd.evaluate.evaluator import Task
    from dsrd.evaluate.evaluator import evaluate as evaluate_model
    from dsrd.events import Events, Neighbors, Query
    from dsrd.graph.negatives import negatives
    from dsrd.graph.past import Live, Past
    from dsrd.models import GraphSpec, NodeEncoder, State, TemporalModel, create
    from dsrd.models import names as model_names
    from dsrd.train.fit import Fit

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "DsrdError",
    "Events",
    "Fit",
    "GraphSpec",
    "Live",
    "Neighbors",
    "NodeEncoder",
    "Past",
    "Query",
    "RunConfig",
    "State",
    "SynthConfig",
    "Task",
    "TemporalModel",
    "create",
    "embed",
    "evaluate_model",
    "load",
    "metrics",
    "model_names",
    "negatives",
    "predict",
    "split",
    "synth",
    "top_partners",
]

_HOME = {
    "Dataset": "data.dataset:Dataset",
    "DsrdError": "errors:DsrdError",
    "Events": "events:Events",
    "Fit": "train.fit:Fit",
    "GraphSpec": "models:GraphSpec",
    "Live": "graph.past:Live",
    "Neighbors": "events:Neighbors",
    "NodeEncoder": "models:NodeEncoder",
    "Past": "graph.past:Past",
    "Query": "events:Query",
    "RunConfig": "config:RunConfig",
    "State": "models:State",
    "SynthConfig": "data.synthetic:SynthConfig",
    "Task": "evaluate.evaluator:Task",
    "TemporalModel": "models:TemporalModel",
    "create": "models:create",
    "embed": "bench.embed:embed",
    "evaluate_model": "evaluate.evaluator:evaluate",
    "load": "data.read:load",
    "metrics": "evaluate.metrics",
    "model_names": "models:names",
    "negatives": "graph.negatives:negatives",
    "predict": "bench.predict:predict",
    "split": "data.split:split",
    "synth": "data.synthetic:synth",
    "top_partners": "bench.predict:top_partners",
}


if not TYPE_CHECKING:  # a checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'dsrd' has no attribute '{name}'")
        value = globals()[name] = resolve_name(f"dsrd.{_HOME[name]}")
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
