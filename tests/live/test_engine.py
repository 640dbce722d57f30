"""The engine: what it accepts, counts and answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dsrd
from dsrd.errors import DsrdError, MachineError
from dsrd.live import Engine, LiveSettings, Position, Replica
from dsrd.live.engine import Engine as _Engine
from dsrd.live.log import LogFailedError
from live.rows import QUIET, START, abandon, answers, in_batches, rows


def test_answers_equal_those_of_the_run_in_python(run: Path, tmp_path: Path):
    events = rows(30)
    model = dsrd.open(run)
    model.observe([(event["source"], event["target"], event["time"]) for event in events])
    table = model.predict([(3, 7), (41, 3)])
    with Engine(tmp_path, run, QUIET) as engine:
        engine.observe(events)
        scored = engine.score([(3, 7), (41, 3)])
        partners = engine.partners(3, k=4)
    assert scored.answer.surprise.tolist() == pytest.approx(list(table["surprise"]), rel=1e-5)
    assert scored.answer.partner.tolist() == pytest.approx(list(table["partner"]), rel=1e-5)
    assert partners.target == [str(name) for name in model.partners(3, k=4)["target"]]


def test_an_answer_is_of_the_moment_it_names(run: Path, tmp_path: Path):
    with Engine(tmp_path / "one", run, QUIET) as engine:
        first = engine.score([(3, 7)])
        engine.observe(rows(20))
        second = engine.score([(3, 7)])
    assert (first.seq, second.seq) == (0, 20)
    assert first.answer.surprise.tolist() != second.answer.surprise.tolist()


def test_unknown_names_are_answered_and_marked(run: Path, tmp_path: Path):
    with Engine(tmp_path, run, QUIET) as engine:
        together = engine.score([(3, 7), ("zoe", 7), (3, "yan"), ("zoe", "yan")])
        alone = engine.score([("zoe", 7)])
    assert together.known == [True, False, False, False]
    assert together.answer.surprise[1] == pytest.approx(alone.answer.surprise[0])


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        ({"target": 1, "time": 1}, "event 1: has no source; give source, target and time"),
        ({"source": 1, "target": 2, "time": "monday"}, "'monday'"),
        ({"source": 1, "target": 2, "time": "2024-01-01"}, "the times of this stream are numbers"),
        ({"source": 1, "target": 2, "time": float("nan")}, "event 1: time is nan"),
        ({"source": 1, "target": 2, "time": 10**400}, "too large"),
        ({"source": 1, "target": 2, "time": 1.01e19}, "give a number from 0 to 1e.19"),
        ({"source": 1, "target": 2, "time": "1e20"}, "event 1: time .1e.20. is too large"),
        ({"source": 1, "target": 2, "time": -1}, "event 1: time is -1"),
        ({"source": [], "target": 2, "time": 1}, "neither text nor a whole number"),
        ({"source": " ", "target": 2, "time": 1}, "without a name"),
        ({"source": "\ud800", "target": 2, "time": 1}, r"node '.ud800' is no valid Unicode"),
        ({"source": 1, "target": 2, "time": START, "id": "\udfff"}, r"id '.udfff' is no valid Unicode"),
        ({"source": "x" * 2000, "target": 2, "time": 1}, "2,000 characters"),
        ({"source": 1, "target": 2, "time": 1, "weight": 3}, "has a field 'weight'"),
        ({"source": 1, "target": 2, "time": START, "features": [1.0]}, "has 1 features; this stream has 0"),
        ({"source": 1, "target": 2, "time": 5}, "is older than the newest event"),
        ({"source": 1, "target": 2, "time": START, "id": 3.5}, "id 3.5 is neither"),
        ({"source": 1, "target": 2, "time": START, "id": ""}, "an id of 0 characters"),
        ({"source": "ann", "target": 2, "time": START}, "node 'ann' is no number"),
        ({"source": 10**12, "target": 2, "time": START}, "far above the 40 nodes"),
        ({"source": 1, "target": 10_050, "time": START}, "far above the 40 nodes"),
    ],
)
def test_bad_events_are_refused_in_one_line(shared: Engine, event: dict[str, Any], fault: str):
    before = shared.state()
    with pytest.raises(DsrdError, match=fault) as error:
        shared.observe([event])
    assert "\n" not in str(error.value)
    assert shared.state() == before


def test_the_latest_time_that_is_taken_can_be_observed_and_replayed(run: Path, tmp_path: Path):
    with Engine(tmp_path, run, QUIET) as engine:
        engine.observe([{"source": 1, "target": 2, "time": 1e19}])
        surprise = engine.score([(3, 7)]).answer.surprise
        abandon(engine)
    with Engine(tmp_path, settings=QUIET) as engine:
        assert (engine.failure, engine.state().seq) == (None, 1)
        assert engine.score([(3, 7)]).answer.surprise.tolist() == surprise.tolist()
    assert np.isfinite(surprise).all()


@pytest.fixture(scope="module")
def shared(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An engine that no test changes."""
    with Engine(tmp_path_factory.mktemp("shared"), run, QUIET) as engine:
        yield engine


