"""`python -m fuzz.guided --runs 2000 TableFile`: attack a reader by libFuzzer, guided by coverage.

Needs atheris, which is no dependency: it installs for some versions of Python. The input that is mutated is the
whole damaged file, so what it finds is kept as one edit of the seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

GOOD = ("refused", "equal", "valid")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz.guided", description=__doc__)
    parser.add_argument("target", help="TableFile, BenchmarkFolder or JsonFile")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    import atheris

    with atheris.instrument_imports(include=["dsrd.data", "dsrd.report", "dsrd.experiments", "dsrd.decoding"]):
        import dsrd.data.read
        import dsrd.experiments.plan
        import dsrd.report.records  # noqa: F401
    from fuzz.attack import judged, keep
    from fuzz.targets import all_targets

    target: Any = next(each for each in all_targets() if each.name == options.target)
    folder = Path(tempfile.mkdtemp(prefix="guided-"))
    target.prepare(folder)
    names = list(target.seeds)
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, content in enumerate(target.seeds.values()):
        (corpus / str(number)).write_bytes(bytes([number]) + content)

    def one_input(data: bytes) -> None:
        name = names[data[0] % len(names)] if data else names[0]
        case = {"seed": name, "edits": [(0, len(target.seeds[name]), data[1:].hex())]}
        target.traced, verdict = "", judged(target, case)
        if verdict["outcome"] not in GOOD:
            keep([{"target": target.name, "case": case, **verdict}])
            raise AssertionError(f"{verdict['outcome']}: {verdict.get('detail', '')}")

    words = [f"-runs={options.runs}", f"-seed={options.seed}", "-timeout=20", "-rss_limit_mb=4096", str(corpus)]
    atheris.Setup([sys.argv[0], *words], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
