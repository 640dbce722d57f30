"""What a configuration says of itself: the comment beside each field, and the values a field may have."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints


def comments(config: type[Any]) -> dict[str, str]:
    """The comment at the end of each field's lines; empty where there is none.

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
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found[node.target.id] = " ".join(beside[line] for line in lines if line in beside)
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
