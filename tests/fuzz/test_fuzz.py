"""A share of the attacks, and every case that ever failed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dsrd
from fuzz.attack import Found, attack, judged, kept_cases, verdicts
from fuzz.mutate import applied, edits_of
from fuzz.targets import REFUSED, VALID, DifferentError, Target, all_targets, refused_or
from fuzz.targets.readers import check

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forked processes")

TARGETS = {target.name: target for target in all_targets()}
FAST = ("TableFile", "BenchmarkFolder", "CachedStream", "Archive", "JsonFile")
prepared: dict[str, Target] = {}


@pytest.fixture
def target(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Target]:
    """A target by name, prepared once."""

    def get(name: str) -> Target:
        if name == "Server":
            pytest.importorskip("fastapi", reason="needs dsrd[serve]")
        if name not in prepared:
            TARGETS[name].prepare(tmp_path_factory.mktemp(name))
            prepared[name] = TARGETS[name]
        return prepared[name]

    return get


def attacked(target: Target, seconds: float, most: int, seed: int = 0) -> Found:
    found = Found(target.area)
    attack(target, found, Random(f"{seed} {target.name}"), time.monotonic() + seconds, most)
    return found


@pytest.mark.parametrize("name", FAST)
def test_a_few_damaged_files_are_handled_well(name: str, target: Callable[[str], Target]):
    found = attacked(target(name), seconds=5, most=60)
    assert found.failures == []
    assert found.outcomes.total() > 0


@pytest.mark.parametrize("name", ["RunFolder", "Settings", "CommandLine", "Server", "OddStream"])
def test_a_few_runs_settings_commands_requests_and_streams_are_handled_well(
    name: str, target: Callable[[str], Target]
):
    found = attacked(target(name), seconds=5, most=25)
    assert found.failures == []
    assert found.outcomes.total() > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_two_minutes_of_attacks_are_handled_well(name: str, target: Callable[[str], Target]):
    shares = sum(each.share for each in TARGETS.values())
    found = attacked(target(name), seconds=120 * TARGETS[name].share / shares, most=10**6, seed=time.time_ns())
    assert found.failures == []


@pytest.mark.parametrize("case", kept_cases(), ids=lambda case: f"{case['target']}: {case['detail'][:40]}")
def test_a_case_that_failed_once_is_handled_well(case: dict[str, Any], target: Callable[[str], Target]):
    (verdict,) = verdicts(target(case["target"]), [case["case"]], set(), time.monotonic() + 60)
    assert verdict["outcome"] in ("refused", "equal", "valid"), verdict


class Trap(Target):
    """A target with every fault: the judge must find them."""

    area = "the judge"

    def prepare(self, folder: Path) -> None: ...

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        return "fine"

    def attempt(self, case: Any, folder: Path) -> str:
        if case == "traceback":
            raise IndexError("list index out of range")
        if case == "different":
            raise DifferentError("0.4 instead of 0.5")
        if case == "crash":
            os.abort()
        if case == "hang":
            time.sleep(3600)
        if case == "memory":
            return str(bytearray(16 << 30)[:1])
        return VALID


def test_the_judge_finds_every_kind_of_failure(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fuzz.attack.SECONDS", 0.5)
    cases = ["fine", "traceback", "crash", "different", "hang", "memory", "fine"]
    found = [each["outcome"] for each in verdicts(Trap(), cases, set(), time.monotonic() + 60)]
    assert found == ["valid", "traceback", "crash", "different", "hang", "traceback", "valid"]


def test_a_case_is_repeated_from_its_edits():
    chance = Random(0)
    for _ in range(200):
        content = chance.randbytes(50)
        edits = edits_of(content, chance)
        assert applied(content, edits) == applied(content, [tuple(edit) for edit in edits])
    assert {judged(Trap(), "fine")["outcome"], REFUSED} == {VALID, REFUSED}


NAMES = st.one_of(st.text(max_size=6), st.sampled_from(["ann", "bob", " ann", "1", "", "nan", "zoë"]), st.none())
TIMES = st.one_of(
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.sampled_from(["", "nan", "2024-01-01", "01.02.2024", "20240101", "2024-05-01T00:00:00Z", "1e999"]),
    st.none(),
)
FEATURES = st.one_of(st.floats(), st.sampled_from(["", "x", "1e39", "-0.0"]), st.none())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(st.tuples(NAMES, NAMES, TIMES, FEATURES), max_size=8), sep=st.sampled_from(",;\t"))
def test_any_table_of_text_is_read_or_refused(tmp_path: Path, rows: list[tuple[Any, ...]], sep: str):
    """As many events as rows, or an error of one line."""
    file = tmp_path / "table.csv"
    lines = [sep.join(("source", "target", "time", "x"))]
    for row in rows:
        texts = ["" if entry is None else str(entry).replace('"', '""') for entry in row]
        lines.append(sep.join(f'"{text}"' for text in texts))
    file.write_text(
        "\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass" if sys.platform == "win32" else "replace"
    )

    def read() -> str:
        data = dsrd.load(file, features=["x"], cache=False)
        check(data)
        assert len(data.events) == len(rows)
        return VALID

    assert refused_or(read) in (VALID, REFUSED)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    names=st.lists(st.integers(-3, 3) | st.text(max_size=3) | st.none(), min_size=1, max_size=6),
    kind=st.sampled_from(
        [
            pa.int64(),
            pa.float64(),
            pa.timestamp("s"),
            pa.timestamp("ns"),
            pa.date32(),
            pa.bool_(),
            pa.string(),
            pa.uint64(),
        ]
    ),
    values=st.lists(st.integers(-(2**62), 2**62), min_size=6, max_size=6),
)
def test_any_arrow_table_is_read_or_refused(names: list[Any], kind: pa.DataType, values: list[int]):
    people = pa.array([None if name is None else str(name) for name in names])
    time_column = (
        pa.array(values[: len(names)]).cast(kind, safe=False)
        if kind not in (pa.string(), pa.date32())
        else pa.array([str(value) for value in values[: len(names)]])
    )
    table = pa.table(
        {"source": people, "target": people.take(pa.array(range(len(names))[::-1])), "time": time_column}
    )

    def read() -> str:
        data = dsrd.load(table)
        check(data)
        assert len(data.events) == len(names)
        return VALID

    assert refused_or(read) in (VALID, REFUSED)


def test_a_target_is_found_in_a_new_file():
    """What `make fuzz` attacks is what is in the folder; a server joins with a file of its own."""
    assert {"TableFile", "RunFolder", "SavedHead", "Settings", "CommandLine", "RealProcess", "Archive"} <= {
        *TARGETS
    }
    assert "Trap" not in TARGETS
