"""One fitted model asked by several threads: every answer equals that of one thread alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import torch

import dsrd
from dsrd.events import Query
from fuzz.targets import Target, same
from fuzz.targets.readers import PEOPLE, calls
from fuzz.targets.runs import estimator

MODELS = ("dsrd", "tgn", "pint", "edgebank", "graphmixer", "tpnet", "nat", "cawn", "dyrep", "jodie", "tcl")
THREADS = 4
VERBS = ("predict", "predict", "partners", "surprise", "embed")


class Threads(Target):
    """Questions of four threads at once, each in an order of its own."""

    area, share = "questions from threads", 2

    def prepare(self, folder: Path) -> None:
        self.opened: dict[str, dsrd.LinkPredictor] = {}
        (folder / "calls.csv").write_text(calls())
        stream = dsrd.load(folder / "calls.csv", features=["cost"], cache=False)
        for name in MODELS:
            self.opened[name] = estimator(name).fit(stream, folder=folder / name, progress=False)
            for verb in dict.fromkeys(VERBS):  # compiled code is then there in every process that is forked
                answer(self.opened[name], verb, ["ann", "bob"], None)

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        questions = []
        for _ in range(chance.choice((2, 4, 6))):
            names = [chance.choice((*PEOPLE, "nobody")) for _ in range(chance.choice((2, 4, 8)))]
            at = chance.choice((None, None, "2024-06-01T00:00:00Z", "2025-01-01T00:00:00Z"))
            questions.append([chance.choice(VERBS), names, at])
        return {"model": chance.choice(MODELS), "questions": questions, "seed": chance.randrange(1000)}

    def attempt(self, case: Any, folder: Path) -> str:
        model, questions = self.opened[case["model"]], case["questions"]
        expected = [answer(model, *question) for question in questions]

        def work(thread: int) -> list[tuple[int, str]]:
            order = list(range(len(questions)))
            Random(f"{case['seed']} {thread}").shuffle(order)
            return [(number, answer(model, *questions[number])) for number in order]

        with ThreadPoolExecutor(THREADS) as pool:
            said = [each for one in pool.map(work, range(THREADS)) for each in one]
        return same(said, [(number, expected[number]) for number, _ in said])


class ScoreThreads(Threads):
    """The inner verb, `model.score`, from four threads: scores equal to the last bit."""

    area, share = "`model.score` from threads", 1

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        count = chance.choice((1, 3, 20))
        ends = [[chance.randrange(8) for _ in range(count)] for _ in range(2)]
        return {"model": chance.choice(MODELS), "ends": ends, "later": chance.choice((1.0, 1e5, 1e9))}

    def attempt(self, case: Any, folder: Path) -> str:
        online = self.opened[case["model"]].fitted.online
        src, dst = torch.tensor(case["ends"])
        query = Query(src, dst, torch.full(src.shape, online.stream.last_time + case["later"]))

        def work(_: int) -> list[float]:
            with torch.no_grad():
                return online.model.score(query, online.past).tolist()

        with ThreadPoolExecutor(THREADS) as pool:
            said = list(pool.map(work, range(THREADS)))
        return same(said, [work(0)] * THREADS)


def answer(model: dsrd.LinkPredictor, verb: str, names: list[str], at: str | None) -> str:
    """What the model says; the text of an error where it refuses."""
    pairs = list(zip(names[::2], names[1::2], strict=True))
    try:
        if verb == "predict":
            return model.predict(pairs, at).to_csv()
        if verb == "partners":
            return model.partners(names, 3, at).to_csv()
        if verb == "surprise":
            when = at or "2024-06-01T00:00:00Z"
            columns = {"source": names[::2], "target": names[1::2], "time": [when] * len(pairs)}
            return str(model.surprise(pa.table({**columns, "cost": [1.0] * len(pairs)})))
        return model.embed(names, at).tobytes().hex()
    except dsrd.DsrdError as error:
        return str(error)
