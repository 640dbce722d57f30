"""The documentation is run: examples, commands, the model of CONTRIBUTING; pages are fresh, links lead on."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
import typer
from typer.testing import CliRunner

import dsrd
from dsrd.cli.main import app
from dsrd.data.sample import write_sample

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = {path.relative_to(ROOT).as_posix(): path for path in [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))]}
GENERATORS = ("generate.py", "generate_reference.py", "pictures.py", "figures.py")
SOURCES = sorted((ROOT / "src").rglob("*.py"))
OTHER_PROGRAMS = ("cd", "cp", "docker", "export", "openssl", "pip", "python", "tail")
QUICK = ("--set", "train.epochs=1", "--set", "model.dim=16")


class Block(NamedTuple):
    """A fenced block, and the comment right above it."""

    mark: str
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    found = re.findall(r"(?:<!-- (.*?) -->\n)?^```(\w+)\n(.*?)^```$", PAGES[page].read_text(), re.M | re.S)
    return [Block(*each) for each in found]


def commands(block: Block) -> list[list[str]]:
    return [shlex.split(line[2:]) for line in block.text.splitlines() if line.startswith("$ ")]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with the files the documentation speaks of."""
    write_sample(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pages_with(language: str, mark: str = "") -> list[str]:
    return [page for page in PAGES if any((b.language, b.mark) == (language, mark) for b in blocks(page))]


@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run(page: str, desk: Path):
    """Blocks of a page continue each other."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.language == "python" and not block.mark:
            exec(compile(block.text, page, "exec"), names)


@pytest.mark.parametrize("page", pages_with("console", "run"))
def test_marked_commands_run(page: str, desk: Path):
    for block in blocks(page):
        for program, *words in commands(block) if block.mark == "run" else ():
            assert program == "dsrd"
            quick = QUICK if words[0] == "train" else ()
            done = CliRunner().invoke(app, [*words, *quick])
            assert done.exit_code == 0, f"{words}: {done.exception or done.output}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    for block in blocks(page):
        for program, *words in commands(block) if block.language == "console" else ():
            if program == "dsrd":
                parse(words)
            elif program == "make":
                assert words[0] in targets
            elif program == "curl":
                assert_an_endpoint_is_asked(page, words)
            else:
                assert program in OTHER_PROGRAMS, f"{page}: {program}"


def assert_an_endpoint_is_asked(page: str, words: list[str]) -> None:
    """The server has that address, and knows the fields of the body."""
    pytest.importorskip("fastapi", reason="needs dsrd[serve]")
    path = next(urlsplit(word).path for word in words if word.startswith("http://"))
    known = next(each for each in endpoints() if re.fullmatch(re.sub(r"{\w+}", "[^/]+", each), path))
    body = next((json.loads(word) for word in words if word.startswith("{")), None)
    if body is not None:
        schema = endpoints()[known]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert body.keys() <= schema["properties"].keys(), f"{page}: {body}"
        assert body.keys() >= set(schema["required"]), f"{page}: {body}"


@cache
def endpoints() -> dict[str, Any]:
    """By path, as the server describes them."""
    from starlette.testclient import TestClient

    from dsrd.live.server.app import create_app
    from dsrd.live.server.guard import Limits
    from dsrd.live.server.service import Service

    app = create_app(Service(lambda _: pytest.fail("is not opened")), Limits(), None)
    found: dict[str, Any] = TestClient(app, base_url="http://localhost").get("/openapi.json").json()["paths"]
    return found


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_the_text_exist(page: str):
    known = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(r"`dsrd ([a-z][^`|]*)`", PAGES[page].read_text()):
        name, *words = line.split()
        assert name in known, line
        if hasattr(known[name], "commands") and words and words[0].islower():
            assert words[0] in known[name].commands, line


def parse(words: list[str]) -> None:
    """Read a command line as far as its options; a wrong one raises."""
    command: Any = typer.main.get_command(app)
    name = "dsrd"
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    command.make_context(name, words)


def test_a_wrong_option_does_not_parse():
    with pytest.raises(Exception, match="--modle"):
        parse(["train", "--dataset", "uci", "--modle", "tgn"])


def write_the_model_of_contributing(folder: Path) -> str:
    """Its file's name."""
    block = next(block for block in blocks("CONTRIBUTING.md") if block.mark.startswith("model: "))
    name = block.mark.removeprefix("model: ")
    (folder / name).write_text(block.text)
    return name


def test_the_model_of_contributing_trains(tmp_path: Path):
    name = write_the_model_of_contributing(tmp_path)
    train = next(words for other in blocks("CONTRIBUTING.md") for words in commands(other) if words[0] == "dsrd")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dsrd",
            *train[1:],
            "--set",
            "train.epochs=9",
            "--out",
            tmp_path / "run",
            "--results",
            "none",
            "--json",
        ],
        env={**os.environ, "DSRD_MODELS": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["model"] == name.removesuffix(".py")
    assert record["parameters"] > 0
    assert record["results"]["transductive"]["random"]["auc"] > 60


def test_the_model_of_contributing_passes_the_conformance_tests(tmp_path: Path):
    name = write_the_model_of_contributing(tmp_path).removesuffix(".py")
    run = [sys.executable, "-m", "pytest", "-o", "addopts="]  # another -q would leave the count out
    done = subprocess.run(
        [*run, "tests/conformance", "-k", name, "-q", "-p", "no:cacheprovider"],
        env={**os.environ, "DSRD_MODELS": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed
    assert int(passed[1]) > 15, "most checks hold any model"


@pytest.mark.parametrize("script", GENERATORS)
def test_generated_pages_are_fresh(script: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(DOCS)  # they import their neighbours
    for name, text in load_file(DOCS / script).pages().items():
        assert (DOCS / name).read_text() == text, f"docs/{name} is stale: run `python docs/{script}`"


def test_records_of_an_earlier_version_are_marked():
    pages = load_file(DOCS / "record_pages.py")
    line = next(line for line in (ROOT / "results" / "edgebank.jsonl").read_text().splitlines())
    record = json.loads(line)
    assert pages._model(record) == "edgebank"
    record["config"]["model_args"]["setting_that_is_gone"] = 1
    assert pages._model(record) == "edgebank, earlier version"
    record = json.loads(line) | {"model": "dsrd"}
    record["config"]["model_args"] = {}
    record["config"]["train"] = dict(dsrd.models.model_class("dsrd").card.recipe)
    assert pages._model(record) == "dsrd"
    by_length = {"uci": 32, "mooc": 64}  # widths that the model takes by itself are not named
    for dataset, dim in by_length.items():
        record |= {"dataset": dataset, "config": record["config"] | {"model_args": {"dim": dim}}}
        assert pages._model(record) == "dsrd"
    assert pages._model(record | {"dataset": "uci"}) == "dsrd, dim=64"
    del record["config"]["train"]["decay_lr"]
    assert pages._model(record) == "dsrd, earlier version"


def load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_readme_shows_the_golden_numbers():
    """That our numbers are the published ones is tested beside the protocol; here, that the table says so."""
    source = ast.parse((ROOT / "tests" / "protocol" / "test_edgebank_golden.py").read_text())
    golden = next(
        ast.literal_eval(node.value)
        for node in source.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PUBLISHED"
    )
    rows = re.findall(r"^  \| (\w+) \| ([\d./ |]+) \|$", PAGES["README.md"].read_text(), re.M)
    assert {name: tuple(map(float, re.findall(r"[\d.]+", cells))) for name, cells in rows} == golden


def test_the_readme_shows_what_the_demo_prints():
    """The rows that do not depend on training."""
    stream = dsrd.load("synth:events=10000")
    model = dsrd.LinkPredictor("edgebank", protocol="dyglib", order="py37").fit(stream, progress=False)
    record = model.evaluate(progress=False).record
    for name, results in (("edgebank", record["results"]), ("best possible", record["ceiling"])):
        for setting, found in results.items():
            kinds = model.run.evaluate.negatives
            cells = [f"{found[kind]['ap']:.2f} / {found[kind]['auc']:.2f}" for kind in kinds]
            row = r"\s+".join([name, setting, *cells])
            assert re.search(row, PAGES["README.md"].read_text()), f"README: the demo now prints {row}"


def links(page: str) -> list[tuple[str, str]]:
    """(file, heading) of every link inside the repository; a link within the page has no file."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]+`", "", PAGES[page].read_text(), flags=re.M | re.S)
    found = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", prose)
    return [(file, heading) for file, heading in found if file or heading]


def headings(path: Path) -> set[str]:
    """The anchors of a page, as the site makes them."""
    prose = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
    plain = (re.sub(r"[^\w\s-]", "", heading).strip().lower() for heading in re.findall(r"^#+ (.+)$", prose, re.M))
    return {re.sub(r"[-\s]+", "-", heading) for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str):
    for file, heading in links(page):
        target = (PAGES[page].parent / file).resolve() if file else PAGES[page]
        assert target.exists(), f"{page}: {file}"
        assert not heading or heading in headings(target), f"{page}: {file}#{heading}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_pages_of_the_site_link_inside_it(page: str):
    """The site holds nothing but docs/; name other files without a link."""
    for file, _ in links(page):
        assert (PAGES[page].parent / file).resolve().is_relative_to(DOCS), f"{page}: {file}"


def test_headings_become_anchors():
    assert "2026-11-16-uslegis-under-strict" in headings(DOCS / "log.md")
    assert ("", "dsrd-train") in links("docs/reference/command-line.md")


def test_the_navigation_lists_every_page_once():
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M)
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


WHERE_FILES_ARE = ("", "docs", "src/dsrd", "src/dsrd/*", "src/dsrd/models/*", "tests/reference")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("CHANGELOG.md", "docs/log.md")])
def test_code_files_that_pages_name_exist(page: str):
    """`train/loop.py`, seen from the root or from a package; logs may name what is gone."""
    for name in re.findall(r"`([\w/]+\.py)`", PAGES[page].read_text()):
        assert any(any(ROOT.glob(f"{folder}/{name}".lstrip("/"))) for folder in WHERE_FILES_ARE), f"{page}: {name}"


def test_the_symbols_of_dsrd_have_the_names_the_page_says():
    page = (DOCS / "explanation" / "dsrd.md").read_text()
    table = page.split("## Symbols\n")[1].strip().split("\n\n")[0]
    code = "\n".join(path.read_text() for path in (ROOT / "src/dsrd/models/dsrd").glob("*.py"))
    named = [part for name in re.findall(r"`([A-Za-z_.0-9]+)`", table) for part in name.split(".") if part != "py"]
    missing = [name for name in named if not re.search(rf"\b{name}\b", code)]
    assert len(named) > 20
    assert [name for name in missing if not (ROOT / f"src/dsrd/models/dsrd/{name}.py").exists()] == []


def test_the_site_builds_without_a_warning(tmp_path: Path):
    if not all(importlib.util.find_spec(name) for name in ("zensical", "mkdocstrings")):
        pytest.skip("Zensical or mkdocstrings is not installed; `make docs` installs them")
    for name in ("docs", "src"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    build = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "site" / "reference" / "api.html").read_text()
    assert all(f"dsrd.{name}" in page for name in dsrd.__all__), "a public name without a docstring"


def test_pages_name_no_machine():
    for page, path in PAGES.items():
        assert not re.search(r"/home/|/root/|\.\./shared", path.read_text()), page
        assert f"{ROOT.resolve().parent}/" not in path.read_text(), page


def docstrings(path: Path) -> Iterator[tuple[str, int, str]]:
    """Those with examples, found in the source: compiled functions hide theirs at run time."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_text())):
        text = ast.get_docstring(node, clean=False) if isinstance(node, kinds) else None
        if text and ">>>" in text:
            yield getattr(node, "name", path.stem), getattr(node, "lineno", 1), text


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if any(docstrings(path))], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_examples_in_docstrings_run(path: Path, desk: Path):
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    module = import_module(".".join(part for part in parts if part != "__init__"))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    said: list[str] = []
    for name, line, text in docstrings(path):
        example = doctest.DocTestParser().get_doctest(text, dict(vars(module)), name, str(path), line)
        runner.run(example, out=said.append)
    assert not runner.failures, "".join(said)


def test_public_names_are_there_and_documented():
    assert dsrd.__all__ == sorted(dsrd.__all__) == list(dsrd._HOME)
    for name in dsrd.__all__:
        assert getattr(dsrd, name).__doc__, name
    with pytest.raises(AttributeError, match="nothing"):
        dsrd.nothing  # noqa: B018


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited
    assert dsrd.__version__ == project["version"] == cited[1]
    assert f"## [{dsrd.__version__}]" in PAGES["CHANGELOG.md"].read_text()


def test_importing_the_package_loads_nothing_heavy():
    code = "import sys, dsrd; print([name for name in ('torch', 'numba', 'pyarrow') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
