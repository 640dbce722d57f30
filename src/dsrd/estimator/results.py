"""Evaluation results next to those of the rules that learn nothing, as a table, a frame and a verdict."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from dsrd.config import model_label
from dsrd.estimator.questions import Questions
from dsrd.estimator.tables import Table

KINDS = ("random", "historical", "inductive")
BEST_RULE = "best rule"
ALIKE = 0.5  # points of AP within which a model and a rule count as equal

Record = dict[str, Any]
Rows = dict[str, Mapping[str, Any]]


class Results:
    """Test results of a run: prints as a table with a verdict; `results["transductive"]["random"]["ap"]`.

    >>> cell = {"ap": 97.5, "auc": 97.25}
    >>> record = {"dataset": "calls", "model": "mine", "preset": "default", "protocol": "strict", "head": "link",
    ...           "results": {"transductive": {"random": cell}}}
    >>> print(Results(record))
    calls: test, strict, AP / AUC in percent, mean over batches
    model  setting              random
    mine   transductive  97.50 / 97.25
    """

    def __init__(self, record: Record) -> None:
        self.record = record

    def __getitem__(self, setting: str) -> Any:
        return self.record["results"][setting]

    @property
    def title(self) -> str:
        """The line above the table: data set, part, protocol, metrics."""
        part = self.record.get("measured_on", "test")
        return (
            f"{self.record['dataset']}: {part}, {self.record['protocol']}, AP / AUC in percent, mean over batches"
        )

    @property
    def rows(self) -> Rows:
        """Results by row of the table: each head of the model, the best rule, and the ceiling if it is known."""
        rows = model_rows(self.record)
        rule = best_rule(self.record)
        rows |= {BEST_RULE: rule} if rule else {}
        return rows | ({"best possible": self.record["ceiling"]} if "ceiling" in self.record else {})

    @property
    def verdict(self) -> str:
        """One sentence that compares the model with the best rule; empty without rules."""
        return verdict(self.record)

    @property
    def remarks(self) -> list[str]:
        """The lines below the table: the names of the best rules, and the verdict."""
        kinds_by_rule: dict[str, list[str]] = {}
        for kind, figures in best_rule(self.record).get("transductive", {}).items():
            kinds_by_rule.setdefault(figures["rule"], []).append(kind)
        best_rules = ", ".join(f"{rule} ({', '.join(kinds)})" for rule, kinds in kinds_by_rule.items())
        remarks = [f"{BEST_RULE}, chosen on validation: {best_rules}"] if best_rules else []
        return [*remarks, *([self.verdict] if self.verdict else [])]

    @property
    def questions(self) -> Questions | None:
        """Answers to the questions beside the published columns, if they were asked."""
        return Questions(self.record) if "questions" in self.record else None

    def table(self) -> Table:
        """The table as it prints."""
        columns, lines = cells(self.rows)
        return Table({name: [line[i] for line in lines] for i, name in enumerate(columns)})

    def to_frame(self) -> Any:
        """A pandas frame with one row per model, setting and kind of negatives, and the metrics as numbers."""
        flat = list(self._flat())
        names = dict.fromkeys(name for line in flat for name in line)
        return Table({name: [line.get(name) for line in flat] for name in names}).to_pandas()

    def _flat(self) -> Iterator[dict[str, Any]]:
        for name, settings in self.rows.items():
            for setting, kinds in settings.items():
                for kind, figures in kinds.items():
                    yield {"model": name, "setting": setting, "negatives": kind, **figures}

    def __str__(self) -> str:
        columns, lines = cells(self.rows)
        table = [columns, *([cell or "-" for cell in line] for line in lines)]
        widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
        text = [self.title]
        for row in table:
            padded = (
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            text.append("  ".join(padded).rstrip())
        asked = [] if self.questions is None else ["", str(self.questions)]
        return "\n".join([*text, *self.remarks, *asked])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        below = "".join(f"<p>{html.escape(remark)}</p>" for remark in self.remarks)
        asked = "" if self.questions is None else self.questions._repr_html_()
        return f"<p>{html.escape(self.title)}</p>{self.table()._repr_html_()}{below}{asked}"


def model_rows(record: Record) -> Rows:
    """Test results of a record by row name: one row for each head."""
    name, others = model_label(record["model"], record["preset"]), record.get("heads", {})
    if not others:
        return {name: record["results"]}
    rows = {f"{name} ({record['head']})": record["results"]}
    return rows | {f"{name} ({head})": entry["results"] for head, entry in others.items()}


def best_rule(record: Record) -> dict[str, dict[str, Any]]:
    """Test results of the rule that was best on validation, by setting and kind of negatives, with its name."""
    results: dict[str, dict[str, Any]] = {}
    rules = record.get("rules", {})
    for setting, kinds in record["results"].items() if rules else ():
        results[setting] = {}
        for kind in kinds:
            name = _chosen(rules, kind)
            figures = rules[name]["results"].get(setting, {}).get(kind)
            if figures is not None:
                results[setting][kind] = {**figures, "rule": name}
    return results


def _chosen(rules: Mapping[str, Any], kind: str) -> str:
    """The rule with the best result on validation; test results are not used."""
    metric = "mrr" if kind == "ranking" else "ap"

    def validated(name: str) -> float:
        figures = rules[name]["validation"].get("transductive", {}).get(kind, {})
        return float(figures.get(metric) or 0.0)

    return max(sorted(rules), key=validated)


def verdict(record: Record) -> str:
    """One sentence that compares a model with the best rule."""
    rule = best_rule(record).get("transductive", {})
    kind = next((kind for kind in KINDS if kind in rule), None)
    model_ap = record["results"].get("transductive", {}).get(kind, {}).get("ap") if kind else None
    if kind is None or model_ap is None or rule[kind].get("ap") is None:
        return ""
    rule_ap, name = rule[kind]["ap"], rule[kind]["rule"]
    model, gain = model_label(record["model"], record["preset"]), model_ap - rule_ap
    figures = f"{model_ap:.2f} against {rule_ap:.2f} AP, {kind} negatives, transductive"
    best = f"the best rule that learns nothing ({name})"
    if abs(gain) < ALIKE:
        return f"{model} does about as well as {best}: {figures}."
    if gain < 0:
        return f"{model} falls {-gain:.2f} points short of {best}: {figures}; the rule is the better choice here."
    return f"{model} adds {gain:.2f} points to {best}: {figures}."


def cells(rows: Rows) -> tuple[list[str], list[list[str | None]]]:
    """Columns and rows of a table of results: one row per model and setting, AP / AUC per kind of negatives."""
    settings = [metrics for by_setting in rows.values() for metrics in by_setting.values()]
    kinds = [kind for kind in KINDS if any(kind in setting for setting in settings)]
    ranked = any("ranking" in setting for setting in settings)
    columns = ["model", "setting", *kinds, *(["MRR / Hits@10"] if ranked else [])]
    lines: list[list[str | None]] = []
    for name, by_setting in rows.items():
        for setting, values in by_setting.items():
            line = [_both(values.get(kind, {}), "ap", "auc") for kind in kinds]
            line += [_both(values.get("ranking", {}), "mrr", "hits@10")] if ranked else []
            lines.append([name, setting, *line])
    return columns, lines


def _both(values: Mapping[str, Any], first: str, second: str) -> str | None:
    """Two metrics in one cell; None if there were no events to evaluate on."""
    metrics = [values.get(first), values.get(second)]
    if None in metrics:
        return None
    return " / ".join(f"{value:.2f}" for value in metrics)
