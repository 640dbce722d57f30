"""`python -m hardening --out FILE`: kill training and updates at fifty moments, and write down what came of it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import torch

from hardening.test_killed import check_moments, write_logs

TRAINING, UPDATING = 35, 15


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hardening", description=__doc__)
    parser.add_argument("--out", type=Path, help="append the record to this file")
    out = parser.parse_args().out
    out = None if out is None else out.absolute()
    torch.set_num_threads(1)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        os.chdir(folder)
        write_logs()
        tried = check_moments(TRAINING, UPDATING)
        os.chdir("/")
    record = {
        "benchmark": "kills",
        "moments": sum(map(len, tried.values())),
        "tensors_that_differ": 0,  # an error would have ended this
        **{work: dict(Counter(names)) for work, names in tried.items()},
        "minutes": round((time.monotonic() - began) / 60, 2),
        "machine": {"python": platform.python_version(), "system": platform.system()},
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    print(json.dumps(record))
    if out:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
