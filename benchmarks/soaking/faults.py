"""What goes wrong on purpose: torn files, a full disk, connections that break, bodies that make no sense."""

from __future__ import annotations

import json
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from soaking.load import Told
from soaking.process import TOKEN, Client

WAL_HEADER, FRAME_HEADER = 32, 24


def tear(data: Path, rng: random.Random) -> str:
    """Damage files as a crash in the middle of a write does; what was committed stays."""
    torn = rng.choice([tear_wal, tear_snapshot, leave_temporary_files])
    return torn(data, rng)


def tear_wal(data: Path, rng: random.Random) -> str:
    """Append the beginning of a commit that never ended: frames of this file without a valid checksum."""
    wal = data / "log.sqlite-wal"
    if not wal.exists() or wal.stat().st_size < WAL_HEADER:
        return "no log to tear"
    with wal.open("r+b") as file:
        header = file.read(WAL_HEADER)
        page = struct.unpack(">I", header[8:12])[0]
        file.seek(0, os.SEEK_END)
        for _ in range(rng.randint(1, 4)):
            frame = (
                struct.pack(">II", rng.randint(1, 50), rng.choice([0, 0, 60])) + header[16:24] + rng.randbytes(8)
            )
            file.write(frame + rng.randbytes(page))
        file.write(rng.randbytes(rng.randint(1, page)))
    return "torn log"


def tear_snapshot(data: Path, rng: random.Random) -> str:
    """Damage the newest snapshot."""
    snapshots = sorted((data / "snapshots").glob("*.safetensors"))
    if not snapshots:
        return "no snapshot to tear"
    content = bytearray(snapshots[-1].read_bytes())
    if rng.random() < 0.5:
        content = content[: rng.randrange(len(content))]
    else:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    snapshots[-1].write_bytes(content)
    return "torn snapshot"


def leave_temporary_files(data: Path, rng: random.Random) -> str:
    """What a process leaves that was killed while it wrote."""
    folder = data / "snapshots"
    folder.mkdir(exist_ok=True)
    (folder / f".{rng.randrange(10**15):015d}-0.safetensors.{rng.randrange(10**6)}.tmp").write_bytes(
        rng.randbytes(999)
    )
    return "left files"


def files_on(pid: int, most: int | None) -> None:
    """Let a process write no file beyond a size, or any again."""
    import resource

    limit = resource.RLIM_INFINITY if most is None else most
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path | None]:
    """A disk of that size, or None where this process may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def fill(file: BinaryIO) -> None:
    """Write until the disk is full, to the last byte."""
    size = 1 << 20
    while size:
        try:
            file.write(b"\0" * size)
            file.flush()
        except OSError:
            size //= 2


def break_connections(port: int, told: Told, rng: random.Random) -> None:
    """Clients that go away, lie about lengths, or never finish."""
    head = f"POST /v1/observe HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
    body = json.dumps({"events": [{"source": "ann", "target": "bob", "time": 1.0}]}).encode()
    pieces = [
        head,
        head + b"Content-Length: 400\r\n\r\n" + body,
        head + b"Content-Length: abc\r\n\r\n" + body,
        head + b"Content-Length: 99999999999999999999\r\n\r\n" + body,
        head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n20\r\n" + body[:20],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # somebody who expects TLS
        rng.randbytes(400),
        b"GET /v1/feed HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n",
    ]
    opened = []
    for piece in rng.sample(pieces, 4):
        try:
            connection = socket.create_connection(("127.0.0.1", port), timeout=2)
            connection.sendall(piece)
        except OSError:
            continue
        if rng.random() < 0.5:  # the connection is reset, not closed
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        opened.append(connection)
        with told.lock:
            told.requests += 1
            told.statuses["broken connection"] += 1
    time.sleep(rng.random() * 0.2)
    for connection in opened:
        try:
            connection.settimeout(0.05)
            answer = connection.recv(200)
            if answer.startswith(b"HTTP/1.1 5") and not answer.startswith(b"HTTP/1.1 503"):
                with told.lock:
                    told.faults.append(f"broken connection: {answer[:120]!r}")
        except OSError:
            pass
        connection.close()


BAD: list[Any] = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"\xff\xfe",
    b"[" * 2_000,
    b'{"events": [}',
    b'{"events": NaN}',
    {},
    {"events": None},
    {"events": {}},
    {"events": [None]},
    {"events": [{}]},
    {"events": [[]]},
    {"event": []},
    *(
        {"events": [{"source": "ann", "target": "bob", "time": time}]}
        for time in (None, "", "yesterday", -1, 1e300, 10**30, True, [], "2024-13-45", 4e10, 0)
    ),
    *(
        {"events": [{"source": name, "target": "bob", "time": 2e9}]}
        for name in (None, "", " ", 1.5, [], {}, True, "x" * 2_000)
    ),
    {"events": [{"source": "ann", "target": "bob", "time": 2e9, "id": []}]},
    {"events": [{"source": "ann", "target": "bob", "time": 2e9, "features": [1, 2, 3, 4, 5]}]},
    {"events": [{"source": "ann", "target": "bob", "time": 2e9, "features": {"x": "y"}}]},
    {"events": [{"source": "ann", "target": "bob", "time": 2e9, "more": 1}]},
]
QUESTIONS: list[tuple[str, Any]] = [
    ("/v1/score", {"pairs": []}), ("/v1/score", {"pairs": [{"source": "ann"}]}), ("/v1/score", {"pairs": [1]}),
    ("/v1/score", {"pairs": [{"source": "ann", "target": "bob"}], "time": 1}),
    ("/v1/score", {"pairs": [{"source": "ann", "target": "bob"}], "time": "soon"}),
    ("/v1/partners", {"node": "ann", "k": 0}), ("/v1/partners", {"node": "ann", "k": 10**9}),
    ("/v1/partners", {"node": None}), ("/v1/partners", {"node": "ann", "k": "5"}),
    ("/v1/surprise", {"events": []}), ("/v1/surprise", {"events": [{"source": "ann"}]}),
]  # fmt: skip
PATHS = [
    ("GET", "/v1/nothing"),
    ("PUT", "/v1/state"),
    ("GET", "/v1/node/%00"),
    ("GET", "/v1/recent?k=-1"),
    ("GET", "/v1/nodes?k=x"),
]


def send_nonsense(port: int, told: Told, rng: random.Random) -> None:
    """Bodies, paths and tokens that are wrong: each must be refused with a status of 400 to 499."""
    client = Client(port)
    asked: list[tuple[str, str, Any]] = [("POST", "/v1/observe", rng.choice(BAD)) for _ in range(4)]
    path, question = rng.choice(QUESTIONS)
    asked.append(("POST", path, question))
    asked.append((*rng.choice(PATHS), None))
    for method, path, body in asked:
        answer = client.ask(method, path, body)
        told.saw("nonsense", answer.status, answer.body)
        if 200 <= answer.status < 400:
            with told.lock:
                told.faults.append(
                    f"nonsense: {method} {path} {str(body)[:200]} was answered with {answer.status}"
                )
    client.close()
    stranger = Client(port, token="wrong")
    answer = stranger.ask("POST", "/v1/observe", {"events": []})
    told.saw("stranger", answer.status, answer.body)
    if answer.status not in (0, 401, 503):
        with told.lock:
            told.faults.append(f"stranger: answered with {answer.status}")
    stranger.close()
