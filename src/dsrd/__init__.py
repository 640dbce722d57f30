"""Learning on dynamic graphs: streams of timestamped interactions, measured by one protocol.

>>> import dsrd
>>> stream = dsrd.load("synth:events=1000")  # or dsrd.load("calls.csv", source="caller", ...), dsrd.load(frame)
>>> model = dsrd.LinkPredictor("graphmixer", epochs=1, dim=32).fit(stream, progress=False)
>>> results = model.evaluate(progress=False)
>>> list(results["transductive"]["random"])
['ap', 'auc', 'ap_split', 'auc_split']
>>> len(model.partners("7", k=3))
3

These names are stable; everything else is imported from the module it lives in. Each is loaded at first use.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsrd import trackers
    from dsrd.config import RunConfig
    from dsrd.data.dataset import Dataset
    from dsrd.data.read import load
    from dsrd.data.split import split
    from dsrd.data.synthetic import SynthConfig, synth
    from dsrd.errors import DsrdError
    from dsrd.estimator import LinkPredictor
    from dsrd.estimator import open_run as open
    from dsrd.evaluate import metrics
    from dsrd.evaluate.evaluator import Task
    from dsrd.evaluate.evaluator import evaluate as evaluate_model
    from dsrd.events import Events, Neighbors, Query
    from dsrd.graph.negatives import negatives
    from dsrd.graph.past import Live, Past
    from dsrd.models import GraphSpec, NodeEncoder, State, TemporalModel, create
    from dsrd.models import names as model_names
    from dsrd.results import Results
    from dsrd.tables import Table
    from dsrd.train.fit import Fit

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "DsrdError",
    "Events",
    "Fit",
    "GraphSpec",
    "LinkPredictor",
    "Live",
    "Neighbors",
    "NodeEncoder",
    "Past",
    "Query",
    "Results",
    "RunConfig",
    "State",
    "SynthConfig",
    "Table",
    "Task",
    "TemporalModel",
    "create",
    "evaluate_model",
    "load",
    "metrics",
    "model_names",
    "negatives",
    "open",
    "split",
    "synth",
    "trackers",
]

_HOME = {
    "Dataset": "data.dataset:Dataset",
    "DsrdError": "errors:DsrdError",
    "Events": "events:Events",
    "Fit": "train.fit:Fit",
    "GraphSpec": "models:GraphSpec",
    "LinkPredictor": "estimator:LinkPredictor",
    "Live": "graph.past:Live",
    "Neighbors": "events:Neighbors",
    "NodeEncoder": "models:NodeEncoder",
    "Past": "graph.past:Past",
    "Query": "events:Query",
    "Results": "results:Results",
    "RunConfig": "config:RunConfig",
    "State": "models:State",
    "SynthConfig": "data.synthetic:SynthConfig",
    "Table": "tables:Table",
    "Task": "evaluate.evaluator:Task",
    "TemporalModel": "models:TemporalModel",
    "create": "models:create",
    "evaluate_model": "evaluate.evaluator:evaluate",
    "load": "data.read:load",
    "metrics": "evaluate.metrics",
    "model_names": "models:names",
    "negatives": "graph.negatives:negatives",
    "open": "estimator:open_run",
    "split": "data.split:split",
    "synth": "data.synthetic:synth",
    "trackers": "trackers",
}


if not TYPE_CHECKING:  # a checker knows the names above, and no others

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'dsrd' has no attribute '{name}'")
        value = globals()[name] = resolve_name(f"dsrd.{_HOME[name]}")
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
