"""Learning on dynamic graphs: streams of timestamped events, with one evaluation protocol for all models.

>>> import dsrd
>>> stream = dsrd.load("synth:events=1000")  # or dsrd.load("calls.csv", source="caller", ...), dsrd.load(frame)
>>> model = dsrd.LinkPredictor("graphmixer", epochs=1, dim=32).fit(stream, progress=False)
>>> results = model.evaluate(progress=False)
>>> list(results["transductive"]["random"])
['ap', 'auc', 'ap_split', 'auc_split']
>>> len(model.partners("7", k=3))
3

These names are stable and loaded at first use. Import everything else from its module.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsrd import experiments, trackers
    from dsrd.config import RunConfig
    from dsrd.data.dataset import Dataset
    from dsrd.data.read import load
    from dsrd.data.split import split
    from dsrd.errors import DsrdError
    from dsrd.estimator.link_predictor import LinkPredictor
    from dsrd.estimator.link_predictor import open_run as open
    from dsrd.estimator.results import Results
    from dsrd.estimator.tables import Table
    from dsrd.evaluate import metrics
    from dsrd.evaluate.scoring import evaluate as evaluate_model
    from dsrd.evaluate.task import Task
    from dsrd.events import Events, Neighbors, Query
    from dsrd.history.live import Live
    from dsrd.history.past import Past
    from dsrd.models import GraphSpec, ModelCard, NodeEncoder, State, TemporalModel, create
    from dsrd.models import names as model_names
    from dsrd.negatives.sampling import draw_negatives
    from dsrd.report import report
    from dsrd.synthetic.drawing import synth
    from dsrd.synthetic.settings import SynthConfig
    from dsrd.train.trainer import Trainer

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "DsrdError",
    "Events",
    "GraphSpec",
    "LinkPredictor",
    "Live",
    "ModelCard",
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
    "Trainer",
    "create",
    "draw_negatives",
    "evaluate_model",
    "experiments",
    "load",
    "metrics",
    "model_names",
    "open",
    "report",
    "split",
    "synth",
    "trackers",
]

_HOME = {
    "Dataset": "data.dataset:Dataset",
    "DsrdError": "errors:DsrdError",
    "Events": "events:Events",
    "GraphSpec": "models:GraphSpec",
    "LinkPredictor": "estimator.link_predictor:LinkPredictor",
    "Live": "history.live:Live",
    "ModelCard": "models:ModelCard",
    "Neighbors": "events:Neighbors",
    "NodeEncoder": "models:NodeEncoder",
    "Past": "history.past:Past",
    "Query": "events:Query",
    "Results": "estimator.results:Results",
    "RunConfig": "config:RunConfig",
    "State": "state:State",
    "SynthConfig": "synthetic.settings:SynthConfig",
    "Table": "estimator.tables:Table",
    "Task": "evaluate.task:Task",
    "TemporalModel": "models:TemporalModel",
    "Trainer": "train.trainer:Trainer",
    "create": "models:create",
    "draw_negatives": "negatives.sampling:draw_negatives",
    "evaluate_model": "evaluate.scoring:evaluate",
    "experiments": "experiments",
    "load": "data.read:load",
    "metrics": "evaluate.metrics",
    "model_names": "models:names",
    "open": "estimator.link_predictor:open_run",
    "report": "report",
    "split": "data.split:split",
    "synth": "synthetic.drawing:synth",
    "trackers": "trackers",
}


if not TYPE_CHECKING:  # type checkers use the imports above

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'dsrd' has no attribute '{name}'")
        value = globals()[name] = resolve_name(f"dsrd.{_HOME[name]}")
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
