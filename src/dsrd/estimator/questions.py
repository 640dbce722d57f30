"""Answers to the questions beside the published columns, as a table."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

from dsrd.config import model_label
from dsrd.estimator.tables import Table

QUESTIONS = ("partner", "pairs", "awake", "first")


class Questions:
    """The answers of a model, and of the rules that learn nothing: `questions["pairs"]["ap"]`.

    >>> cell = {"ap": 97.5, "auc": 97.25, "mean_probability": 0.04}
    >>> partner = {"ap": 90.0, "mrr": 50.0, "hits@10": 75.0, "ranked_events": 1000, "mean_targets": 812.5}
    >>> answers = {"protocol": "strict", "partner": partner, "pairs": cell, "awake": cell, "first": cell}
    >>> print(Questions({"dataset": "calls", "model": "mine", "preset": "default", "questions": answers}))
    calls: questions, strict, AP in percent; MRR and Hits@10 of 1,000 events among 812 targets
    model      MRR  Hits@10  partner    pairs    awake    first  P(random pair)
    mine   50.0000  75.0000  90.0000  97.5000  97.5000  97.5000          0.0400
    """

    def __init__(self, record: Mapping[str, Any]) -> None:
        self._record = record

    def __getitem__(self, question: str) -> Any:
        return self._record["questions"][question]

    @property
    def title(self) -> str:
        """The line above the table."""
        partner = self["partner"]
        return (
            f"{self._record['dataset']}: questions, {self['protocol']}, AP in percent; MRR and Hits@10 of "
            f"{partner['ranked_events']:,} events among {partner['mean_targets']:,.0f} targets"
        )

    def table(self) -> Table:
        """A row for the model and for each rule."""
        model = model_label(self._record["model"], self._record["preset"])
        rules = self._record.get("rules", {})
        answers = {model: self._record["questions"]}
        answers |= {name: rule["questions"] for name, rule in rules.items() if "questions" in rule}
        columns: dict[str, list[Any]] = {
            "model": list(answers),
            "MRR": [each["partner"]["mrr"] for each in answers.values()],
            "Hits@10": [each["partner"]["hits@10"] for each in answers.values()],
        }
        columns |= {question: [each[question]["ap"] for each in answers.values()] for question in QUESTIONS}
        columns["P(random pair)"] = [each["pairs"]["mean_probability"] for each in answers.values()]
        return Table(columns)

    def __str__(self) -> str:
        return f"{self.title}\n{self.table()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.title)}</p>{self.table()._repr_html_()}"
