"""Several threads ask one fitted model, and give it events: every answer is one that a single thread would get."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import dsrd
from dsrd.estimator.shared_lock import SharedLock
from front.conftest import HEADER, PEOPLE, rows

ASKED = [(source, target) for source in PEOPLE[:5] for target in PEOPLE[5:]]
EARLY = [(*pair, "2024-05-12T00:00:00Z") for pair in ASKED[:6]]
THREADS = 4
MODELS = ("dsrd", "tgn", "pint", "edgebank")


def day(first: int, last: int) -> Any:
    return dsrd_table(HEADER + rows(first, last))


def dsrd_table(text: str) -> Any:
    import io

    import pyarrow.csv

    return pyarrow.csv.read_csv(io.BytesIO(text.encode()))


def comparable(answer: Any) -> Any:
    """An answer as plain values, equal bit for bit or not."""
    if isinstance(answer, np.ndarray):
        return answer.tobytes()
    if isinstance(answer, dsrd.Results):
        return str(answer.record["results"])
    return str(answer.to_dict() if hasattr(answer, "to_dict") else answer)


def questions(model: dsrd.LinkPredictor, later: Any) -> dict[str, Callable[[], Any]]:
    asked = {
        "predict": lambda: model.predict(ASKED),
        "predict earlier": lambda: model.predict(EARLY),
        "partners": lambda: model.partners(PEOPLE[:3], k=3),
        "partners earlier": lambda: model.partners(PEOPLE[:2], k=3, at="2024-05-12T00:00:00Z"),
        "surprise": lambda: model.surprise(later),
        "evaluate": lambda: model.evaluate(later, progress=False),
    }
    if model.run.model != "edgebank":
        asked |= {
            "embed": lambda: model.embed(PEOPLE[:3]),
            "embed earlier": lambda: model.embed(PEOPLE[:3], at="2024-05-12T00:00:00Z"),
        }
    return asked


@pytest.mark.parametrize("name", MODELS)
def test_answers_from_threads_equal_those_of_one(name: str, opened: Callable[[str], dsrd.LinkPredictor]):
    model = opened(name)
    later = day(240, 252)
    asked = questions(model, later)
    expected = {what: comparable(ask()) for what, ask in asked.items()}
    together = Barrier(THREADS)

    def work(number: int) -> list[tuple[str, Any]]:
        together.wait()
        order = list(asked)[number:] + list(asked)[:number]  # every thread begins with another question
        return [(what, comparable(asked[what]())) for what in order]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = [answer for answers in pool.map(work, range(THREADS)) for answer in answers]
    assert len(answers) == THREADS * len(asked)
    assert [what for what, answer in answers if answer != expected[what]] == []


@pytest.mark.parametrize("name", MODELS)
def test_answers_while_another_thread_observes_are_those_of_some_moment(
    name: str, opened: Callable[[str], dsrd.LinkPredictor]
):
    """The stream grows by one day after the other while it is asked: no answer mixes two of its states."""
    model = opened(name)
    days = [day(first, first + 12) for first in range(240, 300, 12)]
    alone = dsrd.open(f"{name}.run")
    allowed = [comparable(alone.predict(ASKED))]
    allowed += [comparable(alone.observe(events).predict(ASKED)) for events in days]

    def write() -> None:
        for events in days:
            model.observe(events)

    def read(_: int) -> list[Any]:
        return [comparable(model.predict(ASKED)) for _ in range(6)]

    with ThreadPoolExecutor(THREADS) as pool:
        writing = pool.submit(write)
        seen = [allowed.index(answer) for answers in pool.map(read, range(THREADS - 1)) for answer in answers]
        writing.result()
    assert len(seen) == 6 * (THREADS - 1)
    assert comparable(model.predict(ASKED)) == allowed[-1]


def test_readers_work_beside_each_other_and_a_writer_alone():
    lock, beside = SharedLock(), Barrier(2, timeout=20)
    state = [0]

    def read() -> int:
        beside.wait()  # passes only if both readers are inside at the same time
        return state[0]

    def write() -> int:
        lock.require_alone()
        state[0] += 1
        return state[0]

    with ThreadPoolExecutor(4) as pool:
        assert [future.result() for future in [pool.submit(lock.run, read) for _ in range(2)]] == [0, 0]
        written = [future.result() for future in [pool.submit(lock.run, write) for _ in range(200)]]
    assert sorted(written) == list(range(1, 201))


def test_a_model_can_be_saved_while_it_is_asked(opened: Callable[[str], dsrd.LinkPredictor]):
    model = opened("tgn")
    expected = comparable(model.predict(ASKED))
    with ThreadPoolExecutor(2) as pool:
        saved = pool.submit(model.save, "copy")
        assert comparable(pool.submit(model.predict, ASKED).result()) == expected
        assert saved.result() == Path("copy")
    assert comparable(dsrd.open("copy").predict(ASKED)) == expected
