"""Figures: functions of records, drawn from what is there, refused where nothing is."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from dsrd.report.build import Report
from dsrd.report.figures import DRAWINGS, Drawing
from dsrd.report.figures.ablations import ablated_runs, ablations
from dsrd.report.figures.decays import (
    hop_decay,
    learned_by_dataset,
    retention_kernels,
    retention_steps,
    temporal_decay,
)
from dsrd.report.figures.diagnostics import calibration, surprise_over_time
from dsrd.report.figures.ranks import paired_differences, rank_diagram
from dsrd.report.figures.scalability import cost_against_rank, mean_ranks, one_batch
from dsrd.report.figures.style import COLORS, COLUMN, PAGE, SETTINGS, looks, styled
from dsrd.report.figures.training import learning_curves
from support.errors import error_of

every_drawing = pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.name)


def curves(axes: Any) -> dict[str, np.ndarray]:
    """What is drawn, by label."""
    return {
        line.get_label(): line.get_ydata() for line in axes.get_lines() if not line.get_label().startswith("_")
    }


@every_drawing
def test_figures_fit_a_printed_page_and_have_labels(drawing: Drawing, made: Report):
    if drawing.name not in made.figures:
        pytest.skip(f"no records for this figure: {made.missing[drawing.title]}")
    figure = made.figures[drawing.name]
    assert figure.get_figwidth() in (COLUMN, PAGE)
    shown = [axes for axes in figure.axes if axes.axison and axes.has_data()]
    assert shown
    assert any(axes.get_xlabel() or axes.get_title() for axes in shown)
    sizes = [text.get_fontsize() for axes in shown for text in [*axes.get_xticklabels(), axes.xaxis.label]]
    assert min(sizes) >= 6


@every_drawing
def test_nothing_is_cut_off(drawing: Drawing, made: Report):
    """Legends, titles and names of axes lie within the figure, as it is saved."""
    if drawing.name not in made.figures:
        pytest.skip(f"no records for this figure: {made.missing[drawing.title]}")
    assert_inside(made.figures[drawing.name])


def assert_inside(figure: Any) -> None:
    with styled():
        FigureCanvasAgg(figure).draw()
        shown = [axes for axes in figure.axes if axes.axison]
        boxes = [axis.get_tightbbox() for axes in shown for axis in (axes.xaxis, axes.yaxis)]
        boxes += [axes.title.get_window_extent() for axes in shown if axes.get_title()]
        boxes += [legend.get_window_extent() for legend in figure.legends]
    width, height = figure.bbox.width, figure.bbox.height
    for box in filter(None, boxes):
        assert -1 <= box.x0 <= box.x1 <= width + 1
        assert -1 <= box.y0 <= box.y1 <= height + 1


@every_drawing
def test_figures_say_what_they_show(drawing: Drawing):
    assert drawing.about.endswith(".")
    assert len(drawing.about) > 40


def test_only_records_that_do_not_exist_are_missing(made: Report):
    assert len(made.figures) + len(made.missing) == len(DRAWINGS)
    assert len(made.figures) >= 20


@every_drawing
def test_figures_without_records_are_refused_in_one_line(drawing: Drawing):
    message = error_of(drawing.draw, [])
    assert message
    assert not message.endswith(".")


def test_looks_can_be_told_apart():
    found = {tuple(sorted(each.items())) for each in looks([str(number) for number in range(32)]).values()}
    assert len(found) == 32
    assert len(set(COLORS)) == len(COLORS) == 8
    assert SETTINGS["font.size"] >= 8
    assert SETTINGS["legend.fontsize"] >= 7.5


def test_a_model_looks_the_same_in_every_figure():
    first, second = looks(["dsrd", "tgn, published", "mine"]), looks(["tgn", "jodie", "dsrd", "dsrd, dim=8"])
    assert first["dsrd"] == second["dsrd"]
    assert first["tgn, published"] == second["tgn"]
    for found in (first, second):
        assert len({tuple(each.items()) for each in found.values()}) == len(found)


def with_learned(record: dict[str, Any], dataset: str, seed: int, gamma: float) -> dict[str, Any]:
    learned = {
        "layer_1": {"lambda": [0.5], "alpha": [0.5], "gamma": [gamma], "delta": [0.01]},
        "layer_2": {"delta": [0.02]},
        "retention": {"half_life_in_events": [[10.0], [100.0]]},
        "memory": {"scales_in_events": [10.0], "repeat": {"weights": [1.0], "half_life_in_events": 7.0}},
    }
    return copy.deepcopy(record) | {"dataset": dataset, "seed": seed, "learned": learned}


def test_learned_decays_follow_the_papers_formulas(own_record: dict[str, Any]):
    runs = [with_learned(own_record, "uci", seed, gamma) for seed, gamma in ((0, 0.4), (1, 0.8))]
    axes = retention_steps(runs).axes[0]
    steps = axes.get_lines()[0].get_xdata()
    (label, drawn), *_ = curves(axes).items()
    assert label == "UCI (2 seeds)"
    np.testing.assert_allclose(drawn, (0.4**steps + 0.8**steps) / 2)
    band = axes.collections[0].get_paths()[0].vertices
    assert any(np.allclose(point, (steps[4], 0.4 ** steps[4])) for point in band)
    age = temporal_decay(runs).axes[0].get_lines()[0]
    np.testing.assert_allclose(age.get_ydata(), np.exp(-0.5 * age.get_xdata() ** 0.5))
    hops = curves(hop_decay(runs).axes[0])["UCI (2 seeds)"]
    np.testing.assert_allclose(hops, [1, np.exp(-1 * 0.01 * 100), np.exp(-2 * 0.02 * 100)])
    state, repeat = (axes.get_lines()[0] for axes in retention_kernels(runs).axes[:2])
    events = state.get_xdata()
    np.testing.assert_allclose(state.get_ydata(), (2 ** (-events / 10) + 2 ** (-events / 100)) / 2)
    np.testing.assert_allclose(repeat.get_ydata(), np.exp(-events / 10))


def test_long_names_fit(own_record: dict[str, Any]):
    names = [f"memory:taus={number},sources=10,targets=200,events=10000" for number in (50, 500, 2000)]
    runs = [with_learned(own_record, name, seed, 0.5) for name in names for seed in (0, 1)]
    for draw in (retention_steps, temporal_decay, hop_decay, retention_kernels, learning_curves):
        assert_inside(draw(runs))
    others = [copy.deepcopy(run) | {"model": "jodie"} for run in runs]
    assert_inside(paired_differences([*runs, *others], protocol="strict"))


def test_runs_are_shown_rather_than_records_of_learned_decays_alone(own_record: dict[str, Any]):
    run = with_learned(own_record, "uci", 0, 0.4)
    alone = [{"dataset": name, "seed": 0, "learned": run["learned"]} for name in ("uci", "enron")]
    earlier = with_learned(own_record, "uci", 5, 0.9)
    earlier["config"]["model_args"]["setting_that_is_gone"] = 1
    assert {name: len(seeds) for name, seeds in learned_by_dataset([run, earlier, *alone]).items()} == {
        "enron": 1,
        "uci": 1,
    }


def ablated(record: dict[str, Any], what: str, seed: int, ap: float, epochs: int = 1) -> dict[str, Any]:
    run = copy.deepcopy(record) | {"seed": seed}
    run["config"]["model_args"]["ablate"] = what
    run["config"]["train"]["epochs"] = epochs
    cell = {kind: {"ap": ap, "auc": ap} for kind in ("random", "historical", "inductive")}
    return run | {"results": {"transductive": cell, "inductive": cell}, "heads": {}}


def test_ablations_are_bars_with_deviations_of_runs_trained_alike(own_record: dict[str, Any]):
    runs = [ablated(own_record, "none", seed, 90 + seed) for seed in range(3)]
    runs += [ablated(own_record, "no_state", seed, 80 + seed) for seed in range(3)]
    longer = ablated(own_record, "none", 0, 99, epochs=30)  # not compared with runs of one epoch
    (found,) = ablated_runs([*runs, longer]).values()
    assert {variant: len(seeds) for variant, seeds in found.items()} == {"none": 3, "no_state": 3}
    axes = ablations([*runs, longer], benchmarks=False).axes[0]
    full, without = (bars for bars in axes.containers if hasattr(bars, "patches"))
    assert [bar.get_height() for bar in full] == [91, 91, 91]
    assert [bar.get_height() for bar in without] == [81, 81, 81]
    assert full.errorbar is not None
    assert "no ablate" not in error_of(ablations, [longer], benchmarks=False)
    assert "on a benchmark" in error_of(ablations, runs)


def test_every_ablation_is_drawn_and_has_its_colour_everywhere(own_record: dict[str, Any]):
    def colours(*variants: str) -> dict[str, Any]:
        runs = [ablated(own_record, variant, 0, 90) for variant in ("none", *variants)]
        bars = ablations(runs, benchmarks=False).axes[0].containers
        return {each.get_label(): each.patches[0].get_facecolor() for each in bars if hasattr(each, "patches")}

    every = colours("no_block", "no_state", "no_age_features", "no_such_part")
    assert list(every) == ["full model", "w/o block", "w/o state", "w/o age features", "no_such_part"]
    assert colours("no_state")["w/o state"] == every["w/o state"]


def test_the_rank_diagram_draws_average_ranks(records: list[Any], made: Report):
    axes = rank_diagram(records).axes[0]
    assert len(axes.get_yticks()) == 6
    points = [
        line for line in axes.get_lines() if line.get_marker() not in ("None", "", None) and len(line.get_xdata())
    ]
    first_row = sorted(float(line.get_xdata()[0]) for line in points if 0.5 < line.get_ydata()[0] <= 1)
    tests = next(table for table in made.tables if table.name == "friedman")
    assert len(first_row) == tests.rows[0][tests.columns.index("models")]
    assert sum(first_row) == pytest.approx(len(first_row) * (len(first_row) + 1) / 2)


def test_the_papers_table_of_one_batch_is_beside_ours(records: list[Any]):
    assert set(curves(one_batch(records).axes[1])) == {"here, whole process on a CPU", "paper, GPU"}


def test_cost_stands_against_the_rank_that_is_named(records: list[Any]):
    figure = cost_against_rank(records)
    assert "measured on UCI" in figure.axes[0].get_title("left")
    points = {line.get_label(): line.get_ydata()[0] for line in figure.axes[0].get_lines()}
    ranks = mean_ranks(records, "ap")
    assert points["DSRD"] == ranks["dsrd"]
    assert points["TPNet†"] == ranks["tpnet, published"]


def test_calibration_and_surprise_are_drawn_from_their_records():
    bins = [{"expected": 0.1 * n, "observed": 0.1 * n + 0.01, "count": 5} for n in range(1, 6)]
    record = {"dataset": "uci", "model": "mine", "calibration": {"partner": {"curve": bins}}}
    np.testing.assert_allclose(curves(calibration([record]).axes[0])["UCI"], [each["observed"] for each in bins])
    nothing = {"expected": 0.01, "observed": 0.0, "count": 5}  # has no place on a logarithmic axis
    hollow = (
        calibration([record | {"calibration": {"partner": {"curve": [nothing, *bins]}}}]).axes[0].get_lines()[1]
    )
    assert (hollow.get_xdata().tolist(), hollow.get_markerfacecolor()) == ([0.01], "none")
    events = [{"source": "a", "target": "b", "time": n, "surprise": float(n)} for n in range(100)]
    axes = surprise_over_time([{"events": events}]).axes[0]
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), 2 + 5 * np.arange(20))


def test_surprise_over_time_is_drawn_from_calibration_of_models_that_know_both_factors():
    quartiles = [[1.0, 2.0, 3.0], [2.0, 4.0, 5.0]]
    both = {name: {"events": 40, "bits_over_time": quartiles} for name in ("partner", "activity")}
    records = [
        {"dataset": "uci", "model": "mine", "calibration": both},
        {"dataset": "uci", "model": "other", "calibration": {"partner": both["partner"]}},
    ]
    axes = surprise_over_time(records).axes
    assert [panel.get_title() for panel in axes] == ["partner", "activity"]
    for panel in axes:
        assert list(curves(panel)) == ["UCI"]
        np.testing.assert_allclose(panel.get_lines()[0].get_ydata(), [2.0, 4.0])


def test_matplotlib_is_loaded_for_reports_only():
    code = (
        "import sys, dsrd.cli.main, dsrd.report; print('matplotlib' in sys.modules, 'scipy.stats' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
