"""Reports in a real browser: drawn, true to the history, usable by keyboard, readable anywhere."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import securevfl as svfl
from securevfl.data.source import DataSource
from securevfl.engine.transcript import Transcript
from securevfl.report import write_report
from securevfl.report.live import LivePage
from securevfl.report.loading import read_records
from securevfl.report.timeline import timeline
from securevfl.runs.result import Run
from securevfl.runs.storage import write_transcript

selenium = pytest.importorskip("selenium", reason="selenium drives the browser and is not there")

DIGITS = DataSource("digits", {"parties": 4, "seed": 0})
SMALL = {"width": 4, "hidden": 4, "batch": 16}
CONDITIONS = {"upload_mean": [0.1, 0.1, 2.0, 3.0], "bandwidth": 0}
FAULTS = {"tick": 1.0, "outage": [{"party": 3, "rounds": [3, 6]}, {"party": 2, "rounds": [9]}]}
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
)  # fmt: skip
WIDE, PHONE = 1280, 390
HOSTILE = (
    "</script><script>document.title = 'mine'</script><img src=x onerror=\"document.title=1\">"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Run]:
    made = {}
    for protocol, rounds in (("fedvs", 12), ("split", 8), ("vafl", 30)):
        options: dict[str, Any] = {"conditions": CONDITIONS, **SMALL}
        if protocol == "fedvs":
            options |= {"faults": FAULTS, "share_timeout": 4.0, "result_timeout": 4.0}
            options |= {"cohorts": 0}
        made[protocol] = svfl.run(protocol, DIGITS, rounds=rounds, out=folder / protocol, **options)
    return made


@pytest.fixture(scope="module")
def single(runs: dict[str, Run]) -> Path:
    return write_report([runs["fedvs"].folder]).path


@pytest.fixture(scope="module")
def several(runs: dict[str, Run], folder: Path) -> Path:
    return write_report([run.folder for run in runs.values()], out=folder / "several.html").path


class Page:
    """The one browser of this module, and what tests do with it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.ask = driver.execute_script

    def open(self, path: Path | str, *, width: int = WIDE, scheme: str = "light") -> None:
        scheme_feature = [{"name": "prefers-color-scheme", "value": scheme}]
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme_feature})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.get(path if isinstance(path, str) else path.as_uri())
        assert self.driver.get_log("browser") == []

    def press(self, selector: str, *keys: str) -> str:
        """Focus an element, press keys, and give the text that a screen reader would say."""
        element = self.driver.find_element("css selector", selector)
        self.ask("arguments[0].focus()", element)
        element.send_keys(*keys)
        return element.get_attribute("aria-valuetext") or ""

    def click(self, selector: str) -> None:
        element = self.driver.find_element("css selector", selector)
        self.ask("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def count(self, selector: str) -> int:
        return int(self.ask("return document.querySelectorAll(arguments[0]).length", selector))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    # Looked for here and not when tests are collected: it may be installed meanwhile.
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(chromedriver))
    try:
        yield Page(driver)
    finally:
        driver.quit()


def plot(measure: str) -> str:
    return f"[data-measure={measure}] .plot"


# -- drawn, and true -----------------------------------------------------------------------------


def test_every_figure_is_drawn(browser, several, runs):
    browser.open(several)
    measures = browser.ask(
        "return [...document.querySelectorAll('[data-measure]')].map((e) => e.dataset.measure)"
    )
    assert measures == ["accuracy", "test_loss", "loss"]
    for measure in measures:
        assert browser.count(f"[data-measure={measure}] path.line") == len(runs)
    assert browser.count("[data-timeline] svg") == len(runs)
    for number, record in enumerate(read_records([run.folder for run in runs.values()])):
        lanes = timeline(record)["lanes"]
        assert browser.count(f"[data-timeline='{number}'] rect.lane") == len(lanes) == 5
        with_bars = sum(any(lane["bars"] or ()) for lane in lanes)
        assert browser.count(f"[data-timeline='{number}'] path.bar") == with_bars >= 3
        assert browser.count(f"[data-links='{number}'] td.link") == 20
    assert browser.count("[data-timeline='0'] rect.down") == 2


