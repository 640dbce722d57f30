"""The page in a browser: no error, figures visible, sorting, cells that lead to records, both themes, a phone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from dsrd.report.build import Report

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("Chromium is not installed; `apt-get install chromium` to run this test")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def view(browser: Any, made: Report, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, offline; the test fails if it logs an error or asks for anything but itself."""
    options = getattr(request, "param", {})
    size = {"width": options.get("width", 1200), "height": 900}
    context = browser.new_context(viewport=size, color_scheme=options.get("scheme", "light"), offline=True)
    page, wrong, asked = context.new_page(), [], []
    page.on(
        "console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"file://{made.page}")
    page.wait_for_selector("#links-table td")
    yield page
    assert not wrong
    assert {url for url in asked if not url.startswith("data:")} == {f"file://{made.page}"}
    context.close()


def luminance(page: Any, selector: str, name: str) -> float:
    color = page.eval_on_selector(selector, f"each => getComputedStyle(each).{name}")
    return sum(map(float, color[color.index("(") + 1 : -1].split(",")[:3]))


def column(page: Any, number: int) -> list[str]:
    cells = page.locator(f"#links-table tbody td:nth-child({number})").all_inner_texts()
    return [cell.split(" ")[0].rstrip("1cpe!") for cell in cells]


@pytest.mark.parametrize(
    "view", [{}, {"scheme": "dark"}, {"width": 390}], indirect=True, ids=["light", "dark", "phone"]
)
def test_figures_are_visible(view: Any, made: Report):
    plots = view.locator("figure svg.plot")
    assert plots.count() == len(made.figures)
    for number in range(plots.count()):
        box = plots.nth(number).bounding_box()
        assert box["width"] > 250, number
        assert box["height"] > 120, number
        assert plots.nth(number).locator("path").count() > 3
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not scroll"


def test_light_and_dark(view: Any):
    text, paper = "h2", "body"
    figure = "#retention-steps svg text"
    assert luminance(view, text, "color") < 200 < 600 < luminance(view, paper, "backgroundColor")
    view.click("#theme")
    assert luminance(view, paper, "backgroundColor") < 200 < 600 < luminance(view, text, "color")
    assert luminance(view, figure, "fill") > 600, "ink in figures follows the theme"
    view.click("#theme")
    assert luminance(view, figure, "fill") < 200


@pytest.mark.parametrize("view", [{"scheme": "dark"}], indirect=True)
def test_a_dark_system_gets_a_dark_page(view: Any):
    assert luminance(view, "body", "backgroundColor") < 200


def test_sorting_by_a_data_set(view: Any):
    view.click("#links-table th:nth-child(6) button")
    values = [float(cell) for cell in column(view, 6) if cell]
    assert len(values) > 10
    assert values == sorted(values, reverse=True)
    assert not any(column(view, 6)[len(values) :]), "missing cells come last"
    view.click("#links-table th:nth-child(6) button")
    values = [float(cell) for cell in column(view, 6) if cell]
    assert values == sorted(values)
    assert view.get_attribute("#links-table th:nth-child(6)", "aria-sort") == "ascending"
    view.click("#links-table th:nth-child(1) button")
    names = [name.lower() for name in view.locator("#links-table tbody td:nth-child(1)").all_inner_texts()]
    assert len(names) > 10


def test_sorting_the_other_tables(view: Any):
    table = view.locator("#table-costs table")
    table.locator("th:nth-child(2)").click()
    cells = table.locator("tbody td:nth-child(2)")
    values = [float(each.get_attribute("data-value")) for each in cells.all()]
    assert len(values) > 5
    assert values == sorted(values)


def test_the_controls_choose_a_table(view: Any, made: Report):
    before = column(view, 3)
    view.select_option("select[name=negatives]", "historical")
    assert column(view, 3) != before
    view.select_option("select[name=reading]", "law")
    assert "law" in view.inner_text("#links-notes")
    rows = view.locator("#links-table tbody tr").count()
    view.uncheck("input[name=published]")
    assert view.locator("#links-table tbody tr").count() < rows
    view.check("input[name=variant]")
    assert view.locator("#links-table tr.variant").count() > 0


def test_a_cell_leads_to_its_record(view: Any, made: Report):
    row = view.locator("#links-table tbody tr").filter(has_text="DSRD").first
    row.locator("td[data-records]").first.click()
    shown = view.inner_text("#record")
    record = next(each for each in made.records if each.get("model") == "dsrd" and "digests" in each)
    for word in ("seed", "digest of config", "Command", "dsrd train --dataset", "read from", "train"):
        assert word in shown, word
    assert record
    view.click("#record button")
    assert not view.locator("#record").is_visible()


def test_every_measured_cell_leads_to_a_record(view: Any):
    wrong = view.evaluate(
        """data.views.flatMap((view) => view.rows.filter((row) => row.origin !== "published")
             .flatMap((row) => row.cells.filter((cell) => cell && !(cell.records || []).length)))"""
    )
    assert wrong == []
    assert view.evaluate(
        "data.views.flatMap((v) => v.rows).flatMap((r) => r.cells).filter(Boolean).every("
        "(cell) => (cell.records || []).every((n) => data.records[n].digests || data.records[n].kind))"
    )
