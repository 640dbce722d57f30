"""Scoring files of pairs: seconds and peak memory here and on a Ray cluster of this machine. JSON output.

    python benchmarks/score_many.py --pairs 200000 --ray 1 2 --save results/scale.jsonl

A part of the work is measured and the rest computed: `ten_million_hours` is the measured time per pair times ten
million, and nothing else. Two lengths are measured, so that peak memory shows whether it grows with the file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dsrd.machine import load_average
from dsrd.models import DEFAULT
from record import print_record

TEN_MILLION = 10_000_000

SCORE = """
import json, sys, time, torch, dsrd
from dsrd.machine import peak_rss_mb
torch.set_num_threads(1)
folder, pairs, out = sys.argv[1:4]
model = dsrd.open(folder)
model.predict([(model.nodes[0], model.nodes[1])])  # compiles, and brings the state up to date
began, began_cpu = time.perf_counter(), time.process_time()
rows = model.predict_file(pairs, out, progress=False)
print(json.dumps({
    "rows": rows,
    "seconds": time.perf_counter() - began,
    "cpu": time.process_time() - began_cpu,
    "peak_rss_mb": peak_rss_mb(),
}))
"""

SCORE_ON_RAY = """
import json, sys, time, ray, dsrd
folder, pairs, out, processors = sys.argv[1:5]
ray.init(address="local", num_cpus=int(processors), include_dashboard=False, log_to_driver=False)
model = dsrd.open(folder)
model.predict_file(pairs, out, ray="local", progress=False)  # the first call starts the actors of Ray
began = time.perf_counter()
rows = model.predict_file(pairs, out, ray="local", progress=False)
print(json.dumps({"rows": rows, "seconds": time.perf_counter() - began}))
"""

TRAIN = """
import sys, dsrd
dsrd.LinkPredictor(sys.argv[2], epochs=1).fit(dsrd.load(sys.argv[3]), folder=sys.argv[1], progress=False)
"""


def run(script: str, *words: object) -> str:
    """What a script prints in a process of its own, whose memory is its own too."""
    command = [sys.executable, "-c", script, *map(str, words)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def write_pairs(path: Path, folder: Path, count: int) -> None:
    names = np.array(
        json.loads(run("import json, sys, dsrd; print(json.dumps(dsrd.open(sys.argv[1]).nodes))", folder))
    )
    random = np.random.default_rng(0)
    columns = {end: names[random.integers(len(names), size=count)] for end in ("source", "target")}
    pa.parquet.write_table(pa.table(columns), path, row_group_size=20_000)


def measured(text: str, began_load: float) -> dict[str, float]:
    figures = json.loads(text.splitlines()[-1])
    per_pair = figures["seconds"] / figures["rows"]
    computed = {
        "us_per_pair": round(1e6 * per_pair, 2),
        "ten_million_hours": round(per_pair * TEN_MILLION / 3600, 2),
    }
    return {**{name: round(value, 2) for name, value in figures.items()}, **computed, "load": began_load}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="synth:events=20000")
    parser.add_argument("--pairs", type=int, default=200_000)
    parser.add_argument("--ray", type=int, nargs="*", default=[], help="processors of Ray clusters to measure")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(TRAIN, folder / "run", arguments.model, arguments.data)
        for count in (arguments.pairs // 4, arguments.pairs):
            write_pairs(folder / "pairs.parquet", folder / "run", count)
            words = (folder / "run", folder / "pairs.parquet", folder / "out.parquet")
            figures[f"here, {count:,} pairs"] = measured(run(SCORE, *words), load_average())
        for processors in arguments.ray:
            key = f"Ray with {processors} processors, {count:,} pairs"
            figures[key] = measured(run(SCORE_ON_RAY, *words, processors), load_average())
    fields = {name: getattr(arguments, name) for name in ("model", "data")}
    print_record(arguments.save, benchmark="score_many", **fields, figures=figures, at=time.strftime("%Y-%m-%d"))


if __name__ == "__main__":
    main()
