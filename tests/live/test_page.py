"""The page of a server in a browser: live updates, search, token, reconnection, both themes, a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live.background_server import Served, served

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
)
TOKEN = "a-token-of-the-tests"
SIZE = "each => { const box = each.getBoundingClientRect(); return [box.width, box.height]; }"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("Chromium is not installed; `apt-get install chromium` to run this test")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("page") / "data", run) as running:
        running.observe((1, 2), (3, 4), (1, 2), (5, 6), (1, 7))
        yield running


@pytest.fixture
def view(browser: Any, server: Served, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page; the test fails if it logs an error or asks another server for anything."""
    options = getattr(request, "param", {})
    size = {"width": options.get("width", 1200), "height": 900}
    context = browser.new_context(viewport=size, color_scheme=options.get("scheme", "light"))
    page, wrong, asked = context.new_page(), [], []
    page.set_default_timeout(20_000)
    page.on("console", lambda told: wrong.append(told.text) if is_fault(told) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(server.url)
    page.wait_for_selector("#connection[data-state=live]")
    page.wait_for_selector("#latest .name")
    yield page
    assert not wrong
    assert all(url.startswith((server.url, "data:")) for url in asked)
    context.close()


def is_fault(told: Any) -> bool:
    """Browsers log by themselves that a name was not found."""
    return told.type in ("error", "warning") and "404" not in told.text


def latest_with(page: Any, source: str, target: str) -> Any:
    """The newest row of the table of latest events with these names; a time may hold the same digits."""
    names = (page.locator(f".name[title='{name}']") for name in (source, target))
    rows = page.locator("#latest tbody tr")
    for name in names:
        rows = rows.filter(has=name)
    return rows.first


def luminance(page: Any, selector: str, name: str) -> float:
    color = page.eval_on_selector(selector, f"each => getComputedStyle(each).{name}")
    return sum(map(float, color[color.index("(") + 1 : -1].split(",")[:3]))


def test_events_appear_as_they_come(view: Any, server: Served):
    server.observe((17, 23))
    latest_with(view, "17", "23").wait_for()
    seq = server.observe((17, 23), (17, 22))
    latest_with(view, "17", "22").wait_for()
    told = rf"^{seq}{server.engine.state().events} seen by the model$"  # the figure, and the small print after it
    view.locator("#tiles dd").filter(has_text=re.compile(told)).wait_for()
    assert view.locator("#bits circle").count() >= 5
    view.locator("#rate path.line").wait_for(state="attached")
    view.locator("#top .name").first.wait_for()


def test_searching_with_the_keyboard(view: Any, server: Served):
    view.focus("#name")
    view.keyboard.type("1")
    view.wait_for_selector("#names option[value='1']", state="attached")
    view.keyboard.press("Enter")
    view.wait_for_selector("#partners .name")
    expected = server.engine.partners("1", 10)
    assert view.locator("#partners .name").all_inner_texts() == expected.target
    assert f"{100 * expected.answer.partner[0]:.1f} %" in view.inner_text("#partners tbody tr:first-child")
    assert view.locator("#nearest .name").count() == 10
    dots = view.locator("#history circle").count()
    assert dots > 5
    view.focus("#history svg")
    view.keyboard.press("ArrowLeft")
    assert "→" in view.inner_text("#history-chosen")
    assert "#node=1" in view.url
    view.locator("#partners .name").first.click()
    view.locator("#found").filter(has_text=f"{expected.target[0]}: ").wait_for()


def test_the_model_and_its_half_lives(view: Any):
    view.wait_for_selector("#lives circle")
    assert "Dual-Scale" in view.inner_text("#card")
    view.click("#settings summary")
    assert "half_life_in_events" in view.inner_text("#settings pre")


@pytest.mark.parametrize("view", [{"scheme": "dark"}, {"width": 390}], indirect=True, ids=["dark", "phone"])
def test_dark_light_and_small(view: Any):
    view.evaluate("location.hash = 'node=3'")
    view.wait_for_selector("#history circle")
    assert view.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not scroll"
    view.wait_for_selector("#bits circle")
    for plot in ("rate", "bits", "history", "lives"):
        width, height = view.eval_on_selector(f"#{plot} svg", SIZE)  # at once: it is drawn anew every second
        assert width > 250, plot
        assert height > 30, plot
    dark = view.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    for _ in range(2):
        paper, ink = luminance(view, "body", "backgroundColor"), luminance(view, "body", "color")
        assert (paper < 200 < 600 < ink) if dark else (ink < 200 < 600 < paper)
        view.click("#theme")
        dark = not dark


def test_names_are_text(view: Any):
    view.evaluate("location.hash = 'node=' + encodeURIComponent('<img src=x onerror=alert(1)>')")
    view.locator("#found").filter(has_text="<img").wait_for()
    assert view.locator("#found img").count() == 0


def test_the_token_and_a_server_that_comes_back(browser: Any, run: Path, tmp_path: Path):
    page = browser.new_context().new_page()
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    with served(tmp_path / "data", run, token=TOKEN) as server:
        page.goto(server.url)
        page.wait_for_selector("#token[open]")
        assert not page.locator("#tiles div").count(), "nothing is shown to a stranger"
        page.fill("#token-value", "a-wrong-token")
        page.keyboard.press("Enter")
        page.locator("#token-why").filter(has_text="refused").wait_for()
        page.fill("#token-value", TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#connection[data-state=live]")
        server.observe((8, 9))
        page.wait_for_selector("#latest .name")
        assert page.evaluate("sessionStorage.length") == 1
        assert page.evaluate("localStorage.length") == 0
    page.wait_for_selector("#connection[data-state=lost]")
    with served(tmp_path / "data", None, token=TOKEN, port=server.port) as again:
        page.wait_for_selector("#connection[data-state=live]")
        again.observe((8, 29))
        latest_with(page, "8", "29").wait_for()
    assert not errors
