"""Tables of docs/explanation from records of studies: memories, ablations, calibration, questions."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from record_pages import KINDS as NEGATIVES
from record_pages import SETTINGS, filled, link_results, table

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
KINDS = ("repeat", "reply", "follow")
Records = list[dict[str, Any]]


def dsrd_page() -> str:
    """The page with its tables written anew."""
    text = (HERE / "explanation" / "dsrd.md").read_text(encoding="utf-8")
    text = filled(text, "memories", _memories())
    text = filled(text, "known memories", _known_memories())
    return filled(text, "ablations", _ablations())


def calibration_page() -> str:
    """The page about calibration with its table written anew."""
    text = (HERE / "explanation" / "calibration.md").read_text(encoding="utf-8")
    return filled(text, "calibration", _calibrations())


def questions_page() -> str:
    """The page about questions with its table written anew."""
    text = (HERE / "explanation" / "questions.md").read_text(encoding="utf-8")
    return filled(text, "questions", _questions())


def where_not_first_page() -> str:
    """The page about where DSRD is not first with its table written anew."""
    text = (HERE / "explanation" / "where-not-first.md").read_text(encoding="utf-8")
    return filled(text, "strict", _strict_beside_baselines(("CanParl", "USLegis")))


def _strict_beside_baselines(datasets: Iterable[str]) -> str:
    """AP / AUC of DSRD under `strict`, each question by its head, and all baselines that are above it in AP."""
    runs, _ = link_results()
    rows = []
    for dataset in datasets:
        for setting in SETTINGS:
            for kind, head in zip(NEGATIVES, ("partner", "pair", "pair"), strict=True):
                found = {
                    (model, of): _means(values, kind)
                    for (data, protocol, where, model, of), values in runs.items()
                    if (data, protocol, where) == (dataset, "strict", setting) and values[0].get(kind)
                }
                ours = found["dsrd", head]
                others = sorted(
                    ((value, model) for (model, of), value in found.items() if of == "link"), reverse=True
                )
                above = [f"{_both(value)} ({model})" for value, model in others if value[0] > ours[0]]
                best = f"none; best {_both(others[0][0])} ({others[0][1]})"
                rows.append([dataset, setting, kind, head, _both(ours), ", ".join(above[:4]) or best])
    return table(["data set", "setting", "negatives", "head", "DSRD", "baselines above it"], rows)


def _means(values: Iterable[Mapping[str, Any]], kind: str) -> tuple[float, float]:
    cells = [each[kind] for each in values if each.get(kind)]
    return statistics.mean(each["ap"] for each in cells), statistics.mean(each["auc"] for each in cells)


def _both(found: tuple[float, float]) -> str:
    return f"{found[0]:.2f} / {found[1]:.2f}"


def _records(name: str) -> Records:
    path = RESULTS / name
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _memories() -> str:
    """Shares of the first guess and half-lives of its kinds, learned by the default on each data set."""
    rows = []
    trained = [each for each in _records("dsrd.jsonl") if _is_default(each)]
    for dataset in sorted({each["dataset"] for each in trained}, key=str.lower):
        seeds = [each["learned"]["memory"] for each in trained if each["dataset"] == dataset]
        cells = [f"{_range(seed[kind]['share'] for seed in seeds)}, {_lives(seeds, kind)}" for kind in KINDS]
        rows.append([dataset, str(len(seeds)), _range(seed["uniform"] for seed in seeds), *cells])
    return table(["data set", "seeds", "uniform", *KINDS], rows)


def _is_default(record: Mapping[str, Any]) -> bool:
    default = record["preset"] == "published" and record["protocol"] == "dyglib" and "trained" not in record
    return default and "memory" in record.get("learned", {})


def _range(values: Iterable[float]) -> str:
    """The least and the greatest, as text; one number if they look alike."""
    low, high = min(found := [f"{value:.2f}" for value in values], key=float), max(found, key=float)
    return low if low == high else f"{low} to {high}"


def _lives(seeds: list[Mapping[str, Any]], kind: str) -> str:
    lives = sorted(round(seed[kind]["half_life_in_events"]) for seed in seeds)
    return f"{lives[0]:,}" if lives[0] == lives[-1] else f"{lives[0]:,} to {lives[-1]:,}"


def _known_memories() -> str:
    """Learned beside true half-lives, on streams whose memory has known time constants."""
    rows = []
    records = _records("decays.jsonl")
    for taus in sorted({tuple(each["taus"]) for each in records}, key=lambda taus: (len(taus), taus)):
        seeds = [each for each in records if tuple(each["taus"]) == taus]
        true = seeds[0]["true_half_lives"]
        learned = [
            f"{_life(min(lives))} to {_life(max(lives))}" if len(lives) > 1 else _life(lives[0])
            for lives in ([seed["half_lives"][place]["events"] for seed in seeds] for place in range(len(true)))
        ]
        excess = [seed["calibration"]["partner"]["excess"] for seed in seeds]
        error = max(seed["calibration"]["partner"]["excess_se"] for seed in seeds)
        rows.append(
            [
                ", ".join(map(_life, true)),
                ", ".join(_life(each["events"]) for each in seeds[0]["half_lives_before"]),
                "; ".join(learned),
                f"{min(excess):.3f} to {max(excess):.3f} (± {error:.3f})",
                str(len(seeds)),
            ]
        )
    columns = [
        "true half-life, events",
        "at the start",
        "learned",
        "excess of the log loss, nats per event",
        "seeds",
    ]
    return table(columns, rows)


def _life(events: float) -> str:
    return f"{events:.1f}" if events < 10 else f"{events:,.0f}"


def _ablations() -> str:
    """AP against random negatives, whole and without a part: mean and deviation, in points below the whole."""
    records = _records("studies/ablations.jsonl")
    rows = []
    for stream in dict.fromkeys(each["dataset"] for each in records):
        of_stream = [each for each in records if each["dataset"] == stream]
        for ablate in dict.fromkeys(each["config"]["model_args"]["ablate"] for each in of_stream):
            runs = [each for each in of_stream if each["config"]["model_args"]["ablate"] == ablate]
            whole = {each["seed"]: each for each in of_stream if each["config"]["model_args"]["ablate"] == "none"}
            epochs = str(runs[0]["config"]["train"]["epochs"])
            cells = [_cost(runs, whole, setting) for setting in SETTINGS]
            rows.append([stream, epochs, ablate, *cells, str(len(runs))])
    return table(["stream", "epochs", "without", "transductive", "inductive setting", "seeds"], rows)


def _cost(runs: Records, whole: Mapping[int, Mapping[str, Any]], setting: str) -> str:
    ap = [run["results"][setting]["random"]["ap"] for run in runs]
    shown = f"{statistics.mean(ap):.2f}"
    if runs[0]["config"]["model_args"]["ablate"] == "none":
        return shown
    lost = [
        whole[run["seed"]]["results"][setting]["random"]["ap"] - value for run, value in zip(runs, ap, strict=True)
    ]
    spread = f" ± {statistics.stdev(lost):.2f}" if len(lost) > 1 else ""
    return f"{shown} ({-statistics.mean(lost):+.2f}{spread})"


def _calibrations() -> str:
    """Log loss and the likeliest tenth of each factor, by data set and model."""
    rows = []
    for record in _records("studies/calibration.jsonl"):
        for factor in ("partner", "activity"):
            measured = record["calibration"].get(factor, {})
            if "curve" not in measured:
                continue
            top = measured["curve"][-1]
            rows.append(
                [
                    record["dataset"],
                    record["model"],
                    factor,
                    f"{measured['events']} of {measured['candidates']:,}",
                    f"{measured['log_loss']:.2f} ± {measured['log_loss_se']:.2f}",
                    f"{measured['log_loss_uniform']:.2f}",
                    f"{measured['log_normaliser']:+.2f}",
                    f"{top['expected']:.5f} / {top['observed']:.5f}",
                    f"{measured['misplaced']:.3f}",
                ]
            )
    columns = [
        "data set",
        "model",
        "factor",
        "events of candidates",
        "log loss",
        "knowing nothing",
        "log normaliser",
    ]
    return table([*columns, "likeliest tenth: expected / observed", "misplaced"], rows)


def _questions() -> str:
    """The four questions, of the model and of the best rule for each."""
    rows = []
    for record in _records("studies/questions.jsonl"):
        asked = record["questions"]
        rules = [rule["questions"] for rule in record["rules"].values() if "questions" in rule]
        cells = [
            f"{asked[name][metric]:.2f} ({max(rule[name][metric] for rule in rules):.2f})"
            for name, metric in (
                ("partner", "mrr"),
                ("partner", "ap"),
                ("pairs", "ap"),
                ("awake", "ap"),
                ("first", "ap"),
            )
        ]
        rows.append([record["dataset"], record["model"], *cells, f"{asked['pairs']['mean_probability']:.3f}"])
    columns = ["data set", "model", "partner, MRR", "partner, AP", "pairs, AP", "awake, AP", "first, AP"]
    return table([*columns, "mean probability of a random pair"], rows)
