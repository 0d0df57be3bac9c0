"""The page in a real browser: against a running pipeline, and in states that a pipeline seldom has.

The pictures of the README and of docs/web-page.md are made here: `make screenshots` keeps them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chromium import Chromium, find_chromium
from tests.e2e.flights_table import FlightsTable
from tests.unit.page.page_world import EVIL, PageWorld, letter
from tidemark.demo.flights import EventStream
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.table_status.warnings import StatusWarning, WarningKind

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
IMAGES = Path(__file__).parents[2] / "docs" / "images"
KEEP_IMAGES = os.environ.get("TIDEMARK_SCREENSHOTS") == "1"
# More of them make a better picture, and no better test.
EPOCHS = 40 if KEEP_IMAGES else 8
CARRIER = "<script>window.pwned=1</script>"
BROKEN = b'{"<img src=x onerror=window.pwned=2>'
PHONES = ((400, 800), (360, 640), (320, 568))
TAB, ENTER = 9, 13
# Epochs of half a second, but the first took 11.5 s: how many columns are cut, what is said, the axis' end.
ONE_SLOW_EPOCH = """import('/epochs.js').then(({ Epochs }) => {
  const chart = document.createElement('div');
  document.body.append(chart);
  const took = (at) => [['write', at === 10 ? 11500 : 500]];
  const one = (at) => ({ epoch: 11 - at, steps: took(at), counts: { input: 1 } });
  const epochs = [...Array(11).keys()].map(one);
  new Epochs(chart, chart).drawChart({ epochs });
  const said = [...chart.querySelectorAll('.axis')].map((each) => each.textContent);
  chart.remove();
  return [chart.querySelectorAll('.cut').length, said.find((each) => each.startsWith('11.5')), said[2]];
})"""
LATER = re.compile(r"Failed to load resource\b.*\bstatus of 50[34]\b")


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Chromium]:
    program = find_chromium()
    if program is None:
        pytest.skip("there is no Chromium: install the Debian package chromium, or set TIDEMARK_CHROMIUM")
    profile = tmp_path / "profile"
    profile.mkdir()
    browser = Chromium(program, profile)
    yield browser
    browser.close()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[FlightsTable]:
    running = FlightsTable(tmp_path / "demo")
    yield running
    running.abandon()


def picture(browser: Chromium, folder: Path, name: str) -> None:
    """What the window shows; kept with the documentation when that is asked for."""
    file = (IMAGES if KEEP_IMAGES else folder) / f"{name}.png"
    file.parent.mkdir(parents=True, exist_ok=True)
    browser.screenshot(file, whole=False)
    assert file.stat().st_size > 10_000


def state(browser: Chromium, name: str) -> None:
    browser.until(f"document.querySelector('.state').dataset.state === '{name}'")


def check_fits(browser: Chromium) -> None:
    """Nothing is wider than a phone."""
    for width, height in PHONES:
        browser.look(width, height)
        browser.until(f"document.querySelector('#flow svg').clientWidth < {width}")
        wide = f"(each) => each.getBoundingClientRect().right > {width} && !each.closest('svg')"
        found = (
            f"[...document.querySelectorAll('main *, header *')].filter({wide}).map((each) => each.className)"
        )
        browser.until(f"document.documentElement.scrollWidth <= {width}", 20.0, found)


def check_ran_nothing_foreign(browser: Chromium, page: str) -> None:
    """No other host was asked, no markup of a record came to life, nothing was refused or failed."""
    assert browser.evaluate("window.pwned") is None
    assert browser.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
    assert [each for each in browser.asked if not each.startswith((page, "about:"))] == []
    wrong = [each for each in browser.logged if each.startswith(("error", "warning"))]
    # The page is told so, by design, while something is slow; it asks again.
    assert [each for each in wrong if not LATER.search(each)] == []


def check_says_what_it_is(browser: Chromium) -> None:
    """Whoever cannot see the page hears it: pictures, fields and regions have names."""
    silent = """[...document.querySelectorAll('[role=img], section, input, button, ol, a')].filter((each) =>
      !(each.getAttribute('aria-label') || each.labels?.length || each.textContent.trim() ||
        document.getElementById(each.getAttribute('aria-labelledby')))).map((each) => each.outerHTML)"""
    assert browser.evaluate(silent) == []
    assert browser.evaluate("document.documentElement.lang") == "en"


def told_key(running: FlightsTable) -> dict[str, Any]:
    """The story of a key with at least two versions, of which readers see one."""
    rows = running.rows()
    # Rows of a log file have no file name of their own: most are newer versions of what a base file holds.
    in_logs = [row for row in rows if not row["_hoodie_file_name"].endswith(".parquet")]
    for row in in_logs[:: max(len(in_logs) // 300, 1)]:
        told = running.ask("/api/key", key=row["_hoodie_record_key"])
        if len(told["versions"]) >= 2 and told["merged"]:
            shown = dict(told["merged"])
            assert (shown["status"], shown["dest"]) == (row["status"], row["dest"]), (
                "hudi-rs reads it otherwise"
            )
            return told
    raise AssertionError("no key has two versions")


def look_up_by_keyboard(browser: Chromium, key: str) -> None:
    """From the field to the story without a mouse."""
    browser.evaluate("document.querySelector('#story-key').focus()")
    browser.evaluate("document.querySelector('#story-key').select()")
    browser.type(key)
    browser.press("Tab", TAB)
    assert browser.evaluate("document.activeElement.innerText") == "Look up"
    browser.press("Enter", ENTER)
    browser.until("document.querySelector('.verdict, .problem')")
    browser.until(f"document.querySelector('.verdict')?.innerText.includes({json.dumps(key)})")


def evil_records() -> tuple[bytes, bytes]:
    """A flight of a carrier whose name is markup, and something broken that is markup, too."""
    batch = next(EventStream(1).batches())
    values = (value for _, value in batch.records if value and value.startswith(b'{"flight_date"'))
    flight = json.loads(next(values))
    return json.dumps({**flight, "carrier": CARRIER}).encode(), BROKEN


def check_empty(browser: Chromium) -> None:
    state(browser, "empty")
    assert "flights" in browser.text("#warnings")
    assert browser.text("#letters-say") in ("", "none")


def check_flowing(browser: Chromium) -> None:
    """Rates, epochs with their steps, dead letters, tiers and file groups of records that come in now."""
    state(browser, "running")
    last_place = "[...document.querySelectorAll('.place-value')].at(-1).textContent"
    browser.until(f"/^[1-9][\\d,.]*k?\\/s$/i.test({last_place})", 180.0)
    browser.until(f"document.querySelectorAll('#epoch-chart g').length >= {EPOCHS}", 300.0)
    browser.until("document.querySelectorAll('#epochs .segment').length >= 30", 180.0)
    browser.until("document.querySelectorAll('.letter').length >= 5", 180.0)
    assert re.search(r"\d+ file groups in \d+ partitions", browser.text("#groups-say"))
    tiers = "[...document.querySelectorAll('.tier-name')].map((each) => each.childNodes[1].textContent)"
    assert {"Uncommitted", "Hot", "RocksDB", "Record index"} <= set(browser.evaluate(tiers))


def check_looks(browser: Chromium, folder: Path) -> None:
    """By day, in the dark, on phones."""
    picture(browser, folder, "page-light")
    browser.look(1280, 800, dark=True)
    picture(browser, folder, "page-dark")
    browser.look(390, 844, scale=2.0)
    picture(browser, folder, "page-phone")
    check_fits(browser)
    check_says_what_it_is(browser)


def check_story(running: FlightsTable, browser: Chromium, folder: Path) -> None:
    """The whole story of a key, as hudi-rs reads it."""
    browser.evaluate("document.querySelector('#story-some').click()")
    browser.until("document.querySelectorAll('.version').length > 0")
    assert running.ask("/api/key", key=browser.evaluate("document.querySelector('#story-key').value"))[
        "found"
    ]
    told = told_key(running)
    browser.look(1280, 800)
    look_up_by_keyboard(browser, told["key"])
    assert browser.evaluate("document.querySelectorAll('.version').length") == len(told["versions"])
    assert browser.evaluate("document.querySelectorAll('.version[data-read]').length") == 1
    assert told["file_id"] in browser.text(".verdict")
    epochs = "[...document.querySelectorAll('.version-head b')].map((each) => each.innerText)"
    assert browser.evaluate(epochs) == [f"epoch {each['epoch']}" for each in told["versions"]]
    merged = browser.text(".pairs.merged")
    assert all(str(value) in merged for name, value in told["merged"] if name in ("status", "dest", "origin"))
    card = "document.querySelector('#story-title').closest('section')"
    # The whole story, and no more.
    browser.look(1280, min(int(browser.evaluate(f"{card}.offsetHeight")) + 40, 1_400))
    browser.evaluate(f"{card}.scrollIntoView({{block: 'center'}})")
    picture(browser, folder, "page-key")


def check_hostile_text(browser: Chromium, evil: bytes) -> None:
    """Keys and broken records that are markup are shown as what they are."""
    flight = json.loads(evil)
    key = ",".join(f"{name}:{flight[name]}" for name in ("flight_date", "carrier", "flight", "origin"))
    look_up_by_keyboard(browser, key)
    assert "lives in" in browser.text(".verdict")
    assert CARRIER in browser.text(".pairs.merged")
    look_up_by_keyboard(browser, "no such <b>key</b>")
    assert "Not in the table" in browser.text(".verdict")


def test_the_page_shows_a_running_pipeline(running: FlightsTable, browser: Chromium, tmp_path: Path) -> None:
    evil, broken = evil_records()
    running.start(timeout_s=300.0)
    page = running.page()
    browser.look(1280, 800)
    browser.open(page)
    check_empty(browser)
    running.feed_slowly(1_000)
    running.send(evil)
    check_flowing(browser)
    check_looks(browser, tmp_path)
    running.send(broken)
    browser.until(f"document.querySelector('#letters').textContent.includes({json.dumps(broken.decode())})")
    running.stop_feeding()
    running.cli("flush", "--timeout", "240s")
    check_story(running, browser, tmp_path)
    check_hostile_text(browser, evil)
    check_ran_nothing_foreign(browser, page)
    check_fits(browser)
    running.cli("pause", "--reason", "an <i>upgrade</i>")
    state(browser, "paused")
    browser.until("document.querySelector('#warnings').innerText.includes('an <i>upgrade</i>')")
    running.cli("resume")
    state(browser, "running")
    assert running.stop() == 0
    state(browser, "lost")
    assert "Not connected since" in browser.text("#banner")
    assert browser.evaluate("window.pwned") is None


def test_states_that_a_pipeline_seldom_has(browser: Chromium, tmp_path: Path) -> None:
    world = PageWorld()
    world.dead_letters = letter(1, EVIL, EVIL, EVIL)
    world.status["coordinator"]["term"] = -1
    with world.served() as at:
        browser.look(1000, 800)
        browser.open(f"http://{at}")
        state(browser, "starting")
        coordinator = world.status["coordinator"]
        coordinator |= {"term": 1, "halted": f"epoch 2 was not written: {EVIL}", "blocked_epoch": 2}
        world.status["warnings"] = [StatusWarning(WarningKind.HALTED, f"halted: {coordinator['halted']}")]
        state(browser, "halted")
        browser.until("document.querySelector('#warnings').innerText.includes('tidemark epoch retry 2')")
        assert EVIL in browser.text("#warnings")
        assert EVIL in browser.text("#letters")
        check_fits(browser)
        assert browser.evaluate(ONE_SLOW_EPOCH) == [1, "11.5 s", "800 ms"]
        world.failing = KafkaError(f"no broker answers {EVIL}")
        browser.until("document.querySelector('#banner').innerText.includes('no broker answers')")
        world.failing = None
        browser.until("document.querySelector('#banner').hidden")
        assert browser.evaluate("window.pwned") is None
        assert browser.evaluate("document.querySelectorAll('main script, main img').length") == 0
    state(browser, "lost")
    assert "Not connected since" in browser.text("#banner")
