"""report.html in a real browser: it renders, what can be clicked works, it fits, and it can be read in the dark."""

import itertools
import shutil
import time

import pytest
from studies import add, add_film, describe

from cissl.report import text

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="needs a browser: install chromium and chromedriver (chromium-driver on Debian)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The report of a toy study, half done, of which one run diverged and one failed."""
    study = tmp_path_factory.mktemp("study") / "toy"
    describe(study, "toy", runs=["more"] * 14)
    for dataset, method, seed in itertools.product(("two-moons", "four-spins"), ("pi", "mean-teacher"), range(3)):
        error = (
            "diverged" if (method, seed) == ("pi", 2) else 0.1 + 0.05 * seed + 0.01 * (dataset == "two-moons") * seed
        )
        add_film(add(study, error, method, dataset, seed))
    add(study, "failed", "supervised")
    path = study / "report.html"
    path.write_text(text(study, "html")[0], encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server"):
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def opened(browser, page):
    """Opens the page at a width, in the light or in the dark."""

    def opens(width=1280, scheme="light"):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        browser.get(page.as_uri())
        wait(browser, "return document.documentElement.dataset.ready === 'yes'")
        return browser

    return opens


def wait(browser, condition, seconds=20):
    until = time.monotonic() + seconds
    while not browser.execute_script(condition):
        assert time.monotonic() < until, condition
        time.sleep(0.05)


def click(browser, selector):
    browser.execute_script("document.querySelector(arguments[0]).click()", selector)


def choose(browser, selector, value, event="change"):
    told = "const [s, v, e] = arguments, at = document.querySelector(s); at.value = v; at.dispatchEvent(new Event(e))"
    browser.execute_script(told, selector, value, event)


def lines(browser):
    return browser.execute_script("return document.querySelectorAll('#curves polyline').length")


def test_nothing_is_logged_and_nothing_is_loaded(opened):
    browser = opened()
    assert browser.get_log("browser") == []
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


@pytest.mark.parametrize("width", [1280, 400])
def test_it_fits(opened, width):
    browser = opened(width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    shown = "return [...document.querySelectorAll('#curves svg, canvas')].map((e) => e.getBoundingClientRect().width)"
    widths = browser.execute_script(shown)
    assert len(widths) > 4
    assert all(100 < w <= width for w in widths)


def test_curves_go_by_method_seed_and_network(opened):
    browser = opened()
    before = lines(browser)
    found = browser.find_elements("css selector", "#controls button[aria-pressed]")
    buttons = {button.text: button for button in found}
    buttons["Π model"].click()
    assert 0 < lines(browser) < before
    buttons["Π model"].click()
    assert lines(browser) == before
    buttons["Teacher"].click()
    assert lines(browser) > before
    assert browser.execute_script("return !!document.querySelector('#curves polyline[stroke-dasharray]')")
    with_teacher = lines(browser)
    buttons["0"].click()
    assert lines(browser) < with_teacher
    choose(browser, "#curves select", "supervised")
    labels = browser.execute_script("return [...document.querySelectorAll('#curves text')].map((t) => t.textContent)")
    assert "Loss, supervised" in labels


def test_what_is_under_the_pointer_is_told(opened):
    from selenium.webdriver import ActionChains

    browser = opened()
    chart = browser.find_element("css selector", "#recall circle")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", chart)
    ActionChains(browser).move_to_element(chart).perform()
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed()
    assert "recall" in tip.text
    assert "labeled samples" in tip.text


def test_another_setting_shows_another_data_set(opened):
    browser = opened()
    curve = "return document.querySelector('#curves polyline').getAttribute('points')"
    before = browser.execute_script(curve)
    assert browser.execute_script("return document.querySelectorAll('#setting option').length") == 2
    choose(browser, "#setting", "1")
    assert browser.execute_script(curve) != before


def test_the_slider_goes_through_the_steps(opened):
    browser = opened()
    wait(browser, "return [...document.querySelectorAll('canvas')].every((c) => c.dataset.step === '200')")
    # A pixel in the middle: unsure, so dark, at the first step, and sure at the last.
    pixel = "return [...document.querySelector('canvas').getContext('2d').getImageData(270, 30, 1, 1).data]"
    last = browser.execute_script(pixel)
    choose(browser, "#boundaries input", "0", "input")
    assert browser.execute_script("return document.querySelector('#boundaries output').value") == "0"
    assert browser.execute_script("return document.querySelector('canvas').dataset.step") == "0"
    first = browser.execute_script(pixel)
    assert sum(first[:3]) + 200 < sum(last[:3])
    click(browser, "#boundaries button")
    wait(browser, "return document.querySelector('canvas').dataset.step === '200'")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read(opened, scheme):
    """Contrast of each text with what is behind it, as WCAG computes it: at least 4.5."""
    browser = opened(scheme=scheme)
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 50
    assert [(text, round(ratio, 2)) for text, ratio in contrasts if ratio < 4.5] == []
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")


CONTRASTS = """
const channels = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (c) => { const s = c / 255; return s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; };
const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (colour.length === 3 || colour[3] > 0.99) return colour;
  }
  return [255, 255, 255];
};
const found = [];
for (const node of document.querySelectorAll("body *")) {
  const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  const style = getComputedStyle(node);
  if (!own || !node.getClientRects().length || ["SCRIPT", "STYLE", "OPTION"].includes(node.tagName)) continue;
  if (node.closest("button[aria-pressed='false'], .panels svg")) continue;  // switched off, or on a picture
  const ink = luminance(channels(node instanceof SVGElement ? style.fill : style.color));
  const paper = luminance(behind(node));
  found.push([node.textContent.trim().slice(0, 40), (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05)]);
}
return found;
"""
