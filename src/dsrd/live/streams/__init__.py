"""Streams in and out of an engine: where events come from, and where they go with their surprise."""
