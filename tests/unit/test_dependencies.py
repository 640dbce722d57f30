"""The page about security names every dependency; the bill of materials lists them with versions."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dependencies() -> ModuleType:
    pytest.importorskip("packaging")
    spec = importlib.util.spec_from_file_location("dependencies", ROOT / "docs" / "dependencies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_licences_has_a_row_for_every_dependency(dependencies: ModuleType):
    """Loosely: the text of a licence may differ between versions, a package may not be missing."""
    page = dependencies.PAGE.read_text()
    shown = {line.split("|")[1].strip() for line in page.split(dependencies.BEGIN)[1].splitlines() if "|" in line}
    wanted = {requirement.name for group in dependencies.declared().values() for requirement in group}
    assert wanted <= shown, f"run python docs/dependencies.py: {sorted(wanted - shown)} are missing"
    assert shown - wanted <= {"package", "---"}


def test_the_bill_of_materials_lists_what_dsrd_requires(
    dependencies: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["dependencies", "--sbom", str(tmp_path / "bom" / "sbom.json")])
    monkeypatch.setattr(dependencies, "_by_cyclonedx", lambda _: [])  # the program need not be installed
    dependencies.main()
    bill = json.loads((tmp_path / "bom" / "sbom.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    by_name = {each["name"].lower(): each for each in bill["components"]}
    assert {"torch", "numpy", "numba", "pyarrow", "typer", "llvmlite"} <= by_name.keys()
    assert "pytest" not in by_name
    assert by_name["pyarrow"]["purl"].startswith("pkg:pypi/pyarrow@")
    assert by_name["filelock"]["licenses"]
