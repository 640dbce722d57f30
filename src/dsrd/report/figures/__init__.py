"""The figures of a report. Each is a function that takes records and returns a matplotlib Figure.

from dsrd.report.figures.decays import retention_steps

figure = retention_steps(records)
figure.axes[0].set_title("Mine")
figure.savefig("mine.pdf")
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dsrd.report.figures.ablations import ablations
from dsrd.report.figures.decays import (
    decay_correlations,
    hop_decay,
    retention_kernels,
    retention_steps,
    temporal_decay,
)
from dsrd.report.figures.diagnostics import audit, calibration, surprise_over_time
from dsrd.report.figures.ranks import paired_differences, rank_diagram
from dsrd.report.figures.scalability import beyond_memory, cost_against_rank, cost_of_growth, one_batch
from dsrd.report.figures.training import learning_curves, quality_against_time
from dsrd.report.measured import METRICS, PROTOCOLS, READINGS
from dsrd.report.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Drawing(NamedTuple):
    """A figure of the report: its file name, its section, its title, and the function that draws it."""

    name: str
    section: str
    title: str
    draw: Callable[[Records], Figure]

    @property
    def about(self) -> str:
        """What is drawn: the description of the function."""
        function = self.draw.func if isinstance(self.draw, partial) else self.draw
        return " ".join((inspect.getdoc(function) or "").split())


def _ranks() -> list[Drawing]:
    """A rank diagram for each protocol, reading and metric; the paper's two come first."""
    return [
        Drawing(
            f"ranks-{protocol}-{reading}-{metric}",
            "ranks",
            f"Average ranks by {metric.upper()}: {protocol}, read {reading}",
            partial(rank_diagram, metric=metric, protocol=protocol, reading=reading),
        )
        for protocol in PROTOCOLS
        for reading in READINGS
        for metric in METRICS
    ]


def _differences() -> list[Drawing]:
    return [
        Drawing(
            f"differences-{protocol}-ap",
            "ranks",
            f"Paired differences in AP: {protocol}, read plainly",
            partial(paired_differences, protocol=protocol),
        )
        for protocol in PROTOCOLS
    ]


DRAWINGS: tuple[Drawing, ...] = (
    *_ranks(),
    *_differences(),
    Drawing("retention-steps", "decays", "Long-term retention over update steps", retention_steps),
    Drawing("temporal-decay", "decays", "Short-term decay over time", temporal_decay),
    Drawing("hop-decay", "decays", "Decay over hops", hop_decay),
    Drawing("retention-kernels", "decays", "Learned retention kernels", retention_kernels),
    Drawing("decay-correlations", "decays", "Learned decays and the data sets", decay_correlations),
    Drawing("ablations-ap", "ablations", "Ablations, AP", ablations),
    Drawing("ablations-auc", "ablations", "Ablations, AUC", partial(ablations, metric="auc")),
    Drawing(
        "ablations-others-ap", "ablations", "Ablations on other streams, AP", partial(ablations, benchmarks=False)
    ),
    Drawing("cost-against-rank", "scalability", "Cost against average rank", cost_against_rank),
    Drawing("one-batch", "scalability", "Edges in one batch", one_batch),
    Drawing("cost-of-growth", "scalability", "Cost against events and nodes", cost_of_growth),
    Drawing("beyond-memory", "scalability", "Streams that do not fit in memory", beyond_memory),
    Drawing("learning-curves", "training", "Learning curves", learning_curves),
    Drawing("quality-against-time", "training", "Quality against time", quality_against_time),
    Drawing("calibration", "training", "Calibration", calibration),
    Drawing("surprise-over-time", "training", "Surprise over time", surprise_over_time),
    Drawing("audit", "training", "What the data give away", audit),
)
"""Every figure of a report, in its order."""
