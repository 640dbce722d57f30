"""What a configuration says of itself: the comment beside each field, and the values a field may have."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints


def comments(config: type[Any]) -> dict[str, str]:
    """The comment at the end of each field's lines, or the string below them; empty where there is neither.

    >>> from dsrd.config import TrainConfig
    >>> comments(TrainConfig)["lr"]
    'learning rate of Adam'
    """
    source = inspect.getsource(config)
    beside = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    found = dict.fromkeys((each.name for each in fields(config)), "")
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            below = after.value if isinstance(after, ast.Expr) else None
            found[node.target.id] = (
                str(below.value)
                if isinstance(below, ast.Constant)
                else " ".join(beside[line] for line in lines if line in beside)
            )
    return found


def choices(config: type[Any]) -> dict[str, list[str]]:
    """The fields that take one of a few values, as one would type them.

    >>> from dsrd.config import EvaluateConfig
    >>> choices(EvaluateConfig)["known"]
    ['all', 'trained']
    """
    found: dict[str, list[str]] = {}
    kinds = get_type_hints(config)
    for each in fields(config):
        if get_origin(kinds[each.name]) is Literal:
            found[each.name] = list(map(str, get_args(kinds[each.name])))
        elif kinds[each.name] is bool:
            found[each.name] = ["true", "false"]
    return found
