"""Tables: which numbers, which marks, which ranks, and how LaTeX shows them."""

from __future__ import annotations

import copy
import itertools
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsrd.report.build import links_csv, links_latex
from dsrd.report.figures.ranks import rankings
from dsrd.report.gaps import gaps
from dsrd.report.latex import booktabs, tikz
from dsrd.report.measured import KINDS, Number, numbers, preferred
from dsrd.report.side_tables import side_tables
from dsrd.report.tables import LinkTable, View, link_table, shading, views

DATASETS = ("uci", "enron", "mooc", "wikipedia", "CanParl", "USLegis")


def number(row: str, dataset: str, value: float, **more: Any) -> Number:
    view = {"protocol": "dyglib", "reading": "plain", "setting": "transductive", "negatives": "random"}
    entries = {"origin": "model", "base": row, "metric": "ap", **view, **more}
    return Number(row=row, dataset=dataset, value=value, **entries)


def table(found: list[Number]) -> LinkTable:
    return link_table(found, View())


def test_shading_is_that_of_the_papers_table_of_nodes(paper: Any):
    nodes = paper["nodes"]
    for dataset, values in nodes["auc"].items():
        ours = shading(dict(zip(nodes["models"], values, strict=True)))
        theirs = dict(zip(nodes["models"], nodes["shades"][dataset], strict=True))
        for model, shade in theirs.items():
            assert ours.get(model, 0) == pytest.approx(shade, abs=1), (dataset, model)


def test_an_incomplete_model_is_ranked_by_its_published_row():
    mine = [number("mine", dataset, 90 + place) for place, dataset in enumerate(DATASETS)]
    tgn = [number("tgn", "uci", 99.0)]
    published = [
        number("tgn, published", dataset, 80.0, base="tgn", origin="published", std=0.5) for dataset in DATASETS
    ]
    found = table([*mine, *tgn, *published])
    assert {row.name for row in found.contenders} == {"mine", "tgn, published"}
    assert found.average_ranks == {"mine": 1.0, "tgn, published": 2.0}
    complete = table([*mine, *(number("tgn", dataset, 99.0) for dataset in DATASETS), *published])
    assert complete.average_ranks == {"mine": 2.0, "tgn": 1.0}


def test_holes_are_left_out_of_ranks_with_a_warning():
    mine = [number("mine", dataset, 90.0) for dataset in DATASETS]
    other = [number("other", dataset, 80.0) for dataset in DATASETS]
    third = [number("third", dataset, 95.0) for dataset in DATASETS[:2]]
    found = table([*mine, *other, *third])
    assert set(found.average_ranks) == {"mine", "other"}
    assert "left out for want of results on some data sets: third" in found.warnings()
    few = table([*mine[:3], *other[:3]])
    assert few.warnings()[0] == "only 3 data sets; fewer than six say little"


def test_seeds_are_averaged_and_repeats_of_a_seed_are_not(own_record: dict[str, Any]):
    def run(seed: int, ap: float, finished: str) -> dict[str, Any]:
        record = copy.deepcopy(own_record) | {"seed": seed, "finished": finished}
        record["results"] = {"transductive": {"random": {"ap": ap, "auc": ap}}}
        record["heads"] = {}
        record["rules"] = {}
        return record

    records = [run(0, 10.0, "2026-01-01"), run(0, 80.0, "2026-01-02"), run(1, 90.0, "2026-01-01")]
    view = View(protocol="strict", benchmarks=False)
    row = link_table(numbers(records), view).rows[0]
    cell = row.cells[own_record["dataset"]]
    assert (cell.mean, cell.std) == (85.0, pytest.approx(np.std([80, 90], ddof=1)))
    alone = link_table(numbers(records[:1]), view).rows[0].cells[own_record["dataset"]]
    assert "one seed" in alone.notes
    records[0]["config"]["train"]["epochs"] = 50  # the longer run counts, though it finished before
    assert link_table(numbers(records), view).rows[0].cells[own_record["dataset"]].mean == 50.0


def test_a_run_that_was_cut_by_time_does_not_replace_one_that_was_not(own_record: dict[str, Any]):
    def run(minutes: float, epochs: int, finished: str) -> dict[str, Any]:
        made = copy.deepcopy(own_record) | {"finished": finished}
        made["config"]["train"] |= {"epochs": 100, "patience": 20, "minutes": minutes}
        made["timing"] |= {"epochs": epochs, "best_epoch": epochs - 1 if epochs < 100 else 70}
        return made

    whole, short, shorter = run(0, 100, "2026-01-01"), run(5, 4, "2026-01-02"), run(1, 2, "2026-01-03")
    assert preferred(short, whole) is preferred(whole, short) is whole
    assert preferred(shorter, short) is preferred(short, shorter) is short
    later = run(5, 4, "2026-01-04")
    assert preferred(later, short) is preferred(short, later) is later


