"""Settings of every model and of training: refused in one line, or trained with."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import dsrd
from dsrd.config import EvaluateConfig, TrainConfig
from dsrd.models import model_class, names
from fuzz.targets import VALID, DifferentError, Target, refused_or
from fuzz.targets.readers import PEOPLE, calls

VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 3, 5, 7, 8, 16, 17, 64, -1, -7, 10**3, 10**6, 10**9, 2**31, 2**63, 2**64, 10**30),
    *(0.0, 0.1, 0.5, 0.999999, 1.0, 1.5, -0.1, 1e-300, 1e300, float("nan"), float("inf"), float("-inf")),
    *(
        "",
        "x",
        "none",
        "nan",
        "1e999",
        "3",
        "3.5",
        "0.1,0.2",
        "1,1,1",
        "random",
        "recent",
        "uniform",
        "cuda",
        "cpu:9",
    ),
    *(None, True, False, [], [1, 2], [0.0], ["random"], ["x"], {"a": 1}),
)
SLOW = {"epochs", "minutes"}  # what makes a correct run long


class Settings(Target):
    """Training with a few settings of absurd or extreme values."""

    area, share = "settings", 3

    def prepare(self, folder: Path) -> None:
        (folder / "calls.csv").write_text(calls())
        self.stream = dsrd.load(folder / "calls.csv", features=["cost"], cache=False)
        self.settings = {}
        for name in names():
            own = [f"model__{entry.name}" for entry in fields(model_class(name).Config)]
            train = [f"train__{entry.name}" for entry in fields(TrainConfig) if entry.name not in SLOW]
            measure = [f"evaluate__{entry.name}" for entry in fields(EvaluateConfig)]
            self.settings[name] = (own * 3, train, measure)
        for number, name in enumerate(names()):  # compiled code is then there in every process that is forked
            (folder / str(number)).mkdir()
            self.attempt({"model": name, "settings": {}}, folder / str(number))

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        model = chance.choice(list(self.settings))
        pool = [name for part in self.settings[model] for name in part] + ["seed", "preset", "protocol"]
        chosen = {chance.choice(pool): chance.choice(VALUES) for _ in range(chance.choice((1, 1, 2, 3)))}
        return {"model": model, "settings": chosen}

    def attempt(self, case: Any, folder: Path) -> str:
        card = model_class(case["model"]).card
        small = {f"model__{name}": value for name, value in card.small.items()}
        settings = {**small, **({} if card.rule else {"epochs": 1}), **case["settings"]}
        run = folder / "run"

        def train() -> str:
            model = dsrd.LinkPredictor(case["model"], **settings)
            model.fit(self.stream, folder=run, progress=False)
            said = model.predict([(PEOPLE[0], other) for other in PEOPLE])
            numbers = np.asarray(said["probability"], dtype=float)
            if not ((numbers >= 0) & (numbers <= 1)).all():
                raise DifferentError(f"probabilities {numbers}")
            return VALID

        return refused_or(train)
