"""What a search tries: ranges and choices for settings, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsrd.errors import DsrdError, unknown
from dsrd.experiments.plan_text import PlanText, Section, flat

if TYPE_CHECKING:
    import optuna

    from dsrd.config import RunConfig

KEYS = ("trials", "models", "space")
RANGE_KEYS = ("low", "high", "log", "step", "choices")
HERE = Section("search")


@dataclass(frozen=True)
class Range:
    """The values of one setting: a list of choices, or numbers from `low` to `high`."""

    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False  # spread by magnitude
    step: float | None = None

    def suggest(self, trial: optuna.trial.Trial, name: str) -> Any:
        """A value for a trial."""
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log, step=int(self.step or 1))
        return trial.suggest_float(name, self.low, self.high, log=self.log, step=self.step)

    @property
    def ends(self) -> tuple[Any, ...]:
        """Values to check before anything runs."""
        return self.choices or (self.low, self.high)


@dataclass(frozen=True)
class SearchSpace:
    """Which settings a search tries, how often, and for which models of the plan."""

    trials: int
    models: tuple[str, ...]  # labels
    space: Mapping[str, Range]  # by setting, `part.name`


def search_space(
    source: Mapping[str, Any], text: PlanText, variants: Sequence[tuple[str, Callable[..., RunConfig]]]
) -> SearchSpace | None:
    """The table `search` of a plan, checked: both ends of every range must suit every model; None without one."""
    table = source.get("search")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        raise text.error("search: write it as a table [search] with trials and space", "search")
    text.check_keys(table, KEYS, HERE)
    trials = table.get("trials", 20)
    if not isinstance(trials, int) or trials < 1:
        raise text.error(f"trials = {trials}: give 1 or more", "trials", HERE)
    labels = [label for label, _ in variants]
    models = text.entries(table, "models", str, HERE) or labels
    for label in models:
        if label not in labels:
            text.refuse(unknown("model of this plan", label, labels), label, HERE)
    space = {key: _range(key, value, text) for key, value in _settings(table.get("space", {})).items()}
    if not space:
        raise text.error("search: has no space; name a setting and its values", "search", HERE)
    for label, configured in variants:
        for key, values in space.items() if label in models else ():
            for value in values.ends:
                try:
                    configured({key: value})
                except DsrdError as error:
                    text.refuse(DsrdError(f"{label}: {error}"), key, HERE)
    return SearchSpace(trials, tuple(models), space)


def _settings(space: Mapping[str, Any], prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """The ranges by setting: `train.lr = {...}` and `"train.lr" = {...}` alike."""
    found: dict[str, Mapping[str, Any]] = {}
    for key, value in space.items():
        if isinstance(value, Mapping) and not set(flat(value)) & set(RANGE_KEYS):
            found |= _settings(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value if isinstance(value, Mapping) else {"choices": value}
    return found


def _range(key: str, given: Mapping[str, Any], text: PlanText) -> Range:
    text.check_keys(given, RANGE_KEYS, HERE)
    if "choices" in given:
        choices = given["choices"]
        if not isinstance(choices, list) or not choices or len(given) > 1:
            raise text.error(f"{key}: give a list of choices, or low and high", key, HERE)
        return Range(choices=tuple(choices))
    low, high = given.get("low"), given.get("high")
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high))
    if low is None or high is None or not numbers or low >= high:
        raise text.error(f"{key}: give low and high, low first, or a list of choices", key, HERE)
    log = bool(given.get("log", False))
    if log and low <= 0:
        raise text.error(f"{key}: low = {low}: give more than 0 where log is true", key, HERE)
    if log and given.get("step") is not None:
        raise text.error(f"{key}: give log or step, not both", key, HERE)
    return Range(low=low, high=high, log=log, step=given.get("step"))
