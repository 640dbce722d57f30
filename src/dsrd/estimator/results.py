"""What a model was measured to be worth, beside the rules that learn nothing, for people and for programs."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

from dsrd.config import model_label
from dsrd.estimator.tables import Table

KINDS = ("random", "historical", "inductive")
BEST_RULE = "best rule"
ALIKE = 0.5  # points of AP within which a model and a rule are called equal

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
        what = self.record.get("measured_on", "test")
        return (
            f"{self.record['dataset']}: {what}, {self.record['protocol']}, AP / AUC in percent, mean over batches"
        )

    @property
    def rows(self) -> Rows:
        """Results by row of the table: the model by each head, the best rule, the ceiling of a known law."""
        rows = model_rows(self.record)
        rule = best_rule(self.record)
        rows |= {BEST_RULE: rule} if rule else {}
        return rows | ({"best possible": self.record["ceiling"]} if "ceiling" in self.record else {})

    @property
    def verdict(self) -> str:
        """One sentence: how much the model adds to the best rule, by which metric; empty without rules."""
        return verdict(self.record)

    @property
    def remarks(self) -> list[str]:
        """What stands below the table: which rules were the best, and the verdict."""
        chosen: dict[str, list[str]] = {}
        for kind, figures in best_rule(self.record).get("transductive", {}).items():
            chosen.setdefault(figures["rule"], []).append(kind)
        named = ", ".join(f"{rule} ({', '.join(kinds)})" for rule, kinds in chosen.items())
        remarks = [f"{BEST_RULE}, chosen on validation: {named}"] if named else []
        return [*remarks, *([self.verdict] if self.verdict else [])]

    def table(self) -> Table:
        """The table as it prints."""
        columns, lines = cells(self.rows)
        return Table({name: [line[i] for line in lines] for i, name in enumerate(columns)})

    def to_frame(self) -> Any:
        """A pandas frame, one line per model, setting and kind of negatives, the figures as numbers."""
        flat = list(self._flat())
        names = dict.fromkeys(name for line in flat for name in line)
        return Table({name: [line.get(name) for line in flat] for name in names}).to_pandas()

    def _flat(self) -> Iterator[dict[str, Any]]:
        for name, found in self.rows.items():
            for setting, kinds in found.items():
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
        return "\n".join([*text, *self.remarks])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        below = "".join(f"<p>{html.escape(remark)}</p>" for remark in self.remarks)
        return f"<p>{html.escape(self.title)}</p>{self.table()._repr_html_()}{below}"


def model_rows(record: Record) -> Rows:
    """A record's test results by model, a row for every head it was asked by."""
    name, others = model_label(record["model"], record["preset"]), record.get("heads", {})
    if not others:
        return {name: record["results"]}
    rows = {f"{name} ({record['head']})": record["results"]}
    return rows | {f"{name} ({head})": found["results"] for head, found in others.items()}


def best_rule(record: Record) -> dict[str, dict[str, Any]]:
    """Test results of the best rule for each kind of negatives, chosen on validation; its name is among them."""
    found: dict[str, dict[str, Any]] = {}
    rules = record.get("rules", {})
    for setting, kinds in record["results"].items() if rules else ():
        found[setting] = {}
        for kind in kinds:
            name = _chosen(rules, kind)
            figures = rules[name]["results"].get(setting, {}).get(kind)
            if figures is not None:
                found[setting][kind] = {**figures, "rule": name}
    return found


def _chosen(rules: Mapping[str, Any], kind: str) -> str:
    """The rule with the best validation figure; the test is not looked at."""
    metric = "mrr" if kind == "ranking" else "ap"

    def validated(name: str) -> float:
        figures = rules[name]["validation"].get("transductive", {}).get(kind, {})
        return float(figures.get(metric) or 0.0)

    return max(sorted(rules), key=validated)


def verdict(record: Record) -> str:
    """One plain sentence on what a model adds to the best rule without weights."""
    rule = best_rule(record).get("transductive", {})
    kind = next((kind for kind in KINDS if kind in rule), None)
    mine = record["results"].get("transductive", {}).get(kind, {}).get("ap") if kind else None
    if kind is None or mine is None or rule[kind].get("ap") is None:
        return ""
    theirs, name = rule[kind]["ap"], rule[kind]["rule"]
    model, gain = model_label(record["model"], record["preset"]), mine - rule[kind]["ap"]
    figures = f"{mine:.2f} against {theirs:.2f} AP, {kind} negatives, transductive"
    best = f"the best rule that learns nothing ({name})"
    if abs(gain) < ALIKE:
        return f"{model} does about as well as {best}: {figures}."
    if gain < 0:
        return f"{model} falls {-gain:.2f} points short of {best}: {figures}; the rule is the better choice here."
    return f"{model} adds {gain:.2f} points to {best}: {figures}."


def cells(rows: Rows) -> tuple[list[str], list[list[str | None]]]:
    """Columns and lines of a table of results: one line per model and setting, AP / AUC per kind of negatives."""
    settings = [setting for found in rows.values() for setting in found.values()]
    kinds = [kind for kind in KINDS if any(kind in setting for setting in settings)]
    ranked = any("ranking" in setting for setting in settings)
    columns = ["model", "setting", *kinds, *(["MRR / Hits@10"] if ranked else [])]
    lines: list[list[str | None]] = []
    for name, found in rows.items():
        for setting, values in found.items():
            line = [_both(values.get(kind, {}), "ap", "auc") for kind in kinds]
            line += [_both(values.get("ranking", {}), "mrr", "hits@10")] if ranked else []
            lines.append([name, setting, *line])
    return columns, lines


def _both(values: Mapping[str, Any], first: str, second: str) -> str | None:
    """Two figures in one cell; none where there were no events to measure on."""
    shown = [values.get(first), values.get(second)]
    if None in shown:
        return None
    return " / ".join(f"{value:.2f}" for value in shown)