def test_nothing_was_asked_of_any_network(browser, several):
    browser.open(several)
    assert browser.ask("return performance.getEntriesByType('resource').map((e) => e.name)") == []


@pytest.mark.parametrize(("key", "place"), [("HOME", 0), ("END", -1)])
def test_values_that_are_read_are_those_of_the_history(browser, single, runs, key, place):
    from selenium.webdriver.common.keys import Keys

    browser.open(single)
    row = runs["fedvs"].history[place]
    where = f"(round {row['step']}, {row['time']:.2f} s, "
    expected = {
        "accuracy": f"{100 * row['accuracy']:.2f} %",
        "test_loss": f"{row['test_loss']:.4f}",
        "loss": f"{row['loss']:.4f}",
    }
    for measure, value in expected.items():
        assert browser.press(plot(measure), getattr(Keys, key)).startswith(f"{value} {where}")


def test_arrows_step_through_all_rounds(browser, single, runs):
    from selenium.webdriver.common.keys import Keys

    browser.open(single)
    browser.press(plot("loss"), Keys.HOME)
    for row in runs["fedvs"].history[1:4]:
        assert f"{row['loss']:.4f} (round {row['step']}," in browser.press(
            plot("loss"), Keys.ARROW_RIGHT
        )


def test_hovering_shows_the_nearest_value(browser, single, runs):
    from selenium.webdriver import ActionChains

    browser.open(single)
    element = browser.driver.find_element("css selector", plot("accuracy"))
    ActionChains(browser.driver).move_to_element_with_offset(
        element, element.size["width"] // 2 - 14, 0
    ).perform()
    row = runs["fedvs"].history[-1]
    tip = browser.driver.find_element("css selector", "[data-measure=accuracy] .tip")
    assert tip.is_displayed()
    assert tip.text.startswith(f"{100 * row['accuracy']:.2f} % (round {row['step']}, ")


def test_the_timeline_tells_who_was_down(browser, single, runs):
    from selenium.webdriver.common.keys import Keys

    browser.open(single)
    down = [e["time"] for e in runs["fedvs"].events if (e["event"], e["party"]) == ("down", 2)]
    lane = "[data-timeline] .plot"
    said = browser.press(lane, Keys.END, *[Keys.ARROW_DOWN] * 3)
    assert said.startswith("party 2: round ")
    assert f"down from {down[-1]:.2f} s on" in said
    assert browser.press(lane, Keys.ARROW_UP).startswith("party 1: round ")


def test_cells_of_the_matrix_are_the_sums_of_the_transcript(browser, single, runs):
    browser.open(single)
    columns = runs["fedvs"].transcript.columns()

    def shown() -> list[list[int | None]]:
        return browser.ask(
            "return [...document.querySelectorAll('[data-links] tbody tr')].map((row) =>"
            " [...row.querySelectorAll('td')].map((c) => c.dataset.value ? +c.dataset.value : 0))"
        )

    def expected(what: str, kind: str | None) -> list[list[int]]:
        chosen = [name in (kind, str(name) if kind is None else kind) for name in columns["kind"]]
        values = {"bytes": columns["bytes"], "late": columns["late"]}[what]
        table = [[0] * 6 for _ in range(6)]
        for use, a, b, value in zip(
            chosen, columns["sender"], columns["receiver"], values, strict=True
        ):
            for row, column in ((a + 1, b + 1), (a + 1, 5), (5, b + 1), (5, 5)):
                table[row][column] += int(value) if use else 0
        return table

    assert shown() == expected("bytes", None)
    browser.click("[data-what=late] + label")
    assert shown() == expected("late", None)
    kinds = browser.ask("return [...document.querySelectorAll('option')].map((o) => o.text)")
    place = kinds.index("embedding")
    browser.ask(
        "const s = document.querySelector('select[name=kind]'); s.selectedIndex = arguments[0];"
        " s.dispatchEvent(new Event('change'))",
        place,
    )
    assert shown() == expected("late", "embedding")


