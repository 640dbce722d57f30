"""Tables made from the records in `results/`: the page of results, and those of README.md and audit.md."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dsrd.experiments.labels import record_label as _model
from dsrd.experiments.labels import typed as typed
from dsrd.report.measured import preferred

HERE = Path(__file__).parent
KINDS = ("random", "historical", "inductive")
SETTINGS = ("transductive", "inductive")
NOTE = "<!-- Written by docs/generate.py; change the code, then run it again. -->\n"


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def link_results() -> tuple[dict[tuple[str, ...], list[dict[str, Any]]], list[dict[str, Any]]]:
    """What records say of links, by (data set, protocol, setting, model, head), and the records about nodes."""
    runs: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
    nodes: list[dict[str, Any]] = []
    for file in sorted((HERE.parent / "results").glob("*.jsonl")):
        for record in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            if record.get("task") == "node":
                nodes.append(record)
                continue
            for head, found in _heads(record):
                for setting, values in found.items():
                    row = (record["dataset"], record["protocol"], setting, _model(record), head)
                    of_seed = runs.setdefault(row, {}).setdefault(record["seed"], {})
                    for kind, cell in values.items():
                        if kind not in of_seed or preferred(record, of_seed[kind][0]) is record:
                            of_seed[kind] = record, cell
    cells = {
        row: [{kind: cell for kind, (_, cell) in each.items()} for each in seeds.values()]
        for row, seeds in runs.items()
    }
    return cells, nodes


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
        "",
        "*earlier version*: a record of the model as it was before its latest change; its settings, some of which "
        "no longer exist, are in the record. *law*: the score read against the known law of the negatives "
        "([readings](../explanation/questions.md#two-readings)); all other rows are read plainly.",
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
            row = [record["dataset"], _model(record), record["training"], record["asks"], record["visible"]]
            rows.append([*row, str(record["seed"]), kind, auc, auprc, f"{part['auprc_factor']:.2f}"])
    columns = ["data set", "model", "training", "asked of", "visible", "seed", "class", "ROC-AUC", "AUPRC"]
    columns.append("over chance")
    about = "Test, in percent, with 95 % bootstrap intervals. How the questions are asked: "
    about += "[classify nodes](../how-to/classify-nodes.md)."
    return ["", "## Classification of nodes", "", about, "", table(columns, rows).rstrip("\n")]


def _beside_published() -> list[str]:
    """What each baseline reaches here and in its published row."""
    published = json.loads((HERE / "published_rows.json").read_text(encoding="utf-8"))
    runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for line in (HERE.parent / "results" / "baselines.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["protocol"] == "dyglib":
            of_row = runs.setdefault((record["dataset"], _model(record)), {})
            of_row[record["seed"]] = preferred(record, of_row.get(record["seed"]))
    rows = []
    for (dataset, name), records in sorted((row, [*seeds.values()]) for row, seeds in runs.items()):
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
            name = _model(record) if head in ("", "link") else f"{_model(record)} ({head})"
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
            found.setdefault(_model(record), []).append(record)
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
    """The README with its tables written anew."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    text = filled(text, "results", _headline())
    return filled(text, "rules", _rules_beside_published())


def filled(text: str, name: str, content: str) -> str:
    """A page with the part between the two marks of that name replaced."""
    begin, end = f"<!-- {name}: docs/generate.py -->\n", f"<!-- /{name} -->"
    before, rest = text.split(begin)
    return before + begin + content + end + rest.split(end)[1]


def _headline() -> str:
    """DSRD beside the best published: each kind of negatives by the head it asks, then read by the law."""
    runs, _ = link_results()
    best, _ = best_published()
    datasets = sorted({dataset for dataset, _ in best}, key=str.lower)

    def seeds(dataset: str, setting: str, head: str) -> list[dict[str, Any]]:
        return runs.get((dataset, "dyglib", setting, "dsrd", head), [])

    plain, law = [], []
    for kind, head in zip(KINDS, ("partner", "pair", "pair"), strict=True):
        for setting in SETTINGS:
            theirs = [best[dataset, setting][kind]["ap"][0] for dataset in datasets]
            ours, read = (
                [_mean_ap(seeds(dataset, setting, label), kind) for dataset in datasets] for label in (head, "law")
            )
            plain.append([kind, setting, *map(_beside, ours, theirs)])
            if kind != "random":
                law.append([kind, setting, *map(_beside, read, theirs)])
    counts = ", ".join(f"{each} {len(seeds(each, 'transductive', 'partner')) or 'none yet'}" for each in datasets)
    columns = ["negatives", "setting", *datasets]
    shown = f"{table(columns, plain)}\nSeeds: {counts}.\n"
    by_law = any(key[4] == "law" and key[1] == "dyglib" for key in runs)
    return shown + (f"\nThe same scores, read by the law:\n\n{table(columns, law)}" if by_law else "")