def test_bad_questions_are_refused(shared: Engine):
    for ask, fault in (
        (lambda: shared.score([]), "no pairs"),
        (lambda: shared.score([(3, None)]), "pair 1: node None"),
        (lambda: shared.score([(3, 7)], time=1.0), "is before the newest event"),
        (lambda: shared.score([(3, 7)], time=[1]), r"question: time is \[1\]"),
        (lambda: shared.score([(3, 7)], time=1e300), "question: time is 1e.300; give a number from 0 to 1e.19"),
        (lambda: shared.score([(3, 7)], time="soon"), "question: time is 'soon'"),
        (lambda: shared.partners(3, k=0), "k=0"),
        (lambda: shared.partners(3.5), "partners: node 3.5"),
        (lambda: shared.surprise([]), "no events"),
        (lambda: shared.surprise([{"source": 1, "target": 2, "time": 5}]), "is before the newest"),
    ):
        with pytest.raises(DsrdError, match=fault):
            ask()


# --- Late events, ids, positions


def test_late_events_are_refused_dropped_or_reordered(run: Path, tmp_path: Path):
    events = rows(60)
    late = [*events[:30], events[40], *events[30:40], *events[41:]]
    with Engine(tmp_path / "refuse", run, QUIET) as engine:
        engine.observe(late[:31])
        with pytest.raises(DsrdError, match=r"event 1: time .* is older than the newest event"):
            engine.observe(late[31:35])
        assert (engine.state().seq, engine.counts) == (31, {"refused": 4})
    with Engine(tmp_path / "drop", run, LiveSettings(late="drop")) as engine:
        engine.observe(late[:31])
        done = engine.observe(late[31:])
        assert (done.accepted, done.late) == (19, 10)
        assert engine.counts == {"late": 10}


@pytest.mark.parametrize("model", ["run", "tgn"])
def test_reordered_events_equal_events_in_order(model: str, tmp_path: Path, request: pytest.FixtureRequest):
    folder, events = request.getfixturevalue(model), rows(90)
    mixed = [event for start in range(0, 90, 6) for event in reversed(events[start : start + 6])]
    settings = LiveSettings(late="reorder", window=30, watch=0, snapshot_events=0)
    engine = Engine(tmp_path / "data", folder, settings)
    for event in mixed[:45]:
        engine.observe([event])
    engine.snapshot()
    for event in mixed[45:]:
        engine.observe([event])
    assert 0 < engine.state().waiting < 60
    assert engine.counts == {}
    expected = answers(engine)
    abandon(engine)
    with Engine(tmp_path / "data", settings=settings) as engine:
        assert answers(engine) == expected
        too_old = engine.observe([{"source": 1, "target": 2, "time": START}])
        assert too_old.late == 1
    if model == "run":
        waiting = expected["state"].waiting
        in_order = sorted(enumerate(mixed), key=lambda each: (each[1]["time"], each[0]))[: 90 - waiting]
        with Engine(tmp_path / "twin", folder, QUIET) as twin:
            twin.observe([event for _, event in in_order])
            assert answers(twin)["score"] == expected["score"]
    with pytest.raises(DsrdError, match="written with a window of 30"):
        Engine(tmp_path / "data", settings=QUIET)


def test_an_id_is_counted_once_also_after_a_restart(run: Path, tmp_path: Path):
    events = [event | {"id": f"call-{number}"} for number, event in enumerate(rows(12))]
    with Engine(tmp_path, run, QUIET) as engine:
        done = engine.observe([*events[:6], events[2]])
        assert (done.seq, done.accepted, done.duplicates) == (6, 6, 1)
    with Engine(tmp_path) as engine:
        done = engine.observe(events)
        assert (done.seq, done.accepted, done.duplicates) == (12, 6, 6)
        assert engine.counts == {"duplicates": 7}
        assert engine.state().events == 612


