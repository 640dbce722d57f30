"""`dsrd refit`: new weights on all events, swapped in while events come; a kill leaves old or new ones."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsrd
from dsrd.cli.refit import _has_drifted, seconds
from dsrd.errors import DsrdError
from dsrd.live.data_folder import DataFolder
from dsrd.live.engine import Engine
from dsrd.live.refit import logged_dataset, newest_refit, refit
from dsrd.live.replica import Replica
from dsrd.live.settings import LiveSettings
from dsrd.live.swap import note_drift, noted_drift
from dsrd.live.watch import Drift, Watch
from live.streaming import QUIET, events, fields_of, kill_when, wait_for
from support.program import done, finish, start
from support.program import dsrd as program

QUICK = {"train.epochs": "1"}


def plain(count: int) -> list[dict[str, Any]]:
    return [{key: each[key] for key in ("source", "target", "time")} for each in events(count)]


def answers(engine: Engine | Replica) -> list[float]:
    pairs = [(source, target) for source in range(1, 9) for target in (3, 7, 41, 44, 999)]
    return list(engine.score(pairs).answer.partner)


def wait_until(ready: Any) -> None:
    until = time.monotonic() + 240
    while not ready():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("late", ["refuse", "reorder"])
def test_a_running_engine_uses_new_weights_and_loses_no_event(tmp_path: Path, run: Path, late: str):
    """Questions are answered all the while; afterwards it is as if the engine had started with the refit.

    A replica follows.
    """
    data, records = tmp_path / "data", plain(900)
    window = {"late": "reorder", "window": 3.0} if late == "reorder" else {}
    settings = LiveSettings(watch=0.0, snapshot_events=0, snapshot_minutes=0, **window)  # type: ignore[arg-type]
    failed: list[BaseException] = []
    with Engine(data, run, settings) as engine, Replica(data) as replica:
        engine.observe(records[:300])
        before = answers(engine)
        going, asked = threading.Event(), [0]

        def ask() -> None:
            try:
                while not going.is_set():
                    answers(engine)
                    asked[0] += 1
            except BaseException as error:
                failed.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        training = threading.Thread(target=refit, args=(engine.folder, QUICK))
        training.start()
        sent = 300
        while (training.is_alive() or engine.live.base.run != "refits/1") and sent < 850:
            engine.observe(records[sent : sent + 1])
            sent += 1
            time.sleep(0.01)
        training.join()
        wait_until(lambda: engine.live.base.run == "refits/1")
        engine.observe(records[sent:])
        going.set()
        asking.join()
        assert not failed
        assert asked[0]
        state, now, fields = engine.state(), answers(engine), fields_of(engine)
        assert (state.seq, state.events) == (900, 1500 - state.waiting)
        assert not np.allclose(before, now)
        wait_until(lambda: replica.live.base.run == "refits/1")
        replica.wait_for(900)
        assert (replica.state(), answers(replica)) == (state, now)
        assert replica.watch.rates.after(0), "events per second, on the page of the replica"
    done_refit = newest_refit(DataFolder(data))
    assert done_refit is not None
    assert 290 <= done_refit.held < 900
    assert done_refit.events == 600 + done_refit.held
    with Engine(data, settings=settings) as engine:  # from its snapshot
        assert (engine.live.base.run, engine.state()) == ("refits/1", state)
        assert fields_of(engine) == fields
    for path in (data / "snapshots").glob("*"):
        path.unlink()
    with Engine(data, settings=settings) as engine:  # from the refit and the log
        assert engine.state() == state
        assert fields_of(engine) == fields
        assert np.allclose(answers(engine), now, atol=1e-6)


def test_a_refit_has_all_events_in_the_order_of_the_model(tmp_path: Path, run: Path):
    data = tmp_path / "data"
    with Engine(data, run, LiveSettings(late="reorder", window=10.0, watch=0.0)) as engine:
        first = 3e6
        engine.observe([{"source": 1, "target": 50, "time": first + at} for at in (5, 3, 20)])
        engine.observe([{"source": 51, "target": 2, "time": first + at} for at in (12, 40, 35)])
    dataset, held = logged_dataset(DataFolder(data), DataFolder(data).base())
    assert held == 4  # 40 and 35 wait
    assert (dataset.events.time[600:] - first).tolist() == [3, 5, 12, 20]
    assert dataset.events.src[600:].tolist() == [1, 1, 51, 1]
    assert dataset.num_nodes == 52


def test_named_nodes_keep_their_ids(tmp_path: Path):
    """Twice in a row, with new names after each."""
    rows = [(f"u{number % 7}", f"v{number % 5}", float(number)) for number in range(120)]
    stream = tmp_path / "calls.csv"
    stream.write_text("source,target,time\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    data = dsrd.load(stream, bipartite=True)
    dsrd.LinkPredictor(epochs=1, dim=8).fit(data, folder=tmp_path / "run", progress=False)
    folder = DataFolder(tmp_path / "data")
    for number in (1, 2):
        with Engine(folder.path, None if number > 1 else tmp_path / "run", QUIET) as engine:
            engine.observe([{"source": f"new{number}", "target": "u1", "time": 1000.0 * number}])
            names = [engine.live.timeline.nodes.name(node) for node in range(1, engine.live.timeline.nodes.count)]
        assert refit(folder, QUICK).held == number
        with Engine(folder.path, settings=QUIET) as engine:
            nodes = engine.live.timeline.nodes
            assert engine.live.base.run == f"refits/{number}"
            assert [nodes.name(node) for node in range(1, nodes.count)] == names
            assert engine.score([("u1", "u1")]).known == [True]


def test_a_kill_leaves_the_old_weights(tmp_path: Path, run: Path):
    """SIGKILL in the middle of training; the next refit removes what is left, and is used."""
    data = tmp_path / "data"
    with Engine(data, run, QUIET) as engine:
        engine.observe(plain(100))
        before = answers(engine)
    words = ("refit", data, "--nice", 0)
    process = start(*words, "--now", "--set", "train.epochs=500", "--set", "train.patience=500")
    kill_when(process, lambda: (data / "refits" / "1" / "last.safetensors").exists())
    assert newest_refit(DataFolder(data)) is None
    with Engine(data, settings=QUIET) as engine:
        assert engine.live.base.run == "0001"
        assert answers(engine) == before
    said = done(*words, "--now", "--json", "--set", "train.epochs=1").json
    assert (said["run"], said["held"], said["events"]) == ("refits/1", 100, 700)
    with Engine(data, settings=QUIET) as engine:
        assert engine.live.base.run == "refits/1"
        assert answers(engine) != before
    opened = dsrd.open(data / "refits" / "1")  # a run like any other
    assert opened.fitted.final is not None
    assert len(opened.fitted.online.stream.dataset().events) == 700


def test_a_damaged_refit_is_not_used(tmp_path: Path, run: Path):
    data = tmp_path / "data"
    with Engine(data, run, QUIET) as engine:
        engine.observe(plain(50))
        before = answers(engine)
        broken = data / "refits" / "1"
        broken.mkdir(parents=True)
        noted = {"digest": "x", "held": 50, "events": 650, "at": 0.0}
        (broken / "refit.json").write_text(json.dumps(noted))
        wait_until(lambda: engine.live.notes)
        assert "the refit cannot be used" in engine.live.notes[-1]
        assert answers(engine) == before
        engine.observe(plain(60)[50:])
        assert engine.state().seq == 60


# --- When -------------------------------------------------------------------------------------------------------


def test_drift_is_noticed_noted_and_ends_with_new_weights(tmp_path: Path):
    """Three pairs take turns, then anybody meets anybody; what is noted is what a refit waits for."""
    turns = [f"{1 + number % 3},{11 + number % 3},{number}\n" for number in range(600)]
    (tmp_path / "turns.csv").write_text("source,target,time\n" + "".join(turns))
    model = dsrd.LinkPredictor(epochs=2, dim=8, lr=1e-2)
    run = model.fit(tmp_path / "turns.csv", folder=tmp_path / "run", progress=False).save()
    folder = DataFolder(tmp_path / "data")
    draw = np.random.default_rng(3)
    with Engine(folder.path, run, LiveSettings(watch=1.0)) as engine:
        for start_at in range(0, 300, 60):
            ends = draw.integers(100, 300, (60, 2)).tolist()
            engine.observe(
                [{"source": a, "target": b, "time": 700 + start_at + n} for n, (a, b) in enumerate(ends)]
            )
        drift = engine.watch.drift()
        assert drift.drifted
        assert drift.now > drift.then
        wait_until(lambda: _has_drifted(folder))
        noted = noted_drift(folder)
        assert noted is not None
        assert noted["run"] == "0001"
        refit(folder, QUICK)
        assert not _has_drifted(folder)  # the new weights are on their way
        wait_until(lambda: engine.live.base.run == "refits/1")
        assert not engine.watch.drift().drifted
        assert not _has_drifted(folder)


def test_chance_is_no_drift():
    draw = np.random.default_rng(0)
    drifted = 0
    for _ in range(50):
        watch = Watch(draw.gamma(4, 3, 200))
        watch._bits.extend(draw.gamma(4, 3, 1_000))
        watch._new = 1_000
        drifted += watch.drift().drifted
    assert drifted == 0


def test_the_loss_at_training_is_that_of_events_held_out(run: Path):
    """A model trained on all events finds its last ones less surprising than they were before that."""
    stream = dsrd.load("synth:events=600,nodes=40")
    model = dsrd.LinkPredictor(epochs=3, dim=8).fit(stream, final=True, progress=False)
    trained_on = model.fitted.recent_surprises("")
    held_out = model.fitted.hold_out()
    alone = dsrd.LinkPredictor(epochs=3, dim=8).fit(stream, progress=False).fitted.recent_surprises("")
    assert held_out.tolist() == pytest.approx(alone.tolist())
    assert held_out.tolist() != trained_on.tolist()
    assert model.fitted.recent_surprises("").tolist() == held_out.tolist()


def test_every_and_when_start_training(tmp_path: Path, run: Path):
    """One process waits for either; it trains when there are new events, and not again without."""
    data = tmp_path / "data"
    with Engine(data, run, QUIET):
        pass
    process = start("refit", data, "--nice", 0, "--every", "1s", "--when", "drift", "--set", "train.epochs=1")
    with Engine(data, settings=QUIET) as engine:
        engine.observe(plain(40))
        wait_for(process, lambda: engine.live.base.run == "refits/1")
        note_drift(engine.folder, "refits/1", Drift(5.0, 9.0, 0.1, 500))
        wait_for(process, lambda: engine.live.base.run == "refits/2")
        time.sleep(0.1)
    process.terminate()
    finish(process)
    assert newest_refit(DataFolder(data)) is not None


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ((), "say when to train"),
        (("--when", "rain"), "give drift"),
        (("--every", "soon"), "give a number and a unit"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, words: tuple[str, ...], fault: str):
    assert fault in program("refit", tmp_path, *words).error


def test_a_folder_that_is_not_one_is_refused(tmp_path: Path):
    niceness = os.nice(0)
    assert "not the data folder of an engine" in program("refit", tmp_path, "--now").error
    assert os.nice(0) == niceness, "a command that does nothing changes nothing"
    with pytest.raises(DsrdError):
        seconds("0d")
