"""`dsrd models`: the list, the description of one model, and both as JSON."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dsrd.cli.settings_help import choices, comments
from dsrd.models import model_class, names
from support.program import STATELESS, TRAINED, UNTRAINED, done, finish, refused, start


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in done("models", "--json").json["models"]}


def test_every_model_has_a_description(rows: dict[str, dict[str, Any]]):
    assert list(rows) == names()
    for name, row in rows.items():
        assert set(row) >= {"paper", "year", "reads", "state", "bytes", "cost", "options", "fidelity"}, name
        assert row["cost"] != "not said", f"{name} does not say what a score costs"
        assert 0 < len(row["cost"]) <= 50, name
        assert row["reads"], name
        assert (
            set(row["settings"])
            == set(row["comments"])
            == {each.name for each in fields(model_class(name).Config)}
        )
        assert set(row["published_settings"]) == set(row["published"])
    assert rows[UNTRAINED]["year"] == 2022
    assert rows[TRAINED]["bytes"] == rows[TRAINED]["state_bytes_per_node"] > 0
    assert rows[STATELESS]["state"] == []


def test_options_are_the_switches_of_the_configuration(rows: dict[str, dict[str, Any]]):
    assert rows[TRAINED]["options"] == {
        "sampling": {"values": ["recent", "uniform", "decayed"], "fidelity": False},
        "last_message": {"values": ["time", "role"], "fidelity": True},
        "attend_padding": {"values": ["true", "false"], "fidelity": True},
    }
    for name, row in rows.items():
        for key in re.findall(r"^.*`(\w+)=", row["description"].partition("Fidelity\n")[2], re.M):
            assert row["options"][key]["fidelity"], f"{name}: {key}"


def test_models_counts_fidelity_notes(rows: dict[str, dict[str, Any]]):
    assert rows[TRAINED]["fidelity"] == 4
    assert rows[UNTRAINED]["fidelity"] == 2


def test_the_list_is_readable_on_a_terminal(rows: dict[str, dict[str, Any]]):
    shown = done("models").out
    assert all(len(line.rstrip()) <= 80 for line in shown.splitlines())
    told = " ".join(shown.split())
    for row in rows.values():
        for part in ("summary", "reads", "cost"):
            assert row[part] in told
    assert re.search(rf"^{TRAINED} .* 2020 +963,969 +2,481 +4$", shown, re.M)


@pytest.mark.parametrize("name", names())
def test_models_describes_one_model(name: str, rows: dict[str, dict[str, Any]]):
    shown = done("models", name).out
    row, told = rows[name], " ".join(shown.split())
    assert " ".join(row["description"].split()) in told
    prose = [line for line in shown.splitlines() if not line.startswith("    ")]
    assert all(len(line) <= 80 for line in prose)
    for key, about in row["comments"].items():
        assert re.search(rf"^  {key}=\S", shown, re.M), key
        assert about in told
    for dataset in row["published"]:
        assert re.search(rf"\b{dataset}\b", shown.partition("published rows")[2]), dataset
    for preset in row["presets"]:
        assert f"--preset {preset}" in shown


def test_models_describes_one_model_as_json(rows: dict[str, dict[str, Any]]):
    assert done("models", TRAINED, "--json").json["models"] == [rows[TRAINED]]


def test_an_unknown_model_is_refused():
    assert "unknown model 'tng'; did you mean 'tgn'?" in refused("models", "tng")
    assert "unknown model 'tng'" in refused("models", "tng", "--json")


def test_comments_and_choices_of_a_configuration():
    config = model_class(TRAINED).Config
    assert comments(config)["layers"] == "attention layers"
    assert comments(config)["dropout"] == ""
    assert list(choices(config)) == ["sampling", "last_message", "attend_padding"]


def test_a_folder_of_own_models_that_is_not_there_is_named(tmp_path: Path):
    outcome = finish(start("models", DSRD_MODELS=str(tmp_path / "mine")))
    assert outcome.code == 2
    assert outcome.error.endswith("mine: no such folder; correct it, or unset the variable")
