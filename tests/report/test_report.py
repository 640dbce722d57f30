"""`dsrd report` and `dsrd.report`: what they write and refuse; the same records give the same files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import dsrd
from dsrd.report.build import Report
from support.errors import error_of
from support.program import done, refused


@pytest.fixture
def results(own_record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the record of one short run, in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("results.jsonl").write_text(json.dumps(own_record) + "\n")
    return Path("results.jsonl")


def test_the_command_writes_a_page_with_its_files(results: Path):
    outcome = done("report", results, "--out", "mine", "--json")
    said = outcome.json
    assert said["page"] == str(Path("mine/index.html"))
    assert "learning-curves" in said["figures"]
    assert "Ablations, AP" in said["missing"]
    for name in said["figures"]:
        assert Path(f"mine/figures/{name}.svg").read_text().startswith("<?xml")
        assert Path(f"mine/figures/{name}.pdf").read_bytes().startswith(b"%PDF")
    assert Path("mine/tables/links.csv").is_file()
    assert list(Path("mine/tables").glob("links-strict-plain-transductive-ap-others.tex"))
    page = Path("mine/index.html").read_text()
    assert "no run without a part of its model" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "src=" not in page


def test_a_report_replaces_an_older_one_and_nothing_else(results: Path):
    first = done("report", results, "--out", "mine")
    assert "mine/index.html: 1 records" in first.out.replace("\\", "/")
    assert "missing: " in first.err
    content = {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()}
    done("report", results, "--out", "mine")
    assert {path: path.read_bytes() for path in Path("mine").rglob("*") if path.is_file()} == content
    Path("other").mkdir()
    Path("other/thesis.tex").write_text("years of work")
    assert "holds other files" in refused("report", results, "--out", "other")
    assert "is a file" in refused("report", results, "--out", "results.jsonl")


def test_bad_input_is_refused_in_one_line(results: Path):
    Path("empty.jsonl").touch()
    assert "empty.jsonl: no records" in refused("report", "empty.jsonl", "--out", "mine")
    assert "gone.jsonl: no such file" in refused("report", "gone.jsonl", "--out", "mine")
    assert "missing argument" in refused("report", "--out", "mine")
    assert "missing option" in refused("report", results)


def test_python_gives_figures_to_restyle(own_record: dict[str, Any], tmp_path: Path):
    made = dsrd.report(own_record, progress=False)
    figure = made.figures["learning-curves"]
    assert isinstance(figure, Figure)
    figure.axes[0].set_title("Mine")
    assert made.page is None
    page = made.save(tmp_path / "out")
    assert page.read_text().count("Mine") >= 1
    assert made.gap_texts


def test_the_function_is_there_after_the_package_was_imported(own_record: dict[str, Any]):
    from dsrd.report.figures.training import learning_curves

    assert isinstance(learning_curves([own_record], protocol="strict"), Figure)
    assert callable(dsrd.report)
    assert isinstance(dsrd.report([own_record], progress=False), Report)


@pytest.mark.parametrize("library", ["matplotlib", "scipy"])
def test_a_missing_library_is_named_with_its_remedy(
    library: str, own_record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    for name in [name for name in sys.modules if name.startswith(f"dsrd.report.{'build' if library else ''}")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("dsrd.report.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    message = error_of(dsrd.report, own_record, progress=False)
    assert f"{library}" in message
    assert "pip install dsrd[report]" in message


def test_what_is_missing_from_the_committed_records_is_said(made: Report):
    assert made.page is not None
    page = made.page.read_text()
    assert all(f">{title}: {why}" in page for title, why in made.missing.items())
    assert all(text.split(": ", 1)[1][:40] in page for text in made.gap_texts)