def test_seeds_of_a_study_are_one_curve_with_a_band(browser, tmp_path):
    from selenium.webdriver.common.keys import Keys

    (tmp_path / "jobs").mkdir()
    settings = {"protocol": "split", "dataset": "digits", "options": {}}
    curves = ([0.25, 0.5], [0.5, 0.75])
    for seed, values in enumerate(curves):
        rows = [
            {"step": n, "time": 2.0 * n, "bytes": 10 * n, "loss": 1.0, "accuracy": value}
            for n, value in enumerate(values, 1)
        ]
        job = {"label": "split", "seed": seed, "curve": rows, "summary": {"claims": []}}
        (tmp_path / "jobs" / f"split-{seed}.json").write_text(json.dumps(job))
    (tmp_path / "results.json").write_text(json.dumps({"settings": {"split": settings}}))
    browser.open(write_report([tmp_path]).path)
    assert browser.count("[data-measure=accuracy] path.line") == 1
    assert browser.count("[data-measure=accuracy] path.band") == 1
    assert browser.press(plot("accuracy"), Keys.HOME) == (
        "2 s; 37.50 % (25.00 % to 50.00 % in 2 runs)"
    )
    assert browser.press(plot("accuracy"), Keys.END).startswith("4 s; 62.50 % (50.00 % to 75.00 %")