def _mean_ap(seeds: list[dict[str, Any]], kind: str) -> float | None:
    found = [values[kind]["ap"] for values in seeds if values.get(kind)]
    return statistics.mean(found) if found else None


def _beside(ours: float | None, theirs: float) -> str:
    if ours is None:
        return f"- / {theirs:.2f}"
    return f"**{ours:.2f}** / {theirs:.2f}" if ours > theirs else f"{ours:.2f} / **{theirs:.2f}**"


def _audits() -> list[dict[str, Any]]:
    """What `dsrd data audit NAME --json` printed for each data set."""
    lines = (HERE.parent / "results" / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _rules_beside_published() -> str:
    """AP of the rules that learn nothing and the best published, transductive; bold where a rule is above."""
    best, _ = best_published()
    audits = sorted(_audits(), key=lambda audit: audit["dataset"].lower())
    rows = []
    for kind in KINDS:
        theirs = [best[audit["dataset"], "transductive"][kind]["ap"][0] for audit in audits]
        for rule in ("last_active", "strangers_first"):
            found = [audit["unlearned"][kind][f"{rule}_ap"] for audit in audits]
            cells = (
                f"**{ap:.2f}**" if ap > other else f"{ap:.2f}" for ap, other in zip(found, theirs, strict=True)
            )
            rows.append([kind, rule.replace("_", " "), *cells])
        rows.append([kind, "*best published*", *(f"{ap:.2f}" for ap in theirs)])
    return table(["negatives", "rule", *(audit["dataset"] for audit in audits)], rows)


Column = tuple[str, Callable[[Mapping[str, Any]], str]]  # title, and a cell of an audit


def audit_page() -> str:
    """The page about the audit with its tables written anew, a row for each data set."""
    text = (HERE / "explanation" / "audit.md").read_text(encoding="utf-8")
    text = filled(text, "rules", _rules_beside_published())
    for name, columns in AUDIT_TABLES.items():
        rows = [[audit["dataset"], *(cell(audit) for _, cell in columns)] for audit in _audits()]
        text = filled(text, name, table(["", *(title for title, _ in columns)], rows))
    return text


def _share(title: str, *path: str) -> Column:
    return title, lambda audit: f"{100 * _at(audit, path):.1f} %"


def _ceiling(title: str, *path: str) -> Column:
    def cell(audit: Mapping[str, Any]) -> str:
        figures = _at(audit, ("negatives", *path))
        return f"{figures['ceiling_ap']:.2f} / {figures['ceiling_auc']:.2f}"

    return title, cell


def _at(audit: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        audit = audit[key]
    return audit


def _true(kind: str, setting: str) -> Column:
    return _share(f"{kind}: true", "negatives", setting, kind, "true_at_that_time")


def _filled_up(title: str, setting: str, kind: str) -> Column:
    return _share(title, "negatives", setting, kind, "filled_up")


AUDIT_TABLES: Mapping[str, list[Column]] = {
    "transductive": [
        _true("random", "transductive"),
        _ceiling("random: ceiling AP / AUC", "transductive", "random"),
        _true("historical", "transductive"),
        _true("inductive", "transductive"),
        _ceiling("inductive: ceiling AP / AUC", "transductive", "inductive"),
    ],
    "new nodes": [
        _true("random", "inductive"),
        _ceiling("random: ceiling AP / AUC", "inductive", "random"),
        _true("historical", "inductive"),
        _ceiling("historical: ceiling AP / AUC", "inductive", "historical"),
    ],
    "filled up": [
        _filled_up("transductive: historical", "transductive", "historical"),
        _filled_up("transductive: inductive", "transductive", "inductive"),
        _filled_up("new nodes: historical, inductive", "inductive", "historical"),
    ],
    "given away": [_share(kind, "unlearned", kind, "given_away") for kind in KINDS],
    "order": [
        _share("test events whose timestamp an earlier batch has shown", "seen_timestamp_share"),
        _share("rows alike, in the file", "grouping", "observed"),
        _share("rows alike, if shuffled", "grouping", "expected"),
        ("grouped", lambda audit: "yes" if audit["grouping"]["grouped"] else "no"),
    ],
    "repetition": [
        _share("pair was in training", "repetition", "pair_in_train"),
        _share("pair happened before", "repetition", "pair_before"),
        _share("surprise", "repetition", "surprise"),
        _share("a new node", "new_nodes", "one_or_both"),
        _share("two new nodes", "new_nodes", "both"),
    ],
}
