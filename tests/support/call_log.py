"""A call log in a CSV file, as people have them."""

from __future__ import annotations

from pathlib import Path

COLUMNS = ("--source", "caller", "--target", "callee", "--time", "when")
CALLS = (*COLUMNS, "--features", "cost", "--label", "kind")


def write_calls(path: Path, rows: int = 120) -> Path:
    people = ["Ann", "Bob", "Çelik", "Dé", "eve@example.org", "Fay, Jr.", "007", "Hans"]
    lines = ["caller,callee,when,cost,kind,remark"]
    for row in range(rows):
        caller, callee = people[row % 8], people[(row * 3 + row // 8 + 1) % 8]
        when = f"2024-05-{1 + row // 6:02}T{(row % 6) * 4:02}:30:00Z"
        lines.append(f'"{caller}","{callee}",{when},{row % 7 / 2},{row % 2},fine')
    lines[5], lines[6] = lines[6], lines[5]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
