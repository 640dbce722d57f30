from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import pytest
from pyarrow.csv import read_csv

from dsrd.data.growing import GrowingStream
from dsrd.data.parse import csv_origin
from dsrd.data.read import load
from dsrd.data.sample import write_sample
from dsrd.errors import DsrdError

COLUMNS = {"source": "caller", "target": "callee", "time": "date"}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[Path, Path, Path]:
    return write_sample(tmp_path_factory.mktemp("sample") / "new" / "folder")


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_sample_files_have_fixed_contents(files, tmp_path):
    assert [path.name for path in files] == ["calls.csv", "tomorrow.csv", "ask.csv"]
    for path, again in zip(files, write_sample(str(tmp_path)), strict=True):
        assert path.read_bytes() == again.read_bytes()
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    assert digest[:16] == "f033debb037f1631"


def test_the_sample_is_a_call_log_with_dates(files):
    calls = rows(files[0])
    assert 1400 <= len(calls) <= 1600
    assert list(calls[0]) == ["caller", "callee", "date", "minutes"]
    dates = [call["date"] for call in calls]
    assert dates == sorted(dates)
    assert dates[0].startswith("2024-03-01T")
    assert dates[-1].startswith("2024-05-19T")
    assert all(date.endswith(":00Z") for date in dates)
    pairs = {(call["caller"], call["callee"]) for call in calls}
    assert {("ann", "bob"), ("bob", "ann")} <= pairs
    assert all(caller != callee for caller, callee in pairs)
    assert len({name for pair in pairs for name in pair}) == 60
    assert {int(call["minutes"]) for call in calls} <= {*range(1, 61)}


def test_tomorrow_follows_the_log_and_has_one_new_caller(files):
    known = {call[end] for call in rows(files[0]) for end in ("caller", "callee")}
    calls = rows(files[1])
    dates = [call["date"] for call in calls]
    assert 30 <= len(calls) <= 50
    assert dates == sorted(dates)
    assert all(date.startswith("2024-05-20T") for date in dates)
    assert {call["caller"] for call in calls} - known == {"zoe"}
    assert {call["callee"] for call in calls} <= known


def test_pairs_to_score_have_an_extra_column(files):
    questions = rows(files[2])
    assert list(questions[0]) == ["caller", "callee", "date", "ticket"]
    assert len({question["ticket"] for question in questions}) == len(questions) > 3
    assert all(question["date"] >= "2024-05-20" for question in questions)
    assert ("ann", "bob") in {(question["caller"], question["callee"]) for question in questions}


def test_the_sample_log_can_be_loaded_and_continued(files):
    stream = GrowingStream(load(files[0], features=["minutes"], cache=False, **COLUMNS))
    tomorrow = load(files[1], features=["minutes"], cache=False, **COLUMNS)
    assert stream.dataset().dates
    assert not stream.dataset().notes
    arrival = stream.arrival(read_csv(str(files[1])), csv_origin(files[1]))
    assert (arrival.late, arrival.skipped, len(arrival.events)) == (0, 0, len(tomorrow.events))
    assert arrival.new_names == (("zoe", False),)
    assert float(arrival.events.time[0]) == float(tomorrow.events.time[0])


def test_existing_files_are_not_overwritten(tmp_path):
    (tmp_path / "ask.csv").write_text("other content")
    with pytest.raises(DsrdError, match=r"ask\.csv: already exists; remove it, or choose another folder"):
        write_sample(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["ask.csv"]
    assert (tmp_path / "ask.csv").read_text() == "other content"
