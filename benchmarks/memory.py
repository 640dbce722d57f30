"""Peak memory of training and evaluating on a file of many nodes with the default settings. JSON output.

    python benchmarks/memory.py --save results/live.jsonl

One epoch is enough: the peak does not depend on the number of epochs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch

import dsrd
from dsrd.machine import load_average, peak_rss_mb
from dsrd.models import DEFAULT
from record import print_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--data", default="synth:events=400000,nodes=300000")
    parser.add_argument("--save", type=Path, help="append the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    stream = dsrd.load(arguments.data)
    with tempfile.TemporaryDirectory() as folder:
        model = dsrd.LinkPredictor(arguments.model, epochs=1).fit(stream, folder=Path(folder) / "run")
        model.evaluate()
    figures = {
        "events": len(stream.events),
        "nodes": stream.num_nodes - 1,
        "order": model.run.evaluate.order,
        "peak_rss_mb": peak_rss_mb(),
        "load": load_average(),
    }
    print_record(arguments.save, benchmark="memory", model=arguments.model, data=arguments.data, figures=figures)


if __name__ == "__main__":
    main()
