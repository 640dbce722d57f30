"""Errors as users see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dsrd.errors import DsrdError


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The message of a call that must be refused; it has one line."""
    with pytest.raises(DsrdError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message
