"""Records as they come: of many kinds and versions, from files and folders; what is none is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsrd.experiments.labels import command, is_earlier, record_label
from dsrd.report import report
from dsrd.report.build import gathered
from dsrd.report.measured import cut_by_time
from dsrd.report.records import READ_FROM, kind_of, read
from support.errors import error_of

KINDS = {"link", "node", "audit", "calibration", "benchmark", "speed"}


def test_every_committed_record_is_read(records: list[Any]):
    assert {kind_of(record) for record in records} >= KINDS
    assert all(":" in record[READ_FROM] for record in records)


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_files_and_folders_of_runs_are_read_once(own_record: dict[str, Any], tmp_path: Path):
    lines = write(tmp_path / "results.jsonl", own_record, own_record)
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    (run / "record.json").write_text(json.dumps(own_record, indent=1))
    (run / "log.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n')
    assert [each[READ_FROM] for each in read([lines])] == ["results.jsonl:1"]
    assert len(read([lines, run / "record.json", tmp_path])) == 1
    assert len(gathered([own_record, own_record | {"seed": 1}])) == 2


def test_what_is_no_record_is_refused_by_name(own_record: dict[str, Any], tmp_path: Path):
    empty, odd = write(tmp_path / "empty.jsonl"), write(tmp_path / "odd.jsonl", own_record, {"colour": "red"})
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(own_record)[:100] + "\n")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(bytes(range(256)))
    listed = write(tmp_path / "list.jsonl", [1, 2])
    lacking = write(tmp_path / "lacking.jsonl", {key: own_record[key] for key in own_record if key != "config"})
    half = write(tmp_path / "half.jsonl", own_record | {"config": {"train": {}}})
    (tmp_path / "nothing").mkdir()
    assert "empty.jsonl: no records in this file" in error_of(read, [empty])
    assert "odd.jsonl:2: is no record" in error_of(read, [odd])
    assert "broken.jsonl: line 1" in error_of(read, [broken])
    assert "binary.jsonl: cannot be read as text in UTF-8" in error_of(read, [binary])
    assert "list.jsonl:1: is no record" in error_of(read, [listed])
    assert "lacking.jsonl:1: the record of dsrd on synth" in error_of(read, [lacking])
    assert "has no config.model_args, config.evaluate" in error_of(read, [half])
    assert "nothing: no records in this folder" in error_of(read, [tmp_path / "nothing"])
    assert "no such file" in error_of(read, [tmp_path / "gone.jsonl"])
    assert "no records" in error_of(report, [])
    assert "record 1: is no record" in error_of(report, [{"colour": "red"}])
    assert "is no record" in error_of(gathered, [17])


def test_records_of_other_versions_are_read_and_marked(own_record: dict[str, Any]):
    assert not is_earlier(own_record)
    args = own_record["config"]["model_args"]
    gone = own_record | {"config": own_record["config"] | {"model_args": args | {"setting_that_is_gone": 1}}}
    assert record_label(gone) == "dsrd, earlier version"
    assert command(gone) == ""
    foreign = own_record | {"model": "a-model-of-mine"}
    assert record_label(foreign) == "a-model-of-mine"
    assert command(foreign) == ""


def test_the_command_repeats_the_record(own_record: dict[str, Any]):
    words = command(own_record)
    assert words.startswith("dsrd train --dataset synth:events=800 --model dsrd --protocol strict --seed 0")
    assert "--set model.dim=8" in words
    assert "--set train.epochs=1" in words


def test_a_rule_is_repeated_by_evaluating_it(records: list[Any]):
    rule = next(each for each in records if each.get("model") == "edgebank" and each["protocol"] == "strict")
    assert command(rule).startswith(
        f"dsrd evaluate --dataset {rule['dataset']} --model edgebank --protocol strict"
    )


@pytest.mark.parametrize(
    ("epochs", "best", "cut"), [(30, 29, False), (24, 14, False), (24, 20, True), (3, 3, True)]
)
def test_training_that_was_cut_by_time_is_found(own_record: dict[str, Any], epochs: int, best: int, cut: bool):
    """It ended with neither its epochs nor its patience used up."""
    train = own_record["config"]["train"] | {"epochs": 30, "patience": 10}
    record = own_record | {"config": own_record["config"] | {"train": train}}
    record["timing"] = record["timing"] | {"epochs": epochs, "best_epoch": best}
    assert cut_by_time(record) is cut
