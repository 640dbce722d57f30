"""Mutations of bytes, written down as edits: (place, bytes removed, bytes put there in hexadecimal digits)."""

from __future__ import annotations

from random import Random
from typing import Any

Edit = tuple[int, int, str]
TOKENS = (
    *(
        b"",
        b"\0",
        b"\n",
        b"\r\n",
        b'"',
        b"'",
        b",",
        b";",
        b"\t",
        b"-",
        b"nan",
        b"inf",
        b"-inf",
        b"1e999",
        b"1e308",
    ),
    *(b"0", b"-1", b"9" * 20, b"18446744073709551616", b"0x10", b"1_000", b"2024-13-45", b"2024-01-01", b"true"),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\xf0\x9f\x98\x80",
        b"\xc3\x28",
        b"{",
        b"}",
        b"[[[[",
        b"null",
        b'{"a":',
        b"\\u0000",
    ),
    *(b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x80" * 8, b"A" * 300, b" ", b"source", b"%s%n"),
)


def applied(content: bytes, edits: list[Edit]) -> bytes:
    """The bytes after all edits, one after the other.

    >>> applied(b"hello", [(1, 3, "41"), (0, 0, "")])
    b'hAo'
    """
    for place, removed, put in edits:
        place %= len(content) + 1
        content = content[:place] + bytes.fromhex(put) + content[place + removed :]
    return content


def edits_of(content: bytes, chance: Random) -> list[Edit]:
    """One to four random edits that change the content."""
    edits: list[Edit] = []
    changed = content
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        edit = _edit(changed, chance)
        edits.append(edit)
        changed = applied(changed, [edit])
    return edits


def _edit(content: bytes, chance: Random) -> Edit:
    size = len(content)
    place = chance.randrange(size + 1)
    length = min(chance.choice((1, 1, 2, 4, 8, 64, 500)), size - place)
    kind = chance.randrange(8)
    if kind == 0 and place < size:
        return place, 1, bytes([content[place] ^ 1 << chance.randrange(8)]).hex()
    if kind == 1:
        return place, length, chance.randbytes(length).hex()
    if kind == 2:
        return place, length, ""
    if kind == 3:
        return place, size, ""  # truncated
    if kind == 4:
        return place, 0, chance.choice(TOKENS).hex()
    if kind == 5:
        token = chance.choice(TOKENS)
        return place, len(token), token.hex()
    if kind == 6:
        start = chance.randrange(size + 1)
        return place, 0, content[start : start + length].hex()  # a part again
    return place, length, bytes(length).hex()


def bytes_case(chance: Random, name: str, content: bytes, corpus: list[Any]) -> dict[str, Any]:
    """A mutation of a seed, or a further one of a case that reached new lines."""
    former = [case for case in corpus if case["seed"] == name]
    if former and chance.random() < 0.5:
        edits = [tuple(edit) for edit in chance.choice(former)["edits"]]
        return {"seed": name, "edits": edits + edits_of(applied(content, edits), chance)}
    return {"seed": name, "edits": edits_of(content, chance)}
