"""How much memory a stream of one's own takes to train and evaluate with the defaults: JSON out.

    python benchmarks/memory.py --save results/live.jsonl

One epoch is enough: the peak does not depend on their number.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch

import dsrd
from dsrd.files import append_line
from dsrd.machine import load_average, peak_rss_mb, versions
from dsrd.models import DEFAULT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="synth:events=400000,nodes=300000")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    stream = dsrd.load(given.data)
    with tempfile.TemporaryDirectory() as folder:
        model = dsrd.LinkPredictor(given.model, epochs=1).fit(stream, folder=Path(folder) / "run")
        model.evaluate()
    figures = {
        "events": len(stream.events),
        "nodes": stream.num_nodes - 1,
        "order": model.run.evaluate.order,
        "peak_rss_mb": peak_rss_mb(),
        "load": load_average(),
    }
    about = {"benchmark": "memory", "model": given.model, "data": given.data, "figures": figures}
    line = json.dumps({**about, "threads": 1, "versions": versions()})
    if given.save:
        append_line(given.save, line)
    print(line)


if __name__ == "__main__":
    main()
