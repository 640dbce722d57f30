"""Dependencies and their licences, from the metadata of the installed packages.

`python docs/dependencies.py` writes the table of docs/explanation/security.md. With `--sbom FILE` (`make sbom`) it
writes a bill of materials in CycloneDX JSON: by the program cyclonedx-py where there is one, which adds links, and
from the same metadata elsewhere.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "security.md"
BEGIN, END = "<!-- dependencies: docs/dependencies.py -->\n", "<!-- /dependencies -->"
LONGEST = 40  # characters of a licence's name; some packages put the whole text there
SPDX = re.compile(r"[\w.+-]+( (AND|OR|WITH) [\w.+-]+)*")


def declared() -> dict[str, list[Requirement]]:
    """Requirements of pyproject.toml, by extra; the core ones under an empty name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: [Requirement(text) for text in texts] for extra, texts in groups.items() if extra != "dev"}


def found(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def licence(package: Distribution | None) -> str:
    """The licence a package states, as short as it states it."""
    if package is None:
        return "not installed where this was written"
    data = package.metadata
    named = [
        line.rpartition(" :: ")[2] for line in data.get_all("Classifier") or () if line.startswith("License ::")
    ]
    first = (data.get("License") or "").strip().splitlines()
    expression = data.get("License-Expression") or ""
    if len(expression) > LONGEST:  # of all that a wheel bundles; the first is that of the package itself
        expression = f"{expression.split(' AND ')[0].strip('(')} and others"
    candidates = [expression, ", ".join(named), *first[:1]]
    return next((text for text in candidates if text and len(text) <= LONGEST), "see the package")


def required(names: list[str]) -> dict[str, Distribution]:
    """These packages and everything they require in turn, by name; extras of packages are not followed."""
    reached: dict[str, Distribution] = {}
    left = list(names)
    while left:
        package = found(left.pop())
        if package is None or package.name.lower() in reached:
            continue
        reached[package.name.lower()] = package
        left += [each.name for each in _requirements(package)]
    return dict(sorted(reached.items()))


def _requirements(package: Distribution) -> Iterator[Requirement]:
    for text in package.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def table() -> str:
    """The section of the page."""
    lines = ["| package | needed for | licence |", "| --- | --- | --- |"]
    core = {requirement.name for requirement in declared()[""]}
    for extra, requirements in declared().items():
        for requirement in requirements:
            use = f"extra `{extra}`" if extra else "everything"
            lines.append(f"| {requirement.name} | {use} | {licence(found(requirement.name))} |")
    further = [
        f"{name} ({licence(package)})" for name, package in required(sorted(core)).items() if name not in core
    ]
    return "\n".join([*lines, "", f"The core packages require in turn: {', '.join(further)}.", ""])


def write_table() -> None:
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(head + BEGIN + table() + END + tail, encoding="utf-8")


def bill_of_materials() -> dict[str, Any]:
    """A CycloneDX document of dsrd, its extras and all they require, as far as they are installed."""
    packages = required([each.name for group in declared().values() for each in group])
    components = _by_cyclonedx(packages) or [_component(package) for package in packages.values()]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    root = {
        "type": "library",
        "name": "dsrd",
        "version": version,
        "bom-ref": "dsrd",
        "licenses": [{"license": {"id": "MIT"}}],
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {"timestamp": datetime.now(UTC).isoformat(timespec="seconds"), "component": root},
        "components": components,
    }


def _component(package: Distribution) -> dict[str, Any]:
    text = licence(package)
    stated = {"expression": text} if SPDX.fullmatch(text) else {"license": {"name": text}}
    url = f"pkg:pypi/{package.name.lower()}@{package.version}"
    return {
        "type": "library",
        "name": package.name,
        "version": package.version,
        "bom-ref": url,
        "purl": url,
        "licenses": [stated],
    }


def _by_cyclonedx(packages: dict[str, Distribution]) -> list[dict[str, Any]]:
    """The components as the program cyclonedx-py describes them; empty without the program."""
    program = shutil.which("cyclonedx-py") or shutil.which(str(Path(sys.executable).with_name("cyclonedx-py")))
    if program is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bom.json"
        subprocess.run([program, "environment", sys.executable, "--sv", "1.6", "-o", str(file)], check=True)
        every = json.loads(file.read_text(encoding="utf-8")).get("components", [])
    return [each for each in every if each["name"].lower() in packages]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sbom", type=Path, help="write a bill of materials to this file instead")
    options = parser.parse_args()
    if options.sbom is None:
        write_table()
        return
    options.sbom.parent.mkdir(parents=True, exist_ok=True)
    options.sbom.write_text(json.dumps(bill_of_materials(), indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.sbom}")


if __name__ == "__main__":
    main()
