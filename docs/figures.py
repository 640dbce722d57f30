"""Draw the figures of README.md from the committed records: `python docs/figures.py`; a test compares."""

from __future__ import annotations

import io
import re
from pathlib import Path

from dsrd.report.figures import DRAWINGS, style
from dsrd.report.records import read

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
SHOWN = ("ranks-dyglib-plain-ap", "retention-kernels", "quality-against-time")


def pages() -> dict[str, str]:
    """Each figure by its file name, seen from here."""
    records = read([RESULTS])
    drawn = {}
    for drawing in DRAWINGS:
        if drawing.name in SHOWN:
            text = io.StringIO()
            with style.styled():
                drawing.draw(records).savefig(text, format="svg", metadata={"Date": None})
            svg = re.sub(r"\s*<metadata>.*?</metadata>", "", text.getvalue(), flags=re.S)
            svg = re.sub(r"<[^>]*>", lambda tag: _rounded(tag[0]), svg)
            drawn[f"images/{drawing.name}.svg"] = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return drawn


def _rounded(tag: str) -> str:
    """A tag with its coordinates to two digits, which is a third of the size; text has its digits."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", tag)


if __name__ == "__main__":
    for file, content in pages().items():
        (HERE / file).write_text(content, encoding="utf-8")
        print(HERE / file)
