"""Write models, settings and results of docs/reference, and tables of README.md and explanation from records.

`python docs/generate.py` after a change of any; a test compares. What is made from records is in `record_pages`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import hardening_tables
from memory_tables import one_machine_page
from record_pages import NOTE, audit_page, readme, results_page, table, typed
from study_tables import calibration_page, dsrd_page, questions_page, where_not_first_page
from typer.testing import CliRunner

from dsrd import SynthConfig, model_names
from dsrd.cli.main import app
from dsrd.cli.settings_help import comments
from dsrd.config import PARTS, RunConfig
from dsrd.models import model_class, published

HERE = Path(__file__).parent


class Setting(NamedTuple):
    """One field of a configuration, in words."""

    name: str
    kind: str
    default: str
    about: str


def settings_of(config: type[Any]) -> Iterator[Setting]:
    """The fields of a dataclass with what their source says of them."""
    about, kinds = comments(config), get_type_hints(config)
    for each in fields(config):
        yield Setting(each.name, _kind(kinds[each.name]), typed(each.default), about[each.name])


def _kind(wanted: Any) -> str:
    origin, options = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        return " or ".join(f"`{option}`" for option in options)
    if origin is tuple:
        return f"list of {_kind(options[0])}"
    if origin is types.UnionType:
        return " or ".join(_kind(option) for option in options)
    words = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "`true` or `false`",
        types.NoneType: "`none`",
    }
    return words.get(wanted, str(wanted))


def settings_table(config: type[Any], prefix: str = "", only: tuple[str, ...] = ()) -> str:
    rows = [
        [f"`{prefix}{each.name}`", each.kind, f"`{each.default}`" if each.default else "", each.about]
        for each in settings_of(config)
        if not only or each.name in only
    ]
    return table(["key", "value", "default", ""], rows) if rows else "Nothing to set.\n"


def settings_page() -> str:
    """Every key that `--set` and `RunConfig.with_overrides` take."""
    parts = [
        "# Settings\n",
        NOTE,
        "Give a setting as `--set KEY=VALUE` on the command line, or as a keyword of `LinkPredictor` in Python: "
        "`LinkPredictor(epochs=5)`, or with its part where a name occurs twice: `train__batch_size=100`. "
        "A wrong key is refused, and the nearest right one is named.\n",
        "## The run\n",
        settings_table(RunConfig, only=("preset", "seed")),
        "Data set, model and protocol have options of their own: `--dataset`, `--model`, `--protocol`.\n",
    ]
    for part, config in PARTS.items():
        parts += [f"## `{part}`\n", f"{_summary(config)}\n", settings_table(config, f"{part}.")]
    for name in model_names():
        parts += [f"## `model`, for {name}\n", settings_table(model_class(name).Config, "model.")]
    parts += [
        "## `synth`\n",
        "The synthetic stream: `--dataset synth:events=5000,bipartite=true`, "
        "or `dsrd data synth OUT --set events=5000`.\n",
        settings_table(SynthConfig),
    ]
    return "\n".join(parts)


def models_page() -> str:
    """The table that `dsrd models` prints, then the docstring of each model."""
    printed = CliRunner().invoke(app, ["models", "--json"], catch_exceptions=False).stdout
    rows = json.loads(printed.splitlines()[-1])["models"]
    columns = ["model", "paper", "year", "a score reads", "state", "bytes per node", "cost of a score", "weights"]
    lines = [
        [
            f"[{row['name']}](#{row['name']})",
            re.sub(r",? \d{4}$", "", row["paper"]),
            str(row["year"] or "-"),
            row["reads"],
            ", ".join(row["state"]) or "none",
            f"{row['state_bytes_per_node']:,}",
            row["cost"],
            f"{row['parameters']:,}",
        ]
        for row in rows
    ]
    switches = [[f"[{row['name']}](#{row['name']})", _options(row), str(row["fidelity"])] for row in rows]
    parts = [
        "# Models\n",
        NOTE,
        "Sizes are those of the default settings on a stream without features. A state of 0 bytes per node grows "
        "with the events instead. k is the setting `neighbors`. All settings: [the list](settings.md).\n",
        table(columns, lines),
        "These settings choose between variants of a model. A star: explained under *Fidelity* in the section of "
        "the model, which lists where it departs from paper or public code; *points* counts these.\n",
        table(["model", "options", "points"], switches),
    ]
    for row in rows:
        parts += [f"## {row['name']}\n", _own_words(row["name"]), _published(row["name"]), _presets(row)]
    return "\n".join(parts)


def _options(row: Mapping[str, Any]) -> str:
    told = (f"`{key}={'|'.join(each['values'])}`{'*' * each['fidelity']}" for key, each in row["options"].items())
    return ", ".join(told) or "none"


def _own_words(name: str) -> str:
    text = inspect.cleandoc(sys.modules[model_class(name).__module__].__doc__ or "")
    return text.replace("Fidelity\n--------\n", "**Fidelity**\n\n") + "\n"


def _published(name: str) -> str:
    """Settings of the published rows, data sets with equal ones together."""
    groups: dict[str, list[str]] = {}
    for dataset, given in published(name).items():
        groups.setdefault(_listed(given), []).append(dataset)
    if not groups:
        return ""
    rows = [[", ".join(datasets), given] for given, datasets in groups.items()]
    return "Settings of the published rows (`preset=published`, the default):\n\n" + table(
        ["data sets", "settings"], rows
    )


def _presets(row: Mapping[str, Any]) -> str:
    """What each preset of the model's own sets."""
    return "\n".join(
        f"`preset={name}`, {each['about']} ({each['parameters']:,} parameters, {each['state_bytes_per_node']:,} "
        f"bytes per node): {_listed(each['settings'])}\n"
        for name, each in row["presets"].items()
    )


def _listed(given: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}={value}`" for key, value in sorted(given.items()))


def _summary(config: type[Any]) -> str:
    return inspect.cleandoc(config.__doc__ or "").splitlines()[0]


def pages() -> dict[str, str]:
    """Each generated page by its file name, seen from here."""
    return {
        "reference/models.md": models_page(),
        "reference/settings.md": settings_page(),
        "reference/results.md": results_page(),
        "explanation/audit.md": audit_page(),
        "explanation/dsrd.md": dsrd_page(),
        "explanation/calibration.md": calibration_page(),
        "explanation/questions.md": questions_page(),
        "explanation/where-not-first.md": where_not_first_page(),
        "explanation/one-machine.md": one_machine_page(),
        "../README.md": readme(),
        **hardening_tables.pages(),
    }


if __name__ == "__main__":
    for file, content in pages().items():
        (HERE / file).write_text(content, encoding="utf-8")
        print(HERE / file)