def test_names_from_files_run_nothing(browser, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    name = json.dumps(HOSTILE)
    folder.joinpath("config.toml").write_text(
        f"format = 1\nprotocol = {name}\n[data]\nname = {name}\n[conditions]\nname = {name}\n"
    )
    row = {"event": "round", "party": -1, "round": 1, "time": 1.0, "step": 1, "loss": 1.0}
    event = {"event": "skipped", "party": 0, "round": 1, "time": 0.5, "why": HOSTILE}
    folder.joinpath("history.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(event)}\n")
    transcript = Transcript()
    transcript.add(0, -1, HOSTILE, 1, 10, 0, None)
    write_transcript(folder, transcript)
    browser.open(write_report([folder]).path)
    assert browser.driver.title == f"{HOSTILE} on {HOSTILE} – securevfl report"
    assert browser.count("img") == 0
    from selenium.webdriver.common.keys import Keys

    assert HOSTILE in browser.press("[data-timeline] .plot", Keys.END, Keys.ARROW_DOWN)
    assert browser.count("img") == 0


# -- controls ------------------------------------------------------------------------------------


def test_a_run_can_be_hidden_everywhere_and_shown_again(browser, several, runs):
    browser.open(several)
    browser.click("button[data-toggle='1']")
    assert browser.count("path.line[data-run=split]") == 0
    assert browser.count("[data-measure=loss] path.line") == len(runs) - 1
    hidden = "[...document.querySelectorAll('[data-group=\"1\"]')].every((e) => e.hidden)"
    assert browser.ask(f"return {hidden}")
    toggle = "[data-toggle='1']"
    assert browser.ask(f'return document.querySelector("{toggle}").ariaPressed') == "false"
    browser.click("button[data-toggle='1']")
    assert browser.count("[data-measure=loss] path.line") == len(runs)
    assert browser.count("[data-timeline='1'] svg") == 1


def test_the_axis_can_be_rounds_time_or_bytes(browser, several, runs):
    from selenium.webdriver.common.keys import Keys

    browser.open(several)
    label = "[data-measure=accuracy] text.name"
    said = {}
    for axis in ("step", "time", "bytes"):
        browser.click(f"#axis-{axis} + label")
        name = browser.driver.find_element("css selector", label).get_attribute("textContent")
        said[name] = browser.press(plot("accuracy"), Keys.END)
    assert list(said) == ["round", "virtual time", "sent by all parties"]
    last = {name: run.history[-1] for name, run in runs.items()}
    furthest = max(last, key=lambda name: last[name]["bytes"])
    text = f"{furthest}: {100 * last[furthest]['accuracy']:.2f} % (round "
    assert text in said["sent by all parties"]


def test_zooming_by_keyboard_by_button_and_by_mouse(browser, single, runs):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.open(single)

    def stops() -> int:
        slider = browser.driver.find_element("css selector", plot("loss"))
        return int(slider.get_attribute("aria-valuemax")) + 1

    whole = len(runs["fedvs"].history)
    assert stops() == whole
    browser.press(plot("accuracy"), "+")
    assert stops() < whole, "all curves are enlarged together"
    browser.press(plot("accuracy"), Keys.ESCAPE)
    assert stops() == whole
    browser.click("#curves .zoom button:nth-child(2)")
    narrow = stops()
    browser.click("#curves .zoom button:nth-child(1)")
    assert narrow < stops() == whole
    element = browser.driver.find_element("css selector", plot("loss"))
    ActionChains(browser.driver).move_to_element(element).click_and_hold().move_by_offset(
        60, 0
    ).release().perform()
    assert stops() < whole
    browser.click("#curves .zoom button:nth-child(3)")
    assert stops() == whole


def test_every_control_is_reached_by_tab(browser, several):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser.open(several)
    wanted = browser.ask(
        "const all = [...document.querySelectorAll("
        "'button, select, summary, a, .plot, input[type=checkbox], input:checked, pre[tabindex]')]"
        ".filter((e) => e.checkVisibility()); all.forEach((e, n) => { e.dataset.n = n; });"
        "window.reached = []; document.addEventListener('focusin',"
        " (e) => window.reached.push(Number(e.target.dataset.n))); return all.length"
    )
    ActionChains(browser.driver).send_keys(*[Keys.TAB] * (wanted + 12)).perform()
    reached = {number for number in browser.ask("return window.reached") if number is not None}
    assert reached >= set(range(wanted))


# -- anywhere ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["single", "several"])
def test_nothing_sticks_out_on_a_phone(browser, name, request):
    browser.open(request.getfixturevalue(name), width=PHONE)
    browser.ask("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.ask("return document.documentElement.scrollWidth") <= PHONE
    widest = browser.ask(
        "return Math.max(...[...document.querySelectorAll('main > *, .card, .plot svg')]"
        ".map((e) => e.getBoundingClientRect().right))"
    )
    assert widest <= PHONE
    small = browser.ask(
        "return [...document.querySelectorAll('button, select, .choice label')]"
        ".filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 30).length"
    )
    assert small == 0, "controls are large enough for a finger"


def test_an_axis_has_two_numbers_at_least(browser, single):
    """A span of 9 with two steps at most had 0 alone."""
    browser.open(single)
    source = (files("securevfl.report") / "templates" / "base.js").read_text()
    found = re.search(r"function ticks.*?(?=function scale)", source, re.DOTALL)
    spans = [[0, k / 4, 2] for k in range(2, 200)] + [[k / 3, 40, 3] for k in range(100)]
    counts = browser.ask(
        f"{found[0]} return {spans}.map(([low, high, count]) => ticks(low, high, count).length)"
    )
    assert 2 <= min(counts) <= max(counts) <= 7


BROKEN_WORDS = """
const found = [], walk = document.createTreeWalker(document.querySelector('main'), 4);
document.querySelectorAll('details').forEach((d) => { d.open = true; });
while (walk.nextNode()) {
  const node = walk.currentNode;
  if (!node.parentElement.checkVisibility() || node.parentElement.closest('script, pre')) continue;
  for (const word of node.data.matchAll(/[A-Za-z]{2,16}/g)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    const lines = new Set([...range.getClientRects()].map((r) => Math.round(r.top)));
    if (lines.size > 1) found.push(word[0]);
  }
}
return found;
"""


@pytest.mark.parametrize("width", [1280, 900])
def test_no_word_is_broken_in_its_middle(browser, several, width):
    browser.open(several, width=width)
    assert browser.ask(BROKEN_WORDS) == []


CONTRASTS = """
const parse = (text) => {
  const [r, g, b, a] = text.match(/[\\d.]+/g).map(Number);
  return { rgb: [r, g, b], a: a === undefined ? 1 : a };
};
const over = (top, under) => top.rgb.map((v, i) => top.a * v + (1 - top.a) * under[i]);
const light = (rgb) => rgb.map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (e) => {
  const own = [];
  for (let at = e; at !== null; at = at.parentElement) {
    own.push(parse(getComputedStyle(at).backgroundColor));
  }
  return own.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
};
const found = [];
document.querySelectorAll('details').forEach((d) => { d.open = true; });
for (const e of document.querySelectorAll('body *')) {
  const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim() !== '');
  if (!text || !e.checkVisibility() || e.closest('script, style, .skip')) continue;
  const style = getComputedStyle(e);
  const inside = e instanceof SVGElement;
  const back = ground(inside ? e.closest('.plot') : e);
  const fore = over(parse(inside ? style.fill : style.color), back);
  const [a, b] = [light(fore), light(back)].sort((x, y) => y - x);
  found.push([(a + 0.05) / (b + 0.05), e.tagName + '.' + (e.getAttribute('class') || ''),
    e.textContent.slice(0, 30)]);
}
return found;
"""


def brightness(browser: Page) -> float:
    colour = browser.ask("return getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in colour[4:-1].split(",")) / (3 * 255)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_dark(browser, several, scheme):
    """WCAG AA: a contrast of at least 4.5 for every text, cells of the matrix included."""
    browser.open(several, scheme=scheme)
    assert (brightness(browser) < 0.2) == (scheme == "dark")
    found = browser.ask(CONTRASTS)
    assert len(found) > 300
    weak = [entry for entry in found if entry[0] < 4.5]
    assert weak == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_and_marks_stand_out_from_the_page(browser, several, scheme):
    """WCAG 1.4.11: at least 3 for what a figure is read by."""
    browser.open(several, scheme=scheme)
    names = ["--late", "--left", "--lost", "--down", "--bar", "--server"]
    names += [f"--run-{number}" for number in range(8)]
    values = browser.ask(
        "const s = getComputedStyle(document.documentElement);"
        "return [...arguments].map((n) => s.getPropertyValue(n).trim())",
        *names,
        "--card",
        "--soft",
    )
    *colours, card, soft = map(luminance, values)
    for name, colour in zip(names, colours, strict=True):
        for ground in (card,) if name.startswith("--run") else (card, soft):
            high, low = max(colour, ground), min(colour, ground)
            assert (high + 0.05) / (low + 0.05) >= 3, name


def luminance(colour: str) -> float:
    digits = colour.removeprefix("#")
    whole = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(whole[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    bend: Callable[[float], float] = lambda v: (  # noqa: E731
        v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4
    )
    return sum(w * bend(v) for w, v in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def test_the_switch_goes_before_the_system(browser, single):
    browser.open(single, scheme="dark")
    assert brightness(browser) < 0.2
    browser.click("[data-theme-choice=light]")
    assert brightness(browser) > 0.8
    browser.click("[data-theme-choice=auto]")
    assert brightness(browser) < 0.2
    browser.open(single, scheme="light")
    browser.click("[data-theme-choice=dark]")
    assert brightness(browser) < 0.2


# -- a run that goes on --------------------------------------------------------------------------


def until(browser: Page, script: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser.driver, 30, 0.1).until(lambda _: browser.ask(f"return {script}"))


@pytest.mark.parametrize("width", [WIDE, PHONE])
def test_a_live_page_follows_the_run_until_it_is_over(browser, runs, width):
    rows = [dict(row) for row in runs["fedvs"].history]
    rounds = "document.querySelector('#summary [data-figure=rounds]')?.textContent"
    with LivePage("fedvs", "fedvs on digits") as live:
        browser.open(live.address, width=width)
        assert "is being prepared" in browser.ask("return document.body.textContent")
        for row in rows[:-1]:
            live.step(row)
        until(browser, f"{rounds} === '{len(rows) - 1}'")
        before = browser.ask("return document.querySelector('[data-measure=loss] .line').outerHTML")
        live.step(rows[-1])
        until(browser, f"{rounds} === '{len(rows)}'")
        after = browser.ask("return document.querySelector('[data-measure=loss] .line').outerHTML")
        assert after != before
        assert f"{rows[-1]['loss']:.4f}" in browser.press(plot("loss"), "\ue010")  # End
        assert browser.count("[data-measure]") > browser.ask(
            "return [...document.querySelectorAll('[data-measure]')].filter("
            "(e) => e.offsetParent !== null).length"
        )
        assert browser.ask("return document.documentElement.scrollWidth") <= width
        assert browser.driver.get_log("browser") == []
    until(browser, "document.getElementById('state').dataset.over === 'yes'")
    browser.driver.get_log("browser")  # the last question is not answered
