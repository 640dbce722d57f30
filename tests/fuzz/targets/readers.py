"""Everything that reads a stream from files."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import dsrd
from dsrd.data.dataset import Dataset
from fuzz.mutate import applied, bytes_case
from fuzz.targets import EQUAL, VALID, DifferentError, Target, refused_or, same

PEOPLE = ("ann", "bob", "cat", "dan", "eve", "zoë")
ROWS = 60


def calls(delimiter: str = ",", dates: bool = True, rows: int = ROWS) -> str:
    """A small log of calls, with features and labels."""
    lines = [delimiter.join(("source", "target", "time", "cost", "late"))]
    for row in range(rows):
        source, target = PEOPLE[row * 7 % 6], PEOPLE[(row * 5 + row // 6 + 1) % 6]
        time = f"2024-05-{1 + row // 12:02}T{row % 12 * 2:02}:30:00Z" if dates else str(100.5 + row)
        lines.append(delimiter.join((source, target, time, str(row % 7 / 2), str(row % 2))))
    return "\n".join(lines) + "\n"


def parquet() -> bytes:
    count = np.arange(ROWS)
    columns = {
        "source": pa.array([PEOPLE[row % 6] for row in count]).dictionary_encode(),
        "target": pa.array([PEOPLE[(row + 1 + row // 6) % 6] for row in count]),
        "time": pa.array(count * 1_000_000, pa.timestamp("us")),
        "cost": pa.array(count / 2),
    }
    out = io.BytesIO()
    pa.parquet.write_table(pa.table(columns), out)
    return out.getvalue()


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def benchmark(name: str) -> dict[str, bytes]:
    """The files of a processed benchmark data set."""
    lines = [",u,i,ts,label,idx"]
    lines += [f"{row},{1 + row % 5},{6 + row % 4},{float(row)},0,{row + 1}" for row in range(ROWS)]
    generator = np.random.default_rng(0)
    edge_x, node_x = generator.normal(size=(ROWS + 1, 2)), np.zeros((10, 3))
    edge_x[0] = 0
    return {
        f"ml_{name}.csv": ("\n".join(lines) + "\n").encode(),
        f"ml_{name}.npy": npy(edge_x),
        f"ml_{name}_node.npy": npy(node_x),
    }


def raw() -> bytes:
    lines = ["user_id,item_id,timestamp,state_label,comma_separated_list_of_features"]
    return (
        "\n".join([*lines, *(f"{row % 5},{row % 4},{float(row)},0,0.5,{row % 3}" for row in range(ROWS))])
    ).encode()


def check(data: Dataset) -> None:
    """What holds for every data set, whatever file it came from."""
    src, dst, time, id = data.events.numpy()
    count = len(src)
    sound = (
        len(dst) == len(time) == len(id) == count > 0
        and src.min() >= 1
        and dst.min() >= 1
        and max(src.max(), dst.max()) < data.num_nodes
        and bool(np.isfinite(time).all())
        and bool((np.diff(time) >= 0).all())
        and len(data.edge_x) == count + 1
        and len(data.node_x) == data.num_nodes
        and bool(np.isfinite(data.edge_x.numpy()).all())
        and (data.names is None or len(data.names) == data.num_nodes)
        and (data.label is None or len(data.label) == count)
    )
    if not sound:
        raise DifferentError("a data set that is not one")


class TableFile(Target):
    """Tables: CSV of every dialect, compressed or not, and Parquet."""

    area, share, traced = "readers", 5, "dsrd/data/"

    def prepare(self, folder: Path) -> None:
        text = calls()
        quoted = "\n".join(",".join(f'"{entry}"' for entry in line.split(",")) for line in text.splitlines())
        self.seeds = {
            "calls.csv": text.encode(),
            "numbers.csv": calls(dates=False).encode(),
            "tabs.csv": calls("\t").encode(),
            "semicolons.csv": calls(";", dates=False).encode(),
            "quoted.csv": quoted.encode(),
            "windows.csv": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
            "calls.csv.gz": gzip.compress(text.encode(), mtime=0),
            "calls.parquet": parquet(),
            "raw.csv": raw(),
        }

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        name = chance.choice(list(self.seeds))
        return bytes_case(chance, name, self.seeds[name], corpus)

    def attempt(self, case: Any, folder: Path) -> str:
        name = case["seed"]
        content = applied(self.seeds[name], case["edits"])
        (folder / name).write_bytes(content)

        def read() -> str:
            options: dict[str, Any] = {} if name == "raw.csv" else {"features": ["cost"]}
            data = dsrd.load(folder / name, cache=False, **options)
            check(data)
            if name in ("calls.csv", "numbers.csv") and (rows := rows_of(content)) not in (None, len(data.events)):
                raise DifferentError(f"{len(data.events)} events of {rows} rows")
            return EQUAL if content == self.seeds[name] else VALID

        return refused_or(read)


def rows_of(content: bytes) -> int | None:
    """Rows of a CSV file as Python's csv module reads them; None where dialects differ."""
    text = content.decode("utf-8", errors="replace")
    if '"' in text or "\0" in text or "\r" in text:
        return None
    return sum(any(row) for row in csv.reader(io.StringIO(text))) - 1


