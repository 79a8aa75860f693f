#!/usr/bin/env python3
"""The explorer's page in a browser, from a file: it needs nothing else, says no error, and its
controls change its pictures, with the keyboard too.

usage: page_test.py EXPLORER_HTML
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "browser"))
import harness  # noqa: E402


class Page:
    """An opened page and the checks on it that failed."""

    def __init__(self, opened: harness.Opened):
        self.failed: list[str] = []
        self.opened = opened
        self.page = opened.page
        self.page.wait_for_selector("html[data-ready=yes]", timeout=30000)
        self.settle()

    @property
    def wrong(self) -> list[str]:
        """What the page itself did wrong, and the checks that failed."""
        errors = [f"error: {text}" for text in self.opened.errors]
        requests = [f"request: {url}" for url in self.opened.requests]
        return errors + requests + self.failed

    def check(self, holds: bool, what: str):
        if not holds:
            self.failed.append(what)

    def equal(self, got, expected, what: str):
        self.check(got == expected, f"{what}: expected {expected!r}, got {got!r}")

    def settle(self):
        """Drawing happens in the next frame."""
        self.page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def keys(self, selector: str, *names: str):
        self.page.focus(selector)
        for name in names:
            self.page.keyboard.press(name)
        self.settle()

    def choose(self, selector: str, value: str):
        self.page.select_option(selector, value)
        self.settle()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()


def row(p: Page, name: str) -> list[str]:
    return p.page.locator(f"tr[data-format={name}] td").all_inner_texts()


def check_range(p: Page):
    p.page.click("#range-chips button:text-is('465')")
    p.settle()
    value, fate, _, code = row(p, "e4m3fn")
    p.equal([value, fate, code], ["448", "saturated", "0x7e"], "E4M3 of 465, saturating")
    p.choose("#range-profile", "nvidia_nosat")
    p.equal(row(p, "e4m3fn")[1], "becomes NaN", "E4M3 of 465, not saturating")
    p.page.fill("#range-value", "464")
    p.settle()
    p.equal(row(p, "e4m3fn")[:2], ["448", "rounded, a tie"], "E4M3 of 464")
    p.page.fill("#range-value", "four")
    p.equal(p.page.get_attribute("#range-value", "aria-invalid"), "true", "a word in place of x")
    for key, fate in (("Home", "underflow to zero"), ("End", "becomes NaN")):
        p.keys("#range-slider", key)
        p.equal(row(p, "e4m3fn")[1], fate, f"E4M3 after {key} on the slider")
    before = p.page.input_value("#range-value")
    p.keys("#range-slider", "ArrowLeft")
    p.check(p.page.input_value("#range-value") != before, "an arrow key on the slider leaves x as it was")
    p.equal(p.count("#range-figure circle"), 9, "dots, one a format")
    p.equal(p.count("#range-figure path.line"), 3, "error curves")
    box = p.page.locator("#range-figure svg").bounding_box()
    p.page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 30)
    p.settle()
    p.check(p.page.input_value("#range-value") != before, "a click in the picture leaves x as it was")


def figure(p: Page, name: str) -> float:
    return float(p.text(f"td[data-figure={name}]").split()[0])


def check_outlier(p: Page):
    killed = []
    for keys in (("Home",), ("PageUp",) * 5, ("End",)):
        p.keys("#outlier-slider", *keys)
        killed.append(figure(p, "tensor-killed"))
    p.check(killed[0] < killed[1] < killed[2], f"a larger outlier kills more: {killed}")
    p.equal(p.count("#outlier-figure rect.dead"), 1, "regions of one scale")
    p.equal(p.count("#outlier-figure circle.red"), killed[2], "red dots with one scale")
    p.keys("input[name=outlier-scope][value=tensor]", "ArrowRight")
    p.equal(p.count("#outlier-figure rect.dead"), 4, "regions of four tiles")
    tiled = figure(p, "tile-killed")
    p.equal(p.count("#outlier-figure circle.red"), tiled, "red dots with tiles")
    p.check(0 < tiled <= 127, f"the tile of the outlier has 127 others, killed {tiled}")
    p.choose("#outlier-tile", "32")
    p.equal(p.count("#outlier-figure rect.dead"), 16, "regions of sixteen tiles")
    p.check(figure(p, "tile-killed") <= 31, "a tile of 32 has 31 others")
    p.choose("#outlier-recipe", "naive")
    p.equal(figure(p, "tensor-saturated_percent"), round(100 / 512, 3), "without a scale the outlier saturates")
    p.choose("#outlier-recipe", "te-current")
    errors = []
    for name in ("e4m3fn", "e5m2"):
        p.choose("#outlier-format", name)
        errors.append(p.text("td[data-figure=tensor-bulk_relative_l2]"))
    p.check(errors[0] != errors[1], f"the format changes the error: {errors}")
    before = p.text("#outlier-table tbody")
    p.page.click("#outlier-seed")
    p.settle()
    p.check(p.text("#outlier-table tbody") != before, "another draw has the same figures")


def error(p: Page, which: str) -> float:
    return float(p.page.get_attribute("#accumulation-says", f"data-{which}"))


def check_accumulation(p: Page):
    p.equal(p.count("#sum-figure path.line"), 3, "running sums")
    plain = error(p, "plain")
    p.check(error(p, "promoted") < plain / 10, f"promotion helps at K = 4096: {plain}, {error(p, 'promoted')}")
    p.keys("#accumulation-k", "End")
    p.equal(p.text("#accumulation-shown"), "32768", "K after End")
    p.check(error(p, "plain") > plain, "the error grows with K")
    p.equal(p.count("#error-figure circle.red"), 11, "lengths from 32 to 32768")
    p.choose("#accumulation-promotion", "0")
    p.equal(p.count("#sum-figure path.line"), 2, "running sums without promotion")
    p.choose("#accumulation-model", "sm100.mma.e4m3")
    p.check("sm100.mma.e4m3" in p.text("#accumulation-says"), "the sentence names the model")
    p.check(error(p, "plain") < plain, "Blackwell's accumulator is better than Hopper's")
    before = p.page.inner_html("#sum-figure")
    p.choose("#accumulation-distribution", "normal")
    p.check(p.page.inner_html("#sum-figure") != before, "other inputs, the same picture")


def check_keyboard(p: Page):
    """Tab alone reaches every control."""
    p.page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(60):
        p.page.keyboard.press("Tab")
        reached.add(p.page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    wanted = set(p.page.evaluate(
        "[...document.querySelectorAll('main input, main select, main button[id]')].map(e => e.id || e.name)"))
    p.check(wanted <= reached, f"Tab does not reach {sorted(wanted - reached)}")


def main() -> int:
    path = pathlib.Path(sys.argv[1])
    if not path.exists():
        harness.skip(f"{path} was not found")
    with harness.browser() as chromium:
        with harness.open_offline(chromium, path, width=1100, height=900) as opened:
            page = Page(opened)
            for check in (check_range, check_outlier, check_accumulation, check_keyboard):
                check(page)
            light = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
            wrong = page.wrong
        with harness.open_offline(chromium, path, dark=True, width=360, height=740) as opened:
            phone = Page(opened)
            phone.check(phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth"),
                        "the page is wider than a phone")
            dark = phone.page.evaluate("getComputedStyle(document.body).backgroundColor")
            phone.check(light != dark, f"light and dark have the same background, {light}")
            wrong += phone.wrong
        if harness.runs_foreign_scripts(chromium, path):
            wrong.append("the policy lets foreign scripts in")
    for text in wrong[:20]:
        print(text)
    print(f"{len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
