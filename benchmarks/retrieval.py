"""Partners among many candidates: recall of retrieval, speed of both ways. JSON output.

    python benchmarks/retrieval.py recall --data wikipedia --epochs 2 --save results/retrieval.jsonl
    python benchmarks/retrieval.py million --save results/retrieval.jsonl

`recall` trains a model (or opens `--run`), lets it observe all events before the test part, fits the first score
there, and asks at the times of test events: how many of the exact top 10 are in shortlists of several lengths?
Nothing of the test part is used for fitting. It also measures microseconds of process time per candidate, exactly
scored, in pieces of several sizes.

`million` observes a synthetic stream in which a million targets have had an event, with a model without training,
and measures the process time of one source with all of them: exact, by retrieval, and the first score alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import dsrd
from dsrd.estimator import first_score
from dsrd.estimator.first_score import Retriever
from dsrd.estimator.ranking import read_ranked, recent_sources
from dsrd.events import Events, Query
from dsrd.history.past import Past
from dsrd.machine import load_average, peak_rss_mb
from dsrd.models import DEFAULT, GraphSpec, TemporalModel, create, model_class
from record import print_record

SHORTLISTS = (10, 32, 64, 128, 256, 512)
TOP = 10
TURNS = 3


def seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def pairwise(model: TemporalModel, query: Query, past: Past, at_once: int) -> Tensor:
    """Exact scores, so many at once."""
    pieces = [slice(start, start + at_once) for start in range(0, len(query), at_once)]
    return torch.cat([model.score(query[piece], past) for piece in pieces])


def one_source(event: Events, targets: Tensor) -> Query:
    return Query(event.src.expand(len(targets)), targets, event.time.expand(len(targets)))


@torch.no_grad()
def cost(model: TemporalModel, events: Events, targets: Tensor, past: Past) -> dict[str, float]:
    """Microseconds per candidate, the least of several turns."""
    queries = [one_source(events[row : row + 1], targets) for row in range(len(events))]
    ways: dict[str, Callable[[Query], Any]] = {
        "pairs_500_us": lambda query: pairwise(model, query, past, 500),
        "pairs_20000_us": lambda query: pairwise(model, query, past, 20_000),
        "pairs_2000_us": lambda query: pairwise(model, query, past, 2_000),
    }
    least = dict.fromkeys(ways, np.inf)
    for _ in range(TURNS + 1):  # the first one compiles
        for name, way in ways.items():
            taken = seconds(lambda way=way: [way(query) for query in queries])  # type: ignore[misc]
            least[name] = min(least[name], taken)
    return {name: round(1e6 * taken / len(queries) / len(targets), 2) for name, taken in least.items()}


@torch.no_grad()
def recalls(
    model: TemporalModel, first: Retriever, asked: Events, past: Past, observe: Callable[[float], Any]
) -> Any:
    """Share of the exact top 10 in shortlists of each length."""
    hits: dict[int, list[float]] = {length: [] for length in SHORTLISTS}
    error = []
    for row in range(len(asked)):
        event = asked[row : row + 1]
        targets = observe(float(event.time))
        source, at = int(event.src), float(event.time)
        exact = model.score_many(source, targets, at, past)
        order = first.guess(model, source, targets, at, past).argsort(descending=True)
        best = exact.topk(min(TOP, len(exact))).indices
        for length, found in hits.items():
            found.append(float(torch.isin(best, order[:length]).float().mean()))
        ranked = read_ranked(model, one_source(event, targets), past, model.heads[0], first, TOP)
        error.append(abs(float(ranked[0, 2]) - float(torch.logsumexp(exact.double(), dim=0))))
    recall = {str(length): round(float(np.mean(found)), 5) for length, found in hits.items()}
    return {
        "queries": len(asked),
        "recall_by_shortlist": recall,
        "error_of_log_sum": round(float(np.mean(error)), 5),
    }


def recall(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.run:
        predictor = dsrd.open(arguments.run)
    else:
        predictor = dsrd.LinkPredictor(epochs=arguments.epochs, protocol="strict")
        predictor.fit(arguments.data, progress=False)
    model, data = predictor.module.eval(), predictor.fitted.online.stream.dataset()
    events, split = data.events, predictor.fitted.task.split
    start = len(events) - len(split.test)
    past = Past(events, edge_x=data.edge_x, node_x=data.node_x)
    model.state.reset()
    model.observe(events[:start], past)
    known = Past(events[:start], edge_x=data.edge_x, node_x=data.node_x)
    targets, now = torch.unique(events.dst[:start]), float(events.time[start])
    figures: dict[str, Any] = {"targets": len(targets), "dim": model.config.dim, "test_events": len(split.test)}
    sources = recent_sources(known.index, first_score.SOURCES)
    fit: list[Retriever] = []
    fit_s = seconds(lambda: fit.append(first_score.fitted(model, sources, targets, now, past)))
    figures["fit_s"] = round(fit_s, 2)
    figures |= cost(model, events[start : start + 400 : 40], targets, past)
    observed = [start]

    def observe(at: float) -> Tensor:
        until = int(torch.searchsorted(events.time, at))
        model.observe(events[observed[0] : until], past)
        observed[0] = max(observed[0], until)
        return torch.unique(events.dst[:until])

    rows = torch.arange(arguments.queries) * len(split.test) // arguments.queries + start
    return figures | recalls(model, fit[0], events[rows], past, observe)


def stream_of(targets: int, sources: int) -> Events:
    """Every target once, and as many events again between sources and few popular targets."""
    random = np.random.default_rng(0)
    popular = (targets * random.random(targets // 5) ** 4).astype(np.int64)
    dst = np.concatenate([random.permutation(targets), popular]) + 1 + sources
    src = random.integers(1, 1 + sources, len(dst))
    order = random.permutation(len(dst))
    return Events.from_numpy(src[order], dst[order], np.arange(len(dst), dtype=np.float64))


@torch.no_grad()
def million(arguments: argparse.Namespace) -> dict[str, Any]:
    events, past = stream_of(arguments.targets, arguments.sources), None
    torch.manual_seed(0)
    cls = model_class(arguments.model)
    settings = cls.Config(**({"precision": arguments.precision} if arguments.precision else {}))
    model = create(arguments.model, GraphSpec(num_nodes=events.num_nodes, num_events=len(events)), settings).eval()
    model.calibrate(events)
    past = Past(events)
    for batch in events.batches(10_000):
        model.observe(batch, past)
    targets, now = torch.unique(events.dst), float(events.time[-1]) + 1
    asked = recent_sources(past.index, 6)
    fit: list[Retriever] = []
    sources = recent_sources(past.index, first_score.SOURCES)
    fit_s = seconds(lambda: fit.append(first_score.fitted(model, sources, targets, now, past)))

    def retrieved(source: int) -> Tensor:
        event = Events.from_numpy([source], [1], [now])
        return read_ranked(model, one_source(event, targets), past, model.heads[0], fit[0], TOP)

    ways: dict[str, Callable[[int], Any]] = {
        "retrieval_s": retrieved,
        "first_score_s": lambda source: fit[0].guess(model, source, targets, now, past),
    }
    figures: dict[str, Any] = {"targets": len(targets), "fit_s": round(fit_s, 2)}
    for name, way in ways.items():
        figures[name] = [
            round(seconds(lambda way=way, source=source: way(source)), 3) for source in asked.tolist()
        ]  # type: ignore[misc]
    part = targets[:: max(1, len(targets) // 20_000)]
    model.score_many(int(asked[0]), part, now, past)
    exact = seconds(lambda: model.score_many(int(asked[0]), part, now, past))
    figures["exact_s_computed"] = round(exact / len(part) * len(targets), 1)
    return figures | {"state_mb": round(model.state.nbytes() / 2**20), "peak_rss_mb": peak_rss_mb()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("recall", "million"))
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="uci")
    parser.add_argument("--run", type=Path, help="use this trained run instead of training one")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--targets", type=int, default=1_000_000)
    parser.add_argument("--sources", type=int, default=100_000)
    parser.add_argument("--precision", default="", help="of the state, for a model that has this setting")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = ("data", "epochs") if arguments.what == "recall" else ("targets", "sources", "precision")
    settings = {name: getattr(arguments, name) for name in names}
    load = load_average()
    figures = recall(arguments) if arguments.what == "recall" else million(arguments)
    print_record(
        arguments.save, benchmark=f"retrieval, {arguments.what}", **settings, figures=figures, load=load,
        at=time.strftime("%Y-%m-%d"),
    )  # fmt: skip


if __name__ == "__main__":
    main()
