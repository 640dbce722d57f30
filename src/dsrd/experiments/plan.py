"""A plan: models, data sets, protocols, seeds, ablations, limits and a search space, as data in a TOML file.

Every run of a plan has all its settings before anything starts, and a digest that identifies it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dsrd.config import RunConfig, model_label
from dsrd.decoding import read_text
from dsrd.errors import DsrdError, unknown
from dsrd.experiments.plan_text import PlanText, Section, flat
from dsrd.experiments.search_space import SearchSpace, search_space
from dsrd.experiments.streams import KEYS as STREAM_KEYS
from dsrd.experiments.streams import Stream, stream_of
from dsrd.models import configured, model_class
from dsrd.protocol import protocol_named

SCOPE = ("datasets", "protocols", "seeds", "minutes")  # of the whole plan, or of one model or ablation
TOP_KEYS = ("title", *SCOPE, "settings", "models", "ablations", "search", "measured")
MODEL_KEYS = ("name", "label", "preset", *SCOPE, "settings")
SETTABLE = ("train.", "evaluate.", "model.")
MOST_RUNS = 20_000  # of a plan; more are a slip of the pen, and would take minutes to check
ABLATION_KEYS = ("of", "label", *SCOPE, "settings")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A model of a plan, or an ablation of one: what is run on each of its data sets."""

    label: str
    model: str
    preset: str
    settings: Mapping[str, Any]  # as `part.name`
    scope: Mapping[str, Any]  # its own data sets, protocols, seeds, minutes
    section: Section

    def configured(self, settings: Mapping[str, Any], **more: Any) -> RunConfig:
        """The run of this variant with these settings; an error if one is unknown or does not fit."""
        run = RunConfig(**{"dataset": "", "model": self.model, **more})
        return configured(run, {"preset": self.preset, "seed": run.seed, **settings})


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """One run of a plan."""

    label: str  # of its model in the plan
    stream: Stream
    run: RunConfig
    settings: Mapping[str, Any]  # what the plan sets, as `part.name`

    @property
    def digest(self) -> str:
        """Identifies the run: equal settings and data, equal digest."""
        return self.run.digest

    @property
    def key(self) -> str:
        """The name of its folder: readable, and different for different runs."""
        words = (re.sub(r"[^A-Za-z0-9_]+", "-", word).strip("-")[:40] for word in (self.stream.name, self.label))
        return f"{'-'.join(words)}-{self.run.seed}-{self.digest}"

    def with_settings(self, settings: Mapping[str, Any]) -> PlannedRun:
        """The same run with other settings, which a search tries."""
        run = configured(self.run, {"preset": self.run.preset, "seed": self.run.seed, **self.settings, **settings})
        return replace(self, run=run, settings={**self.settings, **settings})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan that has been read and checked: `load_plan`."""

    name: str  # of the file, without its ending
    title: str
    runs: tuple[PlannedRun, ...]
    source: Mapping[str, Any]  # what the file says
    text: str  # of the file; empty for a plan from Python
    space: SearchSpace | None = None
    measured: tuple[Path, ...] = ()  # files with records of earlier runs, for estimates

    @property
    def missing(self) -> dict[str, str]:
        """Data sets that are not here, with where to get them."""
        return {each.stream.name: each.stream.missing for each in self.runs if each.stream.missing}

    def present(self) -> Plan:
        """The plan without data sets that are not here."""
        return replace(self, runs=tuple(each for each in self.runs if not each.stream.missing))


def load_plan(plan: Plan | str | Path | Mapping[str, Any], data_dir: str | Path | None = None) -> Plan:
    """Read and check a plan: the path of a TOML file, or the same as a mapping.

    >>> plan = load_plan({"datasets": ["synth:events=500"], "seeds": [0, 1], "models": [{"name": "dsrd"}]})
    >>> [(each.label, each.run.seed, each.run.protocol) for each in plan.runs]
    [('dsrd', 0, 'strict'), ('dsrd', 1, 'strict')]
    """
    if isinstance(plan, Plan):
        return plan
    if isinstance(plan, Mapping):
        return _Reader(plan, PlanText("plan"), Path(), data_dir).plan("plan")
    path = Path(plan)
    if not path.exists():
        raise DsrdError(f"{path}: no such plan; give the path of a TOML file")
    text = read_text(path)
    try:
        return _Reader(tomllib.loads(text), PlanText(str(path), text), path.parent, data_dir).plan(path.stem)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DsrdError(f"{path}: not TOML: {error}; correct the file") from None


class _Reader:
    """Turns the tables of a plan into runs; every error names the plan and the line."""

    def __init__(
        self, source: Mapping[str, Any], text: PlanText, folder: Path, data_dir: str | Path | None
    ) -> None:
        self.source, self.text, self.folder, self.data_dir = source, text, folder, data_dir
        self.streams: dict[str, Stream] = {}

    def plan(self, name: str) -> Plan:
        text, source = self.text, self.source
        text.check_keys(source, TOP_KEYS)
        variants = self._variants()
        runs: dict[str, PlannedRun] = {}
        for variant in variants:
            for run in self._runs(variant):
                runs.setdefault(run.digest, run)
                if len(runs) > MOST_RUNS:
                    raise text.error(f"more than {MOST_RUNS:,} runs; give fewer seeds, or write several plans")
        files = [self.folder / name for name in text.entries(source, "measured", str)]
        for file in files:
            if not file.is_file():
                raise text.error(f"measured: {file}: no such file", "measured")
        return Plan(
            name=name,
            title=str(source.get("title", name)),
            runs=tuple(runs.values()),
            source=source,
            text=text.text,
            space=search_space(source, text, [(each.label, each.configured) for each in variants]),
            measured=tuple(files),
        )

    def _variants(self) -> list[Variant]:
        models = self.text.entries(self.source, "models", dict)
        if not models:
            raise self.text.error("no models; add a table [[models]] with a name")
        variants = [self._model(Section("models", number), entry) for number, entry in enumerate(models)]
        by_label: dict[str, Variant] = {}
        for variant in variants:
            self._add(by_label, variant)
        for number, entry in enumerate(self.text.entries(self.source, "ablations", dict)):
            self._add(by_label, self._ablation(Section("ablations", number), entry, by_label))
        return list(by_label.values())

    def _add(self, by_label: dict[str, Variant], variant: Variant) -> None:
        if variant.label in by_label:
            message = f"two models are called '{variant.label}'; give one another label"
            raise self.text.error(message, variant.label, variant.section)
        by_label[variant.label] = variant

    def _model(self, section: Section, entry: Mapping[str, Any]) -> Variant:
        self.text.check_keys(entry, MODEL_KEYS, section)
        name, preset = entry.get("name"), str(entry.get("preset", "published"))
        if not isinstance(name, str):
            raise self.text.error("a model needs a name: name = '...'", "name", section)
        try:
            model_class(name)
        except DsrdError as error:
            self.text.refuse(error, name, section)
        label = str(entry.get("label", model_label(name, preset)))
        return self._variant(section, entry, label=label, model=name, preset=preset, inherited={})

    def _ablation(self, section: Section, entry: Mapping[str, Any], models: Mapping[str, Variant]) -> Variant:
        self.text.check_keys(entry, ABLATION_KEYS, section)
        of = entry.get("of")
        if not isinstance(of, str) or of not in models:
            names = ", ".join(models)
            raise self.text.error(f"of = '{of}': no such model in this plan ({names})", "of", section)
        base, own = models[of], self._settings(entry, section)
        if not own:
            raise self.text.error("an ablation needs settings that differ from its model", "of", section)
        label = str(entry.get("label", f"{base.label}, {', '.join(f'{key}={own[key]}' for key in own)}"))
        entry = {**base.scope, **entry}
        model, preset = base.model, base.preset
        return self._variant(section, entry, label=label, model=model, preset=preset, inherited=base.settings)

    def _variant(
        self, section: Section, entry: Mapping[str, Any], inherited: Mapping[str, Any], **more: Any
    ) -> Variant:
        """A variant whose settings are those of the plan, of the ablated model and its own; they are checked."""
        general, own = self._settings(self.source, Section()), self._settings(entry, section)
        scope = {key: entry[key] for key in SCOPE if key in entry}
        minutes = scope.get("minutes", self.source.get("minutes"))
        limit = {} if minutes is None else {"train.minutes": minutes}
        settings = {**general, **inherited, **limit, **own}
        variant = Variant(settings=settings, scope=scope, section=section, **more)
        self._check(variant, {}, variant.preset, section)
        self._check(variant, limit, "minutes", section if "minutes" in scope else Section())
        inside = self.text.line_of("settings", Section("settings"))
        self._check(variant, general, "", Section("settings") if inside else Section())
        self._check(variant, own, "", section)
        self._check(variant, settings, "", section)
        return variant

    def _settings(self, table: Mapping[str, Any], section: Section) -> dict[str, Any]:
        settings = table.get("settings", {})
        if not isinstance(settings, Mapping):
            raise self.text.error("settings: write a table, such as { train.epochs = 3 }", "settings", section)
        return flat(settings)

    def _check(self, variant: Variant, settings: Mapping[str, Any], word: str, section: Section) -> None:
        """Refuse settings that the model does not have; the line is that of `word`, or of the wrong setting."""
        for key in settings:
            if not key.startswith(SETTABLE):
                every = [*variant.configured({}).keys(), "model.<setting>"]
                known = [name for name in every if name.startswith(SETTABLE)]
                self.text.refuse(unknown("setting", key, known), key, section)
        try:
            variant.configured(settings)
        except DsrdError as error:
            self.text.refuse(error, word or self.text.culprit(settings, variant.configured), section)

    def _runs(self, variant: Variant) -> Iterator[PlannedRun]:
        scope = {**self.source, **variant.scope}
        sections = {key: variant.section if key in variant.scope else Section() for key in SCOPE}
        section = sections["datasets"]
        seeds = self.text.entries(scope, "seeds", int, sections["seeds"]) or [0]
        protocols = self.text.entries(scope, "protocols", str, sections["protocols"])
        for protocol in protocols:
            try:
                protocol_named(protocol)
            except DsrdError as error:
                self.text.refuse(error, protocol, sections["protocols"])
        entries = scope.get("datasets", [])
        if not isinstance(entries, list) or not entries:
            raise self.text.error("datasets: give a list of one data set or more", "datasets", section)
        for entry in entries:
            stream = self._stream(entry, section)
            settings = dict(variant.settings)
            if not stream.catalogued:  # the published order needs all possible pairs in memory
                settings.setdefault("evaluate.order", "fast")
            for protocol in protocols or [stream.protocol]:
                for seed in seeds:
                    more = {"dataset": stream.name, "protocol": protocol, "seed": seed, "data": stream.data}
                    run = variant.configured(settings, **more)
                    yield PlannedRun(label=variant.label, stream=stream, run=run, settings=settings)

    def _stream(self, entry: Any, section: Section) -> Stream:
        if isinstance(entry, Mapping):
            self.text.check_keys(entry, STREAM_KEYS, section)
        name = entry.get("name") if isinstance(entry, Mapping) else entry
        if not isinstance(name, str):
            raise self.text.error(f"datasets: {entry!r} has no name", "datasets", section)
        known = str(entry)
        if known not in self.streams:
            try:
                self.streams[known] = stream_of(entry, self.folder, self.data_dir)
            except DsrdError as error:
                self.text.refuse(error, name, section)
        return self.streams[known]
