"""What a run is made of: plain frozen dataclasses, overridden by `key=value`, named by a digest."""

from __future__ import annotations

import hashlib
import json
import types
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dsrd.errors import DsrdError, unknown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """How a file of one's own is read; benchmark data need none of it."""

    format: str = "auto"  # csv, parquet, dyglib (processed folder), dyglib-raw; auto looks at the file
    source: str = "source"  # column of who acted
    target: str = "target"  # column of whom it concerned
    time: str = "time"  # column of when: a number, or an ISO date
    features: tuple[str, ...] = ()  # columns of features, by name or pattern
    label: str | None = None  # column of labels
    bipartite: bool | None = None  # sources and targets are two kinds of nodes; none: found out


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model learns. The defaults are the published protocol's."""

    epochs: int = 100  # at most so many passes over the training events
    patience: int = 20  # stop after so many epochs without a better validation
    batch_size: int = 200  # events per step
    lr: float = 1e-4  # learning rate of Adam
    weight_decay: float = 0.0
    minutes: float = 0.0  # end after the epoch that passes this many minutes; 0: no limit
    device: str = "cpu"  # cpu, cuda, cuda:1, ...


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """How a model is measured. The defaults are the published protocol's."""

    batch_size: int = 200  # events scored at once; under dyglib also the batches that metrics average over
    negatives: tuple[str, ...] = ("random", "historical", "inductive")  # which kinds
    order: Literal["py37", "py38", "fast"] = "py37"  # of historical and inductive candidates; py37: as published
    candidates: int = 0  # targets ranked against the true one for MRR and Hits@k; 0: none


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """One run: what is trained on what, and how it is measured.

    >>> RunConfig(dataset="uci", model="tgn").with_overrides({"train.epochs": "3"}).train.epochs
    3
    """

    dataset: str
    model: str
    preset: str = "published"  # published: the settings behind the published rows; default: the model's own
    seed: int = 0
    protocol: str = "dyglib"  # dyglib or strict
    model_args: Mapping[str, Any] = field(default_factory=dict)
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def with_overrides(self, given: Mapping[str, Any]) -> RunConfig:
        """The same run with `data.x`, `train.x`, `evaluate.x`, `model.x`, `preset` or `seed` replaced."""
        run = self
        for key, value in given.items():
            part, _, name = key.partition(".")
            if part in PARTS and name:
                changed = overridden(getattr(run, part), {name: value}, prefix=f"{part}.")
                run = replace(run, **{part: changed})
            elif part == "model" and name:
                run = replace(run, model_args={**run.model_args, name: value})
            elif key in ("preset", "seed"):
                run = overridden(run, {key: value})
            else:
                raise unknown("setting", key, _keys(run))
        return run

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> RunConfig:
        parts = {part: overridden(PARTS[part](), stored[part], prefix=f"{part}.") for part in PARTS}
        return cls(**{**stored, **parts})

    @property
    def digest(self) -> str:
        """A short name: equal runs, equal digest."""
        return digest_of_json(self.to_dict())


PARTS: dict[str, type[Any]] = {"data": DataConfig, "train": TrainConfig, "evaluate": EvaluateConfig}
"""The parts of a run whose settings are written `part.name`."""


def digest_of_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _keys(run: RunConfig) -> list[str]:
    keys = ["preset", "seed", "model.<setting>"]
    for part in PARTS:
        keys += [f"{part}.{entry.name}" for entry in fields(getattr(run, part))]
    return keys


def overridden(config: C, given: Mapping[str, Any], prefix: str = "") -> C:
    """A copy of a frozen dataclass with fields replaced; text is read as the field's type.

    >>> overridden(TrainConfig(), {"epochs": "5", "lr": "1e-3"}, prefix="train.").lr
    0.001
    >>> overridden(TrainConfig(), {"epoch": 5}, prefix="train.")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: unknown setting 'train.epoch'; did you mean 'train.epochs'? ...
    """
    types_ = get_type_hints(type(config))
    names = [entry.name for entry in fields(config)]
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if name not in names:
            raise unknown("setting", prefix + name, (prefix + known for known in names))
        changes[name] = _read(prefix + name, value, types_[name])
    return replace(config, **changes)


def _read(key: str, value: Any, wanted: Any) -> Any:
    origin, options = get_origin(wanted), get_args(wanted)
    if origin is Literal:
        if value not in options:
            raise unknown(f"value for {key}:", str(value), map(str, options))
        return value
    if origin in (Union, types.UnionType):
        if value is None or value == "none":
            return None
        return _read(key, value, next(option for option in options if option is not type(None)))
    if origin is tuple:
        parts = value.split(",") if isinstance(value, str) else list(value)
        return tuple(_read(key, part.strip() if isinstance(part, str) else part, options[0]) for part in parts)
    if wanted is bool:
        words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if isinstance(value, bool):
            return value
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise DsrdError(f"{key}={value}: expected true or false")
    try:
        return wanted(value)
    except (TypeError, ValueError):
        raise DsrdError(f"{key}={value}: expected {_kind(wanted)}") from None


def _kind(wanted: type) -> str:
    return {int: "a whole number", float: "a number", str: "text"}.get(wanted, wanted.__name__)
