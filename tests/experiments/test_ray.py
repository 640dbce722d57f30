"""Sweeps as tasks of a Ray cluster: a node may be lost in the middle."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from dsrd.errors import DsrdError
from dsrd.experiments import load_plan, records, sweep
from dsrd.experiments.folder import SweepFolder
from support.sweeps import PLAN, comparable, run_here

try:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    from ray.cluster_utils import Cluster
except ImportError:
    Cluster = None

needs_ray = pytest.mark.skipif(Cluster is None, reason="Ray is not installed (extra `ray`)")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on this machine; each has one processor, so that one run is on each."""
    import ray

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def lose_a_node(cluster: Any, folder: SweepFolder, keys: list[str], lost: list[str]) -> None:
    """Kill the second node once two runs are at work and have finished an epoch; `lost` gets those that died."""
    began = time.monotonic()
    while time.monotonic() - began < 200:
        at_work = [key for key in keys if folder.history(key) and not folder.run(key).record.exists()]
        if len(at_work) == 2:
            cluster.remove_node(cluster.second, allow_graceful=False)
            lost += at_work
            return
        time.sleep(0.02)


@needs_ray
def test_a_node_is_lost_and_every_run_finishes_once(cluster: Any, monkeypatch: pytest.MonkeyPatch):
    settings = {**PLAN["settings"], "train.epochs": 40, "train.batch_size": 20, "train.patience": 40}
    plan = {**PLAN, "settings": settings, "models": PLAN["models"][1:], "seeds": [0, 1, 2]}
    keys, folder, lost = (
        [run.key for run in load_plan(plan).runs],
        SweepFolder(Path("ray").absolute()),
        list[str](),
    )
    killer = Thread(target=lose_a_node, args=(cluster, folder, keys, lost))
    killer.start()
    done = sweep(plan, folder=folder.path, ray=cluster.address, progress=False)
    killer.join()
    assert len(lost) == 2, "no node was lost while runs were at work"
    assert not done.failed

    assert len(done.records) == len(list(records.read(done.records_file))) == 3

    run_here(monkeypatch)
    expected = sweep(plan, folder="here", progress=False)
    assert comparable(done.records) == comparable(expected.records)


@needs_ray
def test_a_failed_task_is_not_tried_again_and_does_not_stop_the_others(cluster: Any):
    models = [
        {"name": "edgebank"},
        {"name": "edgebank", "label": "broken", "settings": {"train.device": "cuda:7"}},
    ]
    done = sweep({**PLAN, "models": models, "seeds": [0]}, folder="ray", ray=cluster.address, progress=False)
    assert len(done.records) == 1
    assert "train.device=cuda:7" in next(iter(done.failed.values()))


@needs_ray
@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("localhost:1", "no Ray cluster can be reached at 'localhost:1'"),
        ("somewhere", "'somewhere' is no address of a Ray cluster"),
        ("host:port", "'host:port' is no address of a Ray cluster"),
    ],
)
def test_an_unreachable_cluster_is_one_line(address: str, words: str):
    with pytest.raises(DsrdError, match=words) as error:
        sweep(PLAN, folder="ray", ray=address, progress=False)
    assert "\n" not in str(error.value)
    assert "local" in str(error.value), "the remedy"


def test_ray_that_is_not_installed_is_one_line(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("dsrd.ray_cluster.find_spec", lambda name: None)
    with pytest.raises(DsrdError, match=r"Ray is not installed; run `pip install dsrd\[ray\]`"):
        sweep(PLAN, folder="ray", ray="local", progress=False)
