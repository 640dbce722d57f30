"""The settings of a run: frozen dataclasses, changed by `key=value`, identified by a digest."""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dsrd.errors import DsrdError, unknown
from dsrd.protocol import Protocol, protocol_named
from dsrd.ranges import AboveZero, Chance, Positive, Processes, Range, checked

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Negatives = Literal["random", "historical", "inductive"]
C = TypeVar("C", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How a table is read: which column holds what. Benchmark data need no settings.

    The only description of columns: `load`, the command line, run folders and later events all use it.
    """

    format: Literal["auto", "csv", "parquet", "dyglib", "dyglib-raw"] = "auto"  # auto: by name and content
    source: str = "source"  # column with the node that acted
    target: str = "target"  # column with the node it acted on
    time: str = "time"  # column with the time: numbers or dates
    features: tuple[str, ...] = ()  # columns with edge features: names or patterns such as f_*
    label: str | None = None  # column with labels
    time_format: str | None = None  # format of dates written as text, as for strptime: %d/%m/%Y
    bipartite: bool | None = None  # sources and targets are separate nodes; none: what the file or catalogue says
    keep_spaces: bool = False  # spaces around a name belong to it; otherwise they are removed


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model learns. The defaults are the published protocol's."""

    epochs: Positive = 100  # maximal number of passes over the training events
    patience: Positive = 20  # stop after this many epochs without a better validation score
    keep: Literal["both", "mean", "mrr"] = "both"  # best epoch by validation: AP and AUC, their mean, or MRR
    ranked_events: Positive = 1000  # validation events that keep=mrr ranks after every epoch, evenly spaced
    batch_size: Positive = 200  # events per optimizer step
    lr: AboveZero = 1e-4  # learning rate of Adam
    decay_lr: float = 0.0  # learning rate of learned decays, which need larger steps; 0: that of other weights
    weight_decay: float = 0.0  # weight decay of Adam
    average: Chance = 0.0  # decay of a moving average of the weights, which is then validated and kept; 0: none
    minutes: float = 0.0  # stop after the epoch in which this many minutes have passed; 0: no limit
    workers: Processes = 1  # processes that share every batch; the same results up to rounding and dropout masks
    device: str = "cpu"  # cpu, or a GPU: cuda, cuda:1, ... (untested)
    final: bool = False  # afterwards train again on all events, for as many epochs as the best one needed

    def __post_init__(self) -> None:
        checked(self, "train.")


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """How a model is measured. The defaults are the published protocol's.

    In the published protocol a state has observed the training events, without those of withheld nodes, and the
    earlier events of the pass itself; neighbour look-ups see every earlier event. The state of a model that is
    exact in time also observes every earlier event, unless `known` is `trained`.
    """

    batch_size: Positive = 200  # events scored at once; the protocol dyglib averages metrics over these batches
    negatives: tuple[Negatives, ...] = ("random", "historical", "inductive")  # kinds of negatives
    order: Literal["py37", "py38", "fast"] = "py37"  # of historical and inductive negatives; py37: as published
    known: Literal["all", "trained"] = "all"  # to the state of an exact model: all earlier events, or as published
    head: str = ""  # which head answers, for a model that has several; empty: its default
    reading: Literal["plain", "law"] = "plain"  # main results: the score itself, or against the negatives' law
    candidates: int = 0  # negatives that the true target is ranked among, for MRR and Hits@k; 0: no ranking
    questions: bool = False  # also ask the questions partner, pairs, awake and first, under the protocol strict
    asked_events: Positive = 1000  # of the question partner: most events whose target is ranked among all targets
    ranked_events: int = 0  # events of each part that are ranked, evenly spaced; 0: all

    def __post_init__(self) -> None:
        checked(self, "evaluate.")

    def check(self) -> None:
        """Every kind of negatives at most once, and at least one."""
        if not 0 < len(set(self.negatives)) == len(self.negatives):
            kinds = ",".join(self.negatives)
            raise DsrdError(f"evaluate.negatives={kinds}: name one kind or more, each once")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: the model, the data it is trained on, and how it is measured.

    >>> RunConfig(dataset="uci", model="mine").with_overrides({"train.epochs": "3"}).train.epochs
    3
    """

    dataset: str
    model: str
    preset: str = "published"  # published: settings of the published rows; default; or one the model declares
    seed: Annotated[int, Range(0, 2**32 - 1)] = 0
    protocol: str = "dyglib"  # dyglib or strict
    model_args: Mapping[str, Any] = field(default_factory=dict)
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def __post_init__(self) -> None:
        for name in ("dataset", "model", "preset", "protocol"):
            if not isinstance(getattr(self, name), str):
                raise DsrdError(f"{name}={getattr(self, name)}: expected text")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int):
            raise DsrdError(f"seed={self.seed}: expected a whole number")
        if not isinstance(self.model_args, Mapping):
            raise DsrdError(f"model_args={self.model_args}: expected the settings of the model by name")
        checked(self, "")
        protocol_named(self.protocol)

    @property
    def protocol_rules(self) -> Protocol:
        """The protocol that `protocol` names."""
        return protocol_named(self.protocol)

    def with_overrides(self, overrides: Mapping[str, Any]) -> RunConfig:
        """A copy with `data.x`, `train.x`, `evaluate.x`, `model.x`, `preset` or `seed` replaced."""
        run = self
        for key, value in overrides.items():
            part, _, name = key.partition(".")
            if part in PARTS and name:
                changed = overridden(getattr(run, part), {name: value}, prefix=f"{part}.")
                run = replace(run, **{part: changed})
            elif part == "model" and name:
                run = replace(run, model_args={**run.model_args, name: value})
            elif key in ("preset", "seed"):
                run = overridden(run, {key: value})
            else:
                raise unknown("setting", key, [*run.keys(), "model.<setting>"])
        return run

    def keys(self) -> list[str]:
        """The settings that can be overridden; a model adds its own (`model.x`, see its `Config`)."""
        parts = [f"{part}.{entry.name}" for part in PARTS for entry in fields(getattr(self, part))]
        return ["preset", "seed", *parts]

    def to_dict(self) -> dict[str, Any]:
        """All settings as plain values, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> RunConfig:
        """The run that `to_dict` wrote; settings that it lacks have their defaults."""
        parts = {part: overridden(PARTS[part](), stored[part], prefix=f"{part}.") for part in PARTS}
        return cls(**{**stored, **parts})

    @property
    def digest(self) -> str:
        """A short identifier: equal runs have equal digests."""
        content = self.to_dict()
        for part, name in ADDED_LATER:  # runs that are older than these fields keep their digest
            if content[part][name] == getattr(PARTS[part](), name):
                del content[part][name]
        return digest_of_json(content)


COMMON_PRESETS = ("default", "published")
"""Presets that every model has: its defaults, and the settings of the published rows. A model may declare more."""


def model_label(model: str, preset: str) -> str:
    """The name of a model in tables, with the preset where it is one that the model declares.

    >>> model_label("mine", "published"), model_label("mine", "light")
    ('mine', 'mine-light')
    """
    return model if preset in COMMON_PRESETS else f"{model}-{preset}"


ADDED_LATER = (
    ("data", "time_format"),
    ("data", "keep_spaces"),
    ("train", "decay_lr"),
    ("evaluate", "reading"),
    ("evaluate", "questions"),
    ("evaluate", "asked_events"),
    ("evaluate", "ranked_events"),
    ("train", "ranked_events"),
    ("train", "workers"),
)
"""Settings that the digest of a run leaves out while they have their defaults."""

PARTS: dict[str, type[Any]] = {"data": DataConfig, "train": TrainConfig, "evaluate": EvaluateConfig}
"""Parts of a run; their settings are written `part.name`."""


def digest_of_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def overridden(config: C, overrides: Mapping[str, Any], prefix: str = "") -> C:
    """A copy of a frozen dataclass with some fields replaced; text is converted to the field's type.

    >>> overridden(TrainConfig(), {"epochs": "5", "lr": "1e-3"}, prefix="train.").lr
    0.001
    >>> overridden(TrainConfig(), {"epoch": 5}, prefix="train.")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: unknown setting 'train.epoch'; did you mean 'train.epochs'? ...
    """
    field_types = get_type_hints(type(config))
    names = [entry.name for entry in fields(config)]
    changes: dict[str, Any] = {}
    for name, value in overrides.items():
        if name not in names:
            raise unknown("setting", prefix + name, (prefix + known for known in names))
        changes[name] = _converted(prefix + name, value, field_types[name])
    return replace(config, **changes)


def _converted(key: str, value: Any, kind: Any) -> Any:
    """The value as the type `kind`; an error that names the setting where it does not fit."""
    origin, options = get_origin(kind), get_args(kind)
    if origin is Literal:
        if not isinstance(value, str) or value not in options:
            raise unknown(f"value of {key}", str(value), map(str, options))
        return value
    if origin in (Union, types.UnionType):
        if value is None or value == "none":
            return None
        return _converted(key, value, next(option for option in options if option is not type(None)))
    if origin is tuple:
        if not isinstance(value, str | list | tuple):
            raise DsrdError(f"{key}={value}: expected a list")
        parts = [part for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)
        return tuple(
            _converted(key, part.strip() if isinstance(part, str) else part, options[0]) for part in parts
        )
    if kind is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if isinstance(value, bool):
            return value
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise DsrdError(f"{key}={value}: expected true or false")
    wrong = DsrdError(f"{key}={value}: expected {_in_words(kind)}")
    if isinstance(value, bool) or (kind is str and not isinstance(value, str | int)):
        raise wrong  # Python would take true for 1, and any object for text
    if kind is int and isinstance(value, float) and not value.is_integer():
        raise wrong
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None


def _in_words(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text"}.get(kind, kind.__name__)
