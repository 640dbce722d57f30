"""Help texts of settings, read from a configuration's source: the comment of each field and its valid values."""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints


def comments(config: type[Any]) -> dict[str, str]:
    """The comment at the end of each field's line, or the string below it; empty if there is neither.

    >>> from dsrd.config import TrainConfig
    >>> comments(TrainConfig)["lr"]
    'learning rate of Adam'
    """
    source = inspect.getsource(config)
    comment_at_line = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    texts = dict.fromkeys((field.name for field in fields(config)), "")
    body = next(node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            below = after.value if isinstance(after, ast.Expr) else None
            texts[node.target.id] = (
                str(below.value)
                if isinstance(below, ast.Constant)
                else " ".join(comment_at_line[line] for line in lines if line in comment_at_line)
            )
    return texts


def choices(config: type[Any]) -> dict[str, list[str]]:
    """The valid values, as text, of every field that has only a few.

    >>> from dsrd.config import EvaluateConfig
    >>> choices(EvaluateConfig)["known"]
    ['all', 'trained']
    """
    valid: dict[str, list[str]] = {}
    types = get_type_hints(config)
    for field in fields(config):
        if get_origin(types[field.name]) is Literal:
            valid[field.name] = list(map(str, get_args(types[field.name])))
        elif types[field.name] is bool:
            valid[field.name] = ["true", "false"]
    return valid
