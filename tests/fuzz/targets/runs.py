"""Run folders: every file of them damaged, cut, emptied, exchanged or removed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random
from typing import Any

import dsrd
from dsrd.models import model_class
from fuzz.mutate import applied, edits_of
from fuzz.targets import Target, refused_or, same
from fuzz.targets.readers import PEOPLE, calls

OFFERED = {("best.safetensors", "last.safetensors")}
"""A file, and one that may be put in its place: the answers are then those of another epoch."""
MODELS = ("tgn", "pint", "edgebank", "dsrd")
PAIRS = [(source, target) for source in PEOPLE for target in PEOPLE[:3]]


def estimator(name: str, **more: Any) -> dsrd.LinkPredictor:
    """A model that trains in a moment."""
    card = model_class(name).card
    settings = {f"model__{key}": value for key, value in card.small.items()}
    return dsrd.LinkPredictor(name, **({} if card.rule else {"epochs": 2}), **settings, **more)


def answers(model: dsrd.LinkPredictor) -> str:
    """What a run says: about pairs, and how it was measured."""
    return str(
        (
            model.predict(PAIRS),
            str(model.partners(PEOPLE[:2], k=3)),
            model.evaluate(progress=False).record["results"],
        )
    )


class RunFolder(Target):
    """Opening a run, and continuing to train it."""

    area, share = "run folders", 3

    def prepare(self, folder: Path) -> None:
        (folder / "calls.csv").write_text(calls())
        self.stream = dsrd.load(folder / "calls.csv", features=["cost"], cache=False)
        self.folders, self.files, self.expected = {}, dict[str, dict[str, bytes]](), {}
        for name in MODELS:
            place = folder / name
            model = estimator(name).fit(self.stream, folder=place, progress=False)
            model.evaluate(progress=False)
            model.save()
            self.files[name] = {file.name: file.read_bytes() for file in place.iterdir() if file.is_file()}
            self.expected[name] = answers(dsrd.open(place))

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        model = chance.choice(MODELS)
        file = chance.choice(list(self.files[model]))
        case: dict[str, Any] = {"model": model, "file": file, "resume": chance.random() < 0.15}
        kind = chance.choice(("edits",) * 6 + ("remove", "other file", "other run"))
        if kind == "edits":
            return {**case, "edits": edits_of(self.files[model][file], chance)}
        if kind == "other file":
            others = [name for name in self.files[model] if (file, name) not in OFFERED]
            return {**case, "from": [model, chance.choice(others)]}
        if kind == "other run":
            other = chance.choice(MODELS)
            return {**case, "from": [other, file if file in self.files[other] else "config.json"]}
        return case

    def attempt(self, case: Any, folder: Path) -> str:
        model, damaged = case["model"], dict(self.files[case["model"]])
        if "edits" in case:
            damaged[case["file"]] = applied(damaged[case["file"]], case["edits"])
        elif "from" in case:
            other, file = case["from"]
            damaged[case["file"]] = self.files[other].get(file, b"")
        else:
            del damaged[case["file"]]
        run = folder / "run"
        run.mkdir()
        for name, content in damaged.items():
            if not (case["resume"] and name == "record.json"):
                (run / name).write_bytes(content)

        def opened() -> str:
            if case["resume"]:
                fitted = estimator(model).fit(self.stream, folder=run, progress=False)
            else:
                fitted = dsrd.open(run)
            return same(answers(fitted), self.expected[model])

        return refused_or(opened)


class SavedHead(Target):
    """The head of a classification in the folder of its run."""

    area = "run folders"

    def prepare(self, folder: Path) -> None:
        from dsrd.classify import NodeClassifier

        (folder / "calls.csv").write_text(calls())
        stream = dsrd.load(folder / "calls.csv", features=["cost"], label="late", cache=False)
        self.run = folder / "run"
        model = estimator("tgn").fit(stream, folder=self.run, progress=False)
        self.head = NodeClassifier.fit(model, epochs=1).save()
        self.content, self.expected = self.head.read_bytes(), self._answer(self.run)

    def _answer(self, run: Path) -> str:
        from dsrd.classify import NodeClassifier

        classifier = NodeClassifier.open(dsrd.open(run))
        return str(
            classifier.predict(
                {"source": ["ann"], "target": ["bob"], "time": ["2024-06-01T00:00:00Z"], "cost": [1]}
            )
        )

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        return {"edits": edits_of(self.content, chance)}

    def attempt(self, case: Any, folder: Path) -> str:
        run = folder / "run"
        shutil.copytree(self.run, run, copy_function=os.link)
        (run / self.head.name).unlink()
        (run / self.head.name).write_bytes(applied(self.content, case["edits"]))
        return refused_or(lambda: same(self._answer(run), self.expected))
