from __future__ import annotations

import errno
import hashlib
import io
import re
import socket
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from dsrd.data import fetch as fetching
from dsrd.data.catalog import DatasetSpec, find
from dsrd.data.fetch import fetch
from dsrd.data.read import load
from dsrd.errors import DsrdError

BODY = np.random.default_rng(0).bytes(300_000)


class Server(ThreadingHTTPServer):
    """Serves `files`; can cut the connection after some bytes, ignore Range, or answer with an error."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {"/body.bin": BODY}
        self.ranges = True
        self.cuts: list[int] = []  # bytes to send before cutting the connection, per request
        self.errors: list[int] = []  # status codes of the first answers
        self.ranges_requested: list[str | None] = []  # the Range header of every request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.ranges_requested.append(wanted)
        body = self.server.files.get(self.path)
        if self.server.errors or body is None:
            return self.send_error(self.server.errors.pop(0) if self.server.errors else 404)
        start = 0
        if wanted and self.server.ranges:
            start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(body)}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + self.server.cuts.pop(0) if self.server.cuts else len(body)
        self.wfile.write(body[start:end])
        self.close_connection = True
        return None

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(fetching, "PAUSE", 0.01)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_fetch_downloads_the_whole_file(server, tmp_path):
    seen: list[tuple[int, int | None]] = []
    path = fetch(
        f"{server.url}/body.bin",
        tmp_path / "new",
        sha256=hashlib.sha256(BODY).hexdigest(),
        md5=hashlib.md5(BODY).hexdigest().upper(),
        progress=lambda have, total: seen.append((have, total)),
    )
    assert path == tmp_path / "new" / "body.bin"
    assert path.read_bytes() == BODY
    assert seen[-1] == (len(BODY), len(BODY))
    assert [file.name for file in path.parent.iterdir()] == ["body.bin"]


def test_existing_files_are_not_downloaded_again(server, tmp_path):
    for _ in range(2):
        fetch(f"{server.url}/body.bin", tmp_path)
    assert len(server.ranges_requested) == 1


def test_a_cut_connection_is_resumed(server, tmp_path):
    server.cuts = [100_000, 50_000]
    path = fetch(f"{server.url}/body.bin", tmp_path)
    assert path.read_bytes() == BODY
    assert server.ranges_requested == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_resumes_a_failed_download(server, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "ATTEMPTS", 1)
    server.cuts = [120_000]
    with pytest.raises(DsrdError, match=r"cut after 120,000 of 300,000 bytes \(1 attempts\); check the network"):
        fetch(f"{server.url}/body.bin", tmp_path)
    assert not (tmp_path / "body.bin").exists()
    assert fetch(f"{server.url}/body.bin", tmp_path).read_bytes() == BODY
    assert server.ranges_requested[-1] == "bytes=120000-"


def test_a_server_without_ranges_starts_over(server, tmp_path):
    server.ranges = False
    server.cuts = [100_000]
    assert fetch(f"{server.url}/body.bin", tmp_path).read_bytes() == BODY
    assert len(server.ranges_requested) == 2


@pytest.mark.parametrize("part", [BODY, BODY + b"too long"])
def test_a_partial_file_as_long_as_the_file_or_longer_is_handled(server, tmp_path, part):
    (tmp_path / "body.bin.part").write_bytes(part)
    assert fetch(f"{server.url}/body.bin", tmp_path).read_bytes() == BODY


def test_a_wrong_checksum_removes_the_file(server, tmp_path):
    for kind in ("sha256", "md5"):
        with pytest.raises(DsrdError, match=f"{kind} is [0-9a-f]+, expected 00; the file was removed"):
            fetch(f"{server.url}/body.bin", tmp_path, **{kind: "00"})
        assert list(tmp_path.iterdir()) == []


def test_temporary_server_errors_are_retried_and_permanent_ones_are_not(server, tmp_path):
    server.errors = [503, 429]
    assert fetch(f"{server.url}/body.bin", tmp_path).read_bytes() == BODY
    with pytest.raises(DsrdError, match=r"none\.bin: the server answered 404 Not Found; check the address"):
        fetch(f"{server.url}/none.bin", tmp_path)
    assert len(server.ranges_requested) == 4


def test_no_network_is_an_error_after_four_attempts(tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "PAUSE", 0.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/x.bin"
    with pytest.raises(DsrdError, match=r"no connection \(.*refused\) \(4 attempts\); check the network"):
        fetch(url, tmp_path)


def test_a_full_disk_is_not_retried(server, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching, "_append", full)
    with pytest.raises(DsrdError, match=r"body\.bin\.part: the disk is full; free some space and try again"):
        fetch(f"{server.url}/body.bin", tmp_path)
    assert len(server.ranges_requested) == 1


def test_a_folder_that_cannot_be_written_is_refused(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DsrdError, match="choose another folder"):
        fetch(f"{server.url}/body.bin", tmp_path / "file")


def test_only_http_urls_are_fetched(tmp_path):
    with pytest.raises(DsrdError, match="only http and https"):
        fetch("file:///etc/passwd", tmp_path)


# --- Catalogue data sets ---

RAW = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n0,0,0.0,0,1\n1,0,2.0,0,1\n"


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in files.items():
            bundle.writestr(name, content)
    return buffer.getvalue()


def spec(server: Server, name: str, file: str) -> DatasetSpec:
    known = {field: getattr(find(name), field) for field in DatasetSpec.__dataclass_fields__}
    return DatasetSpec(**{**known, "url": f"{server.url}/{file}"})


def test_an_archive_becomes_a_data_set(server, tmp_path):
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((3, 1)))
    server.files["/wikipedia.zip"] = zipped(
        {
            "wikipedia/wikipedia.csv": RAW.encode(),
            "wikipedia/ml_wikipedia.csv": b",u,i,ts,label,idx\n0,1,2,0,0,1\n1,1,2,2,0,2\n",
            "wikipedia/ml_wikipedia.npy": buffer.getvalue(),
            "wikipedia/ml_wikipedia_node.npy": buffer.getvalue(),
            "__MACOSX/wikipedia/ml_wikipedia.csv": b"rubbish",
            "../../ml_wikipedia.csv": b"rubbish",
            "/etc/evil": b"rubbish",
        }
    )
    source = spec(server, "wikipedia", "wikipedia.zip")
    place = fetch(source, tmp_path)
    assert sorted(file.name for file in place.iterdir()) == [
        "ml_wikipedia.csv",
        "ml_wikipedia.npy",
        "ml_wikipedia_node.npy",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["wikipedia"]
    assert len(load("wikipedia", data_dir=tmp_path).events) == 2
    assert fetch(source, tmp_path) == place
    assert len(server.ranges_requested) == 1


def test_archives_of_a_raw_file_and_plain_files_become_data_sets(server, tmp_path):
    server.files["/reddit.zip"] = zipped({"reddit.csv": RAW.encode()})
    server.files["/myket.csv"] = RAW.encode()
    for name, file in (("reddit", "reddit.zip"), ("myket", "myket.csv")):
        fetch(spec(server, name, file), tmp_path)
        assert [path.name for path in (tmp_path / name).iterdir()] == [f"{name}.csv"]
        assert load(name, data_dir=tmp_path).bipartite


def test_bad_archives_are_refused(server, tmp_path):
    whole = zipped({"uci/uci.csv": RAW.encode() * 50})
    server.files["/cut.zip"] = whole[:-40]
    server.files["/other.zip"] = zipped({"readme.txt": b"hello"})
    with pytest.raises(DsrdError, match=r"cut\.zip: not a complete zip archive"):
        fetch(spec(server, "uci", "cut.zip"), tmp_path)
    assert list((tmp_path / "uci").iterdir()) == []
    with pytest.raises(DsrdError, match=r"other\.zip: the archive has no ml_uci\.csv and no uci\.csv"):
        fetch(spec(server, "uci", "other.zip"), tmp_path)


def test_archives_of_unknown_compression_need_unzip(server, tmp_path, monkeypatch):
    """The published archive of Reddit is Deflate64 (method 9): left to the program `unzip`."""
    packed = bytearray(zipped({"reddit.csv": RAW.encode()}))
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        packed[packed.find(signature) + offset] = 9
    server.files["/reddit.zip"] = bytes(packed)
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(DsrdError, match="install the program `unzip`"):
        fetch(spec(server, "reddit", "reddit.zip"), tmp_path)
    assert not (Path(tmp_path) / "reddit" / "reddit.csv").exists()


def test_a_data_set_without_a_url_is_refused(tmp_path):
    with pytest.raises(DsrdError, match="PubMed: no download address is known"):
        fetch(find("pubmed"), tmp_path)
