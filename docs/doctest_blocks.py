"""Examples in docstrings (`>>>`) become code blocks of the site; an extension of griffe, named in mkdocs.yml."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.M)


class DoctestBlocks(griffe.Extension):
    """Puts a fence around every example: lines from `>>>` to the next empty one."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    indent = example[1]
    return f"{indent}```pycon\n{example[0]}\n{indent}```"