def test_earlier_versions_other_heads_and_ablations_do_not_stand_for_a_model(own_record: dict[str, Any]):
    view = View(protocol="strict", benchmarks=False)
    gone = copy.deepcopy(own_record)
    gone["config"]["model_args"]["setting_that_is_gone"] = 1
    ablated = copy.deepcopy(own_record)
    ablated["config"]["model_args"]["ablate"] = "no_state"
    found = link_table(numbers([own_record, gone, ablated]), view)
    models = {row.name: row for row in found.rows if row.origin == "model"}
    assert not any("ablate" in name for name in models)
    earlier = [row for name, row in models.items() if "earlier version" in name]
    assert earlier
    assert all("earlier version" in cell.notes for row in earlier for cell in row.cells.values())
    assert not any(row in found.contenders for row in earlier)
    gone["preset"], gone["dataset"] = "paper", own_record["dataset"]  # a model without present results
    with_paper = link_table(numbers([own_record, gone]), view)
    assert [row.name for row in with_paper.contenders if row.origin == "model"] == ["dsrd, dim=8"]
    assert link_table(numbers([gone]), view).contenders
    others = [row for row in models.values() if row.name.endswith("(pair)")]
    assert others
    assert not any(row in found.contenders for row in others)
    assert [row.origin for row in found.rows if row.name == "best possible"] == ["ceiling"]
    assert {row.name for row in found.rows if row.origin == "rule"} >= {"edgebank", "recency"}


def test_the_law_is_a_reading_of_models_that_have_one(records: list[Any]):
    found = numbers(records)
    laws = link_table(found, View(reading="law", negatives="historical"))
    plain = link_table(found, View(negatives="historical"))
    dsrd = {row.name: row for row in laws.rows}["dsrd"]
    assert dsrd.cells["uci"].mean != {row.name: row for row in plain.rows}["dsrd"].cells["uci"].mean
    tgn = next(row for row in laws.rows if row.name == "tgn, published")
    assert tgn.cells["uci"].notes == ["read plainly"]


def test_ranks_do_not_depend_on_which_rows_are_listed_first(records: list[Any]):
    found = numbers(records)
    one, other = link_table(found, View()), link_table(found[::-1], View())
    assert one.average_ranks == pytest.approx(other.average_ranks)
    assert len(one.average_ranks) > 10


def test_every_view_has_a_latex_table(records: list[Any]):
    texts = links_latex(numbers(records))
    assert {"links-dyglib-plain-transductive-ap", "links-strict-law-inductive-auc-measured"} <= set(texts)
    text = texts["links-dyglib-plain-transductive-ap"]
    lines = text.splitlines()
    columns = next(line for line in lines if line.startswith("\\begin{tabular}"))
    rows = [line for line in lines if line.endswith("\\\\")]
    models, rules = text.split("\\end{table*}")[:2]
    assert all(name in models and name not in rules for name in ("DSRD", "TPNet$^\\dagger$", "EdgeBank"))
    assert all(name in rules and name not in models for name in ("popularity", "knows every true edge"))
    assert len({line.count("&") for line in models.splitlines() if line.endswith("\\\\")}) == 1
    assert rows
    assert columns.count("c") - columns.count("{c|c|") >= 13
    assert text.count("\\textbf{") > 3 * 5
    assert text.count("\\underline{") > 3 * 5
    assert "\\cellcolor{mygreen!100}" in text
    assert "$^\\dagger$" in text
    measured = texts["links-dyglib-plain-transductive-ap-measured"].split("\\end{table*}")[0]
    assert "--" in measured
    lines = [line for line in measured.splitlines() if " & Can. Parl. & " in line or " & UCI & " in line]
    assert len(lines) == 6
    assert all(line.count("\\textbf{") == 1 for line in lines)  # the best of those that are shown


def test_the_csv_holds_every_number_with_its_record(records: list[Any]):
    found = numbers(records)
    lines = links_csv(found, records).splitlines()
    assert len(lines) == len(found) + 1
    assert any("dsrd.jsonl:" in line for line in lines)


def test_latex_compiles(records: list[Any], tmp_path: Path):
    if not shutil.which("pdflatex"):
        pytest.skip("pdflatex is not installed; install TeX Live with booktabs and pgfplots to run this test")
    found = numbers(records)
    tables = [link_table(found, View(negatives=kind)) for kind in KINDS]
    sides = side_tables(records, found)
    packages = "\\usepackage[table]{xcolor}\\usepackage{booktabs,longtable,multirow,graphicx,pgfplots}"
    body = [booktabs(tables), booktabs(tables, beside_published=False), tikz(rankings(found, View()), "AP")]
    body += [replace(table, rows=table.rows[:60]).latex() for table in sides]
    text = f"\\documentclass{{article}}{packages}\\usetikzlibrary{{plotmarks}}\\pgfplotsset{{compat=1.16}}"
    text += "\\usepackage[T1]{fontenc}\\begin{document}" + "\n".join(body) + "\\end{document}"
    (tmp_path / "all.tex").write_text(text, encoding="utf-8")
    run = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    if "pgfplots.sty' not found" in done.stdout or ".sty' not found" in done.stdout:
        pytest.skip("this TeX lacks a package; install booktabs, multirow and pgfplots to run this test")
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").stat().st_size > 10_000


def test_gaps_say_what_was_not_measured(records: list[Any]):
    told = gaps(records, numbers(records))
    assert {section for section, _ in told} >= {"links", "ablations"}
    assert any("not measured here on all data sets" in text for _, text in told)
    assert any("no calibration of" in text for _, text in told)


def test_side_tables_are_complete(records: list[Any]):
    found = {table.name: table for table in side_tables(records, numbers(records))}
    assert set(found) == {
        "friedman",
        "wilcoxon",
        "differences",
        "decay-correlations",
        "costs",
        "one-batch",
        "nodes",
    }
    for table in found.values():
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.name
    assert all(place is not None for place in found["nodes"].records or [None])


def test_every_shown_view_has_rows(records: list[Any]):
    found = numbers(records)
    shown = views(found)
    assert len(shown) == len(set(shown)) > 40
    for view in itertools.islice(shown, 0, None, 7):
        assert link_table(found, view).rows, view