def test_a_position_is_counted_once_also_after_a_restart(run: Path, tmp_path: Path):
    with Engine(tmp_path, run, QUIET) as engine:
        engine.observe(rows(5), position=Position("calls", (10, 20, 30, 40, 50)))
        assert engine.position("calls") == 50
    with Engine(tmp_path) as engine:
        assert (engine.position("calls"), engine.position("mails")) == (50, None)
        done = engine.observe(rows(8), position=Position("calls", (10, 20, 30, 40, 50, 60, 70, 80)))
        assert (done.accepted, done.duplicates, engine.position("calls")) == (3, 5, 80)


# --- The disk


def test_a_full_disk_refuses_events_and_loses_none(run: Path, tmp_path: Path):
    with Engine(tmp_path / "data", run, QUIET) as engine:
        engine.observe(rows(20))
        pages = engine._log._db.execute("pragma page_count").fetchone()[0]
        engine._log._db.execute(f"pragma max_page_count={pages}")
        with pytest.raises(MachineError, match="the disk is full; free some space"):
            engine.observe(rows(3000, 20))
        before = answers(engine)
        assert before["state"].seq == 20
        engine._log._db.execute("pragma max_page_count=1000000")
        assert engine.observe(rows(3000, 20)).seq == 3020
        after = answers(engine)
    with Engine(tmp_path / "data") as engine:
        assert answers(engine) == after


def test_after_an_unclear_commit_no_more_events_are_taken(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def failing(*_: Any) -> None:
        raise LogFailedError("log.sqlite: cannot be written or read (disk I/O error)")

    engine = Engine(tmp_path, run, QUIET)
    engine.observe(rows(4))
    with monkeypatch.context() as patch:
        patch.setattr(engine._log, "append", failing)
        with pytest.raises(LogFailedError):
            engine.observe(rows(1, 4))
    with pytest.raises(LogFailedError, match="disk I/O error"):
        engine.observe(rows(1, 4))
    assert engine.score([(3, 7)]).seq == 4
    engine.close()
    with Engine(tmp_path) as engine:
        assert engine.observe(rows(1, 4)).seq == 5


def test_one_folder_has_one_writer_and_one_run(run: Path, tgn: Path, tmp_path: Path):
    with Engine(tmp_path / "data", run, QUIET), pytest.raises(DsrdError, match="another process writes"):
        Engine(tmp_path / "data", run, QUIET)
    with pytest.raises(DsrdError, match="was started with another run"):
        Engine(tmp_path / "data", tgn, QUIET)
    with pytest.raises(DsrdError, match="give the run to start from"):
        Engine(tmp_path / "empty", settings=QUIET)
    with pytest.raises(DsrdError, match="not a run folder"):
        Engine(tmp_path / "wrong", tmp_path / "mistyped", QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "a mistake leaves no folder"


# --- Threads, replicas


def test_threads_write_and_read_at_the_same_time(run: Path, tmp_path: Path):
    settings = LiveSettings(late="drop", window=0, watch=0.5, snapshot_events=50)
    faults: list[BaseException] = []
    stop = threading.Event()
    with Engine(tmp_path / "data", run, settings) as engine:

        def write(number: int) -> None:
            for start in range(0, 200, 5):
                ids = [event | {"id": f"{number}-{start}-{row}"} for row, event in enumerate(rows(5, start))]
                engine.observe([event | {"time": START + 100} for event in ids])

        def read() -> None:
            last = 0
            while not stop.is_set():
                scored = engine.score([(3, 7), (41, 5)])
                assert scored.seq >= last
                last = scored.seq
                engine.partners(3, k=3)
                engine.state()

        def guarded(work: Any, *words: Any) -> None:
            try:
                work(*words)
            except BaseException as error:
                faults.append(error)

        readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(3)]
        writers = [threading.Thread(target=guarded, args=(write, number)) for number in range(3)]
        for thread in (*readers, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
        assert not faults
        assert engine.state().seq == 600
        expected = answers(engine)
    with Engine(tmp_path / "data", settings=settings) as engine:
        assert answers(engine) == expected


@pytest.mark.parametrize("model", ["run", "tgn"])
def test_a_replica_says_the_same(model: str, tmp_path: Path, request: pytest.FixtureRequest):
    with Engine(tmp_path, request.getfixturevalue(model), QUIET) as engine:
        in_batches(engine, 30)
        engine.snapshot()
        with Replica(tmp_path) as replica:
            assert answers(replica) == answers(engine)
            in_batches(engine, 30, 30)
            engine.compact()
            in_batches(engine, 30, 60)
            replica.wait_for(90)
            assert answers(replica) == answers(engine)
            assert (replica.behind, replica.counts) == (0, {})
    with Replica(tmp_path) as replica:  # also while no engine runs
        assert replica.state().seq == 90


def test_the_public_names_are_these():
    assert Engine is _Engine
