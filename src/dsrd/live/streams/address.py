"""`Address`: where a stream comes from or goes to, as it is written on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dsrd.errors import DsrdError

FORMS = "-, a file, kafka://HOST:PORT/TOPIC or redis://HOST:PORT/STREAM"


@dataclass(frozen=True)
class Address:
    """A file, a topic or a stream.

    >>> Address.of("kafka://127.0.0.1:9092/calls")
    Address(kind='kafka', name='calls', server='127.0.0.1:9092', user=None, password=None)
    >>> Address.of("-").kind, Address.of("none").kind, Address.of("calls.csv").path.name
    ('standard', 'none', 'calls.csv')
    >>> Address.of("kafka://127.0.0.1")
    Traceback (most recent call last):
    ...
    dsrd.errors.DsrdError: kafka://127.0.0.1: has no topic; write kafka://HOST:PORT/TOPIC
    """

    kind: str  # standard, none, file, kafka, redis
    name: str = ""  # of the file, topic or stream
    server: str = ""
    user: str | None = None
    password: str | None = None

    @classmethod
    def of(cls, text: str) -> Address:
        if text == "-":
            return cls("standard")
        if text == "none":
            return cls("none")
        scheme, separator, _ = text.partition("://")
        if not separator:
            return cls("file", text)
        nouns = {"kafka": "topic", "redis": "stream"}
        if scheme not in nouns:
            raise DsrdError(f"{scheme}://: unknown kind of stream; give {FORMS}")
        try:
            parts = urlsplit(text)
        except ValueError as error:
            raise DsrdError(f"{scheme}://: is no address ({error}); give {FORMS}") from None
        server, name = parts.netloc.rpartition("@")[2], unquote(parts.path.strip("/"))
        if not server or not name:
            missing = nouns[scheme] if server else "server"
            raise DsrdError(
                f"{scheme}://{server}: has no {missing}; write {scheme}://HOST:PORT/{nouns[scheme].upper()}"
            )
        return cls(scheme, name, server, parts.username, parts.password)

    @property
    def path(self) -> Path:
        return Path(self.name)

    def __str__(self) -> str:
        """Without a password."""
        if self.kind in ("kafka", "redis"):
            return f"{self.kind}://{self.server}/{self.name}"
        return {"standard": "-", "none": "none"}.get(self.kind, self.name)