class BenchmarkFolder(Target):
    """Folders of benchmark data: a table and two matrices."""

    area, share, traced = "readers", 3, "dsrd/data/"

    def prepare(self, folder: Path) -> None:
        self.seeds = benchmark("toy")

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        name = chance.choice(list(self.seeds))
        return bytes_case(chance, name, self.seeds[name], corpus)

    def attempt(self, case: Any, folder: Path) -> str:
        place = folder / "toy"
        place.mkdir()
        for name, content in self.seeds.items():
            (place / name).write_bytes(applied(content, case["edits"]) if name == case["seed"] else content)

        def read() -> str:
            check(dsrd.load(place, cache=False))
            return VALID

        return refused_or(read)


class CachedStream(Target):
    """The cache of parsed streams: damage is noticed, and the file is parsed again."""

    area, share = "cache", 1

    def prepare(self, folder: Path) -> None:
        from dsrd.data.cache import cache_dir

        self.file, self.cache = folder / "calls.csv", cache_dir
        self.file.write_text(calls())
        others = {*cache_dir().glob("*/events.arrow")}
        self.expected = self._read()
        (made,) = {*cache_dir().glob("*/events.arrow")} - others
        self.entry = made.parent
        self.seeds = {path.name: path.read_bytes() for path in self.entry.iterdir()}

    def _read(self) -> Any:
        data = dsrd.load(self.file, features=["cost"], label="late")
        names = None if data.names is None else data.names.array.to_pylist()
        arrays = [column.tobytes() for column in (*data.events.numpy(), data.edge_x.numpy(), data.label.numpy())]
        return data.digest, names, arrays, data.bipartite, data.dates, data.columns

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        name = chance.choice(list(self.seeds))
        return bytes_case(chance, name, self.seeds[name], corpus)

    def attempt(self, case: Any, folder: Path) -> str:
        self.entry.mkdir(exist_ok=True)
        for name, content in self.seeds.items():
            (self.entry / name).write_bytes(applied(content, case["edits"]) if name == case["seed"] else content)
        return same(self._read(), self.expected)


class JsonFile(Target):
    """JSON and TOML that users write or keep: records for a report, plans of sweeps."""

    area, share, traced = "readers", 1, "dsrd/"

    def prepare(self, folder: Path) -> None:
        result = {"random": {"ap": 91.0, "auc": 92.0}}
        part = {"batch_size": 200}
        saved = {
            "dataset": "toy",
            "model": "edgebank",
            "preset": "published",
            "seed": 0,
            "protocol": "strict",
            "results": {"transductive": result},
            "validation": {"transductive": result},
            "curve": [],
            "timing": {"seconds_per_epoch": 1.0},
            "config": {"train": part, "evaluate": part, "data": {}},
            "digests": {"data": "a", "split": "b", "config": "c"},
            "versions": {"dsrd": "0.1.0"},
        }
        plan = Path(__file__).parents[3] / "plans" / "small.toml"
        self.seeds = {
            "results.jsonl": (json.dumps(saved) + "\n").encode() * 2,
            "record.json": json.dumps(saved, indent=1).encode(),
            "plan.toml": plan.read_bytes(),
        }

    def draw(self, chance: Random, corpus: list[Any]) -> Any:
        name = chance.choice(list(self.seeds))
        return bytes_case(chance, name, self.seeds[name], corpus)

    def attempt(self, case: Any, folder: Path) -> str:
        from dsrd.experiments.plan import load_plan
        from dsrd.report.records import read as read_records

        file = folder / case["seed"]
        file.write_bytes(applied(self.seeds[case["seed"]], case["edits"]))

        def read() -> str:
            load_plan(file) if file.suffix == ".toml" else read_records([file])
            return VALID

        return refused_or(read)


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(zipfile.ZipInfo(name), content)
    return out.getvalue()
