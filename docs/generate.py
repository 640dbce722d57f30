"""Write models, settings and results of docs/reference, and the table of results in README.md.

`python docs/generate.py` after a change of either; a test compares.
"""

from __future__ import annotations

import inspect
import json
import re
import statistics
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from typer.testing import CliRunner

from dsrd import SynthConfig, model_names
from dsrd.cli.main import app
from dsrd.cli.settings_help import comments
from dsrd.config import PARTS, RunConfig, model_label
from dsrd.models import model_class, published, settings

HERE = Path(__file__).parent
KINDS = ("random", "historical", "inductive")
NOTE = "<!-- Written by docs/generate.py; change the code, then run it again. -->\n"


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
        yield Setting(each.name, _kind(kinds[each.name]), _typed(each.default), about[each.name])


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


def _typed(value: Any) -> str:
    """A value as one would type it."""
    if isinstance(value, tuple):
        return ",".join(map(_typed, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


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


def link_results() -> tuple[dict[tuple[str, ...], list[dict[str, Any]]], list[dict[str, Any]]]:
    """What records say of links, by (data set, protocol, setting, model, head), and the records about nodes."""
    runs: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    nodes: list[dict[str, Any]] = []
    for file in sorted((HERE.parent / "results").glob("*.jsonl")):
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if record.get("task") == "node":
                nodes.append(record)
                continue
            for head, found in _heads(record):
                for setting, values in found.items():
                    row = (record["dataset"], record["protocol"], setting, _model(record), head)
                    runs.setdefault(row, []).append(values)
    return runs, nodes


def best_published() -> tuple[dict[tuple[str, str], Any], str]:
    """The best published cells, by (data set, setting), and where they stand."""
    published = json.loads((HERE / "best_published.json").read_text(encoding="utf-8"))
    return {(each["dataset"], each["setting"]): each["best"] for each in published["cells"]}, published["source"]


def results_page() -> str:
    """Mean test results of every model, data set and protocol in `results`, a row for each head."""
    runs, nodes = link_results()
    best, source = best_published()
    lines = [
        "# Results",
        "",
        NOTE,
        "Test AP / AUC in percent (mean over batches), from the records in `results/`. A cell is the mean over "
        "seeds, with the standard deviation of AP where there are several. Each record holds its settings, and so "
        "the command that repeats it: `dsrd train --dataset D --model M --seed S --protocol P` with them, "
        "or `dsrd evaluate` for a model that learns nothing. A record with `trained` belongs to a run that was "
        "trained under the protocol named there and measured by `dsrd evaluate RUN --protocol P`.",
        "",
        f"*best published*: {source}. Measured under dyglib.",
        "",
        "*published view*: the same weights, their state held to what published states know "
        "(`evaluate.known=trained`, see [the protocol](../explanation/protocol.md#passes)).",
    ]
    for place in sorted({key[:3] for key in runs}):
        lines += ["", f"## {place[0]}, {place[1]}, {place[2]} setting", ""]
        lines += ["| model | seeds | " + " | ".join(KINDS) + " |", "| --- | --- |" + " --- |" * len(KINDS)]
        for key, seeds in sorted(runs.items(), key=lambda item: item[0]):
            if key[:3] == place:
                name = key[3] if key[4] in ("", "link") else f"{key[3]} ({key[4]})"
                cells = " | ".join(_cell([values.get(kind) for values in seeds]) for kind in KINDS)
                lines.append(f"| {name} | {len(seeds)} | {cells} |")
        if place[1] == "dyglib" and (place[0], place[2]) in best:
            lines.append(f"| *best published* | 5 | {' | '.join(_best(best[place[0], place[2]]))} |")
    return "\n".join([*lines, *_beside_published(), *_other_streams(), *_node_results(nodes), *_speed()]) + "\n"


def _model(record: Mapping[str, Any]) -> str:
    config = record["config"]
    view = ", published view" if config["evaluate"].get("known") == "trained" else ""
    usual = json.loads(json.dumps(asdict(settings(record["model"], record["dataset"], record["preset"], {}))))
    changed = (f", {key}={_typed(value)}" for key, value in config["model_args"].items() if value != usual[key])
    return model_label(record["model"], record["preset"]) + "".join(changed) + view


def _best(cells: Mapping[str, Mapping[str, list[Any]]]) -> Iterator[str]:
    for kind in KINDS:
        (ap, who), (auc, other) = cells[kind]["ap"], cells[kind]["auc"]
        yield f"{ap:.2f} / {auc:.2f} ({who if who == other else f'{who}, {other}'})"


def _node_results(records: list[dict[str, Any]]) -> list[str]:
    """Classification of nodes, a line for each record."""
    if not records:
        return []
    rows = []
    for record in records:
        found = record["results"]["test"]
        for name, part in [("", found), *found.get("classes", {}).items()]:
            auc, auprc = (
                f"{part[figure]:.2f} ({part[f'{figure}_low']:.2f} to {part[f'{figure}_high']:.2f})"
                for figure in ("auc", "auprc")
            )
            kind = name or ("mean of classes" if "classes" in found else "positive")
            row = [record["dataset"], _model(record), record["training"], record["asks"]]
            rows.append([*row, str(record["seed"]), kind, auc, auprc, f"{part['auprc_factor']:.2f}"])
    columns = ["data set", "model", "training", "asked of", "seed", "class", "ROC-AUC", "AUPRC", "over chance"]
    about = "Test, in percent, with 95 % bootstrap intervals. How the questions are asked: "
    about += "[classify nodes](../how-to/classify-nodes.md)."
    return ["", "## Classification of nodes", "", about, "", table(columns, rows).rstrip("\n")]


def _beside_published() -> list[str]:
    """What each baseline reaches here and in its published row."""
    published = json.loads((HERE / "published_rows.json").read_text(encoding="utf-8"))
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in (HERE.parent / "results" / "baselines.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["protocol"] == "dyglib":
            runs.setdefault((record["dataset"], _model(record)), []).append(record)
    rows = []
    for (dataset, name), records in sorted(runs.items()):
        mean, spread = published["ap"][dataset][records[0]["model"]]
        found = [record["results"]["transductive"]["random"]["ap"] for record in records]
        epochs = ", ".join(f"{each['timing']['best_epoch']} of {each['timing']['epochs']}" for each in records)
        ours = f"{statistics.mean(found):.2f}" + (f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else "")
        difference = f"{statistics.mean(found) - mean:+.2f}"
        rows.append([dataset, name, str(len(found)), ours, f"{mean:.2f} ± {spread:.2f}", difference, epochs])
    columns = ["data set", "model", "seeds", "AP here", "published", "difference", "best epoch"]
    about = (
        "Test AP against random negatives, transductive, dyglib, published settings, to early stopping or the "
        f"limit of time in the record; learning curves are in the records. *published*: {published['source']}. "
        "What explains a difference: [why some baseline rows differ](../explanation/baseline-rows.md)."
    )
    return ["", "## Baselines beside their published rows", "", about, "", table(columns, rows).rstrip("\n")]


def _other_streams() -> list[str]:
    """What models reach in equal minutes on streams that nothing was tuned on."""
    found: dict[str, dict[str, Any]] = {}
    file = HERE.parent / "results" / "other-streams" / "records.jsonl"
    for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        for head, results in _heads(record):
            name = record["model"] if head in ("", "link") else f"{record['model']} ({head})"
            found.setdefault(record["dataset"], {})[name] = results["transductive"]
    models = sorted({name for by_model in found.values() for name in by_model})
    rows = [
        [stream, kind, *(_cell([by_model.get(name, {}).get(kind)]) for name in models)]
        for stream, by_model in found.items()
        for kind in KINDS[:2]
    ]
    about = "Transductive, dyglib, one seed, two minutes of training on one thread for each model, defaults; what "
    about += "the streams are and the command: `results/other-streams/README.md`."
    shown = table(["stream", "negatives", *models], rows).rstrip("\n")
    return ["", "## Streams that nothing was tuned on", "", about, "", shown]


def _speed() -> list[str]:
    """Seconds of every model in results/speed.jsonl, the median of its records, beside those of public code."""
    public = json.loads((HERE / "public_speed.json").read_text(encoding="utf-8"))
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (HERE.parent / "results" / "speed.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["dataset"] == public["dataset"]:
            found.setdefault(model_label(record["model"], record["preset"]), []).append(record)
    rows = []
    for name, records in found.items():
        cells = [name, str(len(records))]
        for key, other in (("seconds_per_epoch", "epoch"), ("seconds_per_1000_pairs", "pairs")):
            mine = statistics.median(record["timing"][key] for record in records)
            there = public["seconds"].get(name, {}).get(other)
            cells += [f"{mine:.3g}" if mine < 100 else f"{mine:,.0f}", f"{there:,g}" if there else "-"]
            cells.append(f"{there / mine:.1f}" if there else "-")
        memory = max(record["peak_rss_mb"] for record in records)
        rows.append([*cells, f"{memory:.0f}", ", ".join(f"{each['machine']['load']:.1f}" for each in records)])
    rows.sort(key=lambda row: float(row[2].replace(",", "")))
    columns = ["model", "runs", "s per epoch", "public code", "times faster"]
    columns += ["s per 1,000 pairs", "public code", "times faster", "peak MB", "load"]
    about = (
        f"{public['dataset']}, batches of 200, published settings, one thread: `dsrd bench speed --dataset "
        f"{public['dataset']} --model M`, with `--batches 25` (cawn: 10) for all but dsrd. *public code*: "
        f"{public['source'][0].lower()}{public['source'][1:]}. *load*: of the machine, two cores, at the time."
    )
    return ["", "## Speed", "", about, "", table(columns, rows).rstrip("\n")]


def _heads(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "results" in record:
        yield record.get("head", ""), record["results"]
    for head, found in record.get("heads", {}).items():
        yield head, found["results"]


def _cell(found: list[Mapping[str, float] | None]) -> str:
    values = [value for value in found if value]
    if not values:
        return "-"
    ap, auc = ([value[metric] for value in values] for metric in ("ap", "auc"))
    spread = f" ± {statistics.stdev(ap):.2f}" if len(ap) > 1 else ""
    return f"{statistics.mean(ap):.2f}{spread} / {statistics.mean(auc):.2f}"


def readme() -> str:
    """The README with its table of results written anew: each kind of negatives answered by the head it asks."""
    runs, _ = link_results()
    best, _ = best_published()
    datasets = sorted({dataset for dataset, _ in best}, key=str.lower)
    rows = []
    for kind, head in zip(KINDS, ("partner", "pair", "pair"), strict=True):
        for setting in ("transductive", "inductive"):
            row = [kind, setting]
            for dataset in datasets:
                seeds = runs[dataset, "dyglib", setting, "dsrd", head]
                ours = statistics.mean(seed[kind]["ap"] for seed in seeds)
                theirs = best[dataset, setting][kind]["ap"][0]
                row.append(f"**{ours:.2f}** / {theirs:.2f}" if ours > theirs else f"{ours:.2f} / **{theirs:.2f}**")
            rows.append(row)
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    begin, end = "<!-- results: docs/generate.py -->\n", "<!-- /results -->"
    before, rest = text.split(begin)
    return before + begin + table(["negatives", "setting", *datasets], rows) + end + rest.split(end)[1]


def pages() -> dict[str, str]:
    """Each generated page by its file name, seen from here."""
    return {
        "reference/models.md": models_page(),
        "reference/settings.md": settings_page(),
        "reference/results.md": results_page(),
        "../README.md": readme(),
    }


if __name__ == "__main__":
    for file, content in pages().items():
        (HERE / file).write_text(content, encoding="utf-8")
        print(HERE / file)
