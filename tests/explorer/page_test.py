#!/usr/bin/env python3
"""The explorer's page in a browser, from a file: it needs nothing else, says no error, and its
controls change its pictures, with the keyboard too.

usage: page_test.py EXPLORER_HTML
"""

import contextlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "browser"))
import colours  # noqa: E402
import harness  # noqa: E402
import readable  # noqa: E402
import saving  # noqa: E402


class Page:
    """An opened page and the checks on it that failed."""

    def __init__(self, opened: harness.Opened):
        self.failed: list[str] = []
        self.opened = opened
        self.page = opened.page
        self.page.wait_for_selector("html[data-ready=yes]", timeout=30000)
        self.settle()
        self.answered()

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

    def answered(self):
        """Long sums and traces come from another thread."""
        for name in ("accumulation", "scaling"):
            self.page.wait_for_selector(f"#{name}[aria-busy=false]", timeout=60000)

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
    p.settle()
    p.equal(p.page.get_attribute("#range-value", "aria-invalid"), "true", "a word in place of x")
    p.equal(p.text("#range-says"), "x: expected a number that binary32 holds, inf or nan, got 'four'", "what is said of a word")
    p.equal((p.count("#range-table tbody tr"), p.count("#range-figure .mark")), (0, 0), "rows and dots for a word")
    p.page.fill("#range-value", "1e400")
    p.settle()
    p.equal(p.text("#range-says"), "x: expected a number that binary32 holds, inf or nan, got '1e400'", "beyond binary32")
    p.choose("#range-profile", "nvidia_satfinite")
    p.page.click("#range-chips button:text-is('∞')")
    p.settle()
    p.check("E4M3 holds 448, its largest number; E5M2 holds" in p.text("#range-says"), f"what is said of ∞: {p.text('#range-says')}")
    p.equal(row(p, "e4m3fn")[2], "–", "∞ has no relative error")
    p.choose("#range-profile", "nvidia_nosat")
    p.check("largest near each x" in p.text("#range-figure"), "the caption says what the curve is")
    for key, fate in (("Home", "underflow to zero"), ("End", "becomes NaN")):
        p.keys("#range-slider", key)
        p.equal(row(p, "e4m3fn")[1], fate, f"E4M3 after {key} on the slider")
    before = p.page.input_value("#range-value")
    p.keys("#range-slider", "ArrowLeft")
    p.check(p.page.input_value("#range-value") != before, "an arrow key on the slider leaves x as it was")
    p.equal(p.count("#range-figure .mark"), 9, "dots, one a format")
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
    p.equal(p.count("#outlier-figure .mark.red.cross"), killed[2], "red crosses with one scale")
    p.keys("input[name=outlier-scope][value=tensor]", "ArrowRight")
    p.equal(p.count("#outlier-figure rect.dead"), 4, "regions of four tiles")
    tiled = figure(p, "tile-killed")
    p.equal(p.count("#outlier-figure .mark.red.cross"), tiled, "red crosses with tiles")
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
    p.page.fill("#outlier-position", "999")
    p.settle()
    p.equal(p.text("#outlier-says"), "Place: expected a whole number from 0 to 511, got '999'", "what is said of a bad place")
    p.equal((p.count("#outlier-table tbody tr"), p.count("#outlier-figure svg")), (0, 0), "the old answer")
    p.page.fill("#outlier-position", "200")
    p.settle()
    p.check(p.count("#outlier-table tbody tr") > 5, "a good place brings the table back")


def error(p: Page, which: str) -> float:
    return float(p.page.get_attribute("#accumulation-says", f"data-{which}"))


def check_accumulation(p: Page):
    p.equal(p.count("#sum-figure path.line"), 3, "running sums")
    plain = error(p, "plain")
    p.check(error(p, "promoted") < plain / 10, f"promotion helps at K = 4096: {plain}, {error(p, 'promoted')}")
    p.keys("#accumulation-k", "End")
    p.answered()
    p.equal(p.text("#accumulation-shown"), "32768", "K after End")
    p.check(error(p, "plain") > plain, "the error grows with K")
    p.equal(p.count("#error-figure .mark.red.dot"), 11, "lengths from 32 to 32768")
    p.choose("#accumulation-promotion", "0")
    p.answered()
    p.equal(p.count("#sum-figure path.line"), 2, "running sums without promotion")
    p.choose("#accumulation-model", "sm100.mma.e4m3")
    p.answered()
    p.check("sm100.mma.e4m3" in p.text("#accumulation-says"), "the sentence names the model")
    p.check(error(p, "plain") < plain, "Blackwell's accumulator is better than Hopper's")
    before = p.page.inner_html("#sum-figure")
    p.choose("#accumulation-distribution", "normal")
    p.answered()
    p.check(p.page.inner_html("#sum-figure") != before, "other inputs, the same picture")


    p.choose("#accumulation-distribution", "ones")
    p.choose("#accumulation-model", "sm90.wgmma.e4m3")
    p.keys("#accumulation-k", "End")
    p.answered()
    p.check("sticks at 10 717" in plain_spaces(p.text("#accumulation-says")), f"ones scaled to 448: {p.text('#accumulation-says')}")
    p.choose("#accumulation-scaling", "none")
    p.answered()
    p.check("sticks at 16 384" in plain_spaces(p.text("#accumulation-says")), f"ones as code 1.0: {p.text('#accumulation-says')}")
    p.choose("#accumulation-scaling", "amax")
    p.choose("#accumulation-distribution", "uniform")
    p.choose("#accumulation-model", "sm89.mma.e5m2.f16")
    p.answered()
    says = plain_spaces(p.text("#accumulation-says"))
    p.check("no numbers any more" in says and "f16 sums, of at most 65 504" in says, f"sums beyond FP16: {says}")


def plain_spaces(text: str) -> str:
    return text.replace("\u202f", " ")


def check_long_sum(p: Page):
    """While a sum of many terms is under way the page answers other questions."""
    p.choose("#accumulation-promotion", "128")
    p.keys("#accumulation-k", "End")
    p.answered()
    p.page.select_option("#accumulation-model", "sequential14.rne")
    p.page.wait_for_selector("#accumulation[aria-busy=true]")
    p.page.fill("#range-value", "0.7")
    p.settle()
    busy = p.page.get_attribute("#accumulation", "aria-busy")
    p.check(p.text("#range-says").startswith("For x = 0.7 "), "another picture waits for the long sum")
    p.equal(busy, "true", "the long sum was over before another picture was drawn: busy")
    # Of several questions the last one counts.
    for key in ("Home", "ArrowRight"):
        p.keys("#accumulation-k", key)
    p.answered()
    p.equal((p.text("#accumulation-shown"), p.count("#error-figure .mark.red.dot")), ("64", 2), "the newest question's answer")
    p.check("sequential14.rne" in p.text("#accumulation-says"), "and its model")


def check_step(p: Page):
    p.equal(p.count("#step-figure path.strike"), 20, "digits that Hopper drops")
    p.equal(p.page.get_attribute("#step-says", "data-bits"), "0x47800400", "bits of the step")
    p.check("3.25 is lost" in p.text("#step-says"), f"what is lost: {p.text('#step-says')}")
    for unit, bits, stages in (("exact", "0x478005a0", 1), ("sm100.mma.e4m3", "0x478005a0", 2), ("sequential14.rz", "0x47800000", 4),
                               ("gfx942.mfma.fp8", "0x47610b40", 1)):
        p.choose("#step-model", unit)
        p.check(p.page.get_attribute("#step-says", "data-bits") == bits and p.count("#step-figure > svg > svg") == stages,
                f"{unit}: expected {bits} in {stages} stages, got {p.text('#step-says')} in {p.count('#step-figure > svg > svg')}")
    p.page.fill("#step-own", "fused:terms=2,F=16")
    p.settle()
    p.equal(p.count("#step-figure > svg > svg"), 2, "steps of two terms")
    for field, text, message in (("step-own", "fused:F=99", "alignment_fraction_bits"), ("step-a", "256 13 x", "a, number 3: expected a finite number, got 'x'"),
                                 ("step-c", "", "c: expected a finite number, got ''")):
        before = p.page.input_value(f"#{field}")
        p.page.fill(f"#{field}", text)
        p.settle()
        p.check(message in p.text("#step-says"), f"{field} = '{text}': {p.text('#step-says')}")
        p.equal((p.count("#step-table tbody tr"), p.page.get_attribute(f"#{field}", "aria-invalid")), (0, "true"), f"a bad {field}")
        p.page.fill(f"#{field}", before)
    p.choose("#step-model", "sm90.wgmma.e4m3")


def halvings(p: Page) -> int:
    p.settle()
    p.answered()
    return int(p.page.get_attribute("#scaling-says", "data-halvings"))


def check_scaling(p: Page):
    before = halvings(p)
    p.check(before > 2, f"spikes halve mu: {before}")
    p.choose("#scaling-growth", "none")
    p.check(0 < halvings(p) < before, "without growth mu halves less often")
    p.choose("#scaling-growth", "exponential")
    p.choose("#scaling-trace", "own")
    p.page.fill("#scaling-own", "1 1000 1 1")
    p.equal(halvings(p), 1, "halvings after one spike")
    p.page.fill("#scaling-own", "1 2 zero")
    p.page.wait_for_selector("#scaling-says.bad")
    p.equal(p.text("#scaling-says"), "trace, number 3: expected a finite number, got 'zero'", "a bad trace")
    p.equal(p.count("#mu-figure svg"), 0, "pictures of a bad trace")
    p.choose("#scaling-trace", "drift")
    p.equal(halvings(p), before, "halvings of the first trace again")


def check_keyboard(p: Page):
    """Tab alone reaches every control."""
    p.page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(120):
        p.page.keyboard.press("Tab")
        reached.add(p.page.evaluate("document.activeElement.id || document.activeElement.name || ''"))
    wanted = set(p.page.evaluate(
        "[...document.querySelectorAll('main input:not([type=hidden], :disabled), main select, main button[id]')].filter(e => e.getClientRects().length).map(e => e.id || e.name)"))
    p.check(wanted <= reached, f"Tab does not reach {sorted(wanted - reached)}")


def main() -> int:
    path = pathlib.Path(sys.argv[1])
    if not path.exists():
        harness.skip(f"{path} was not found")
    wrong = [f"colours: {text}" for text in colours.faults(path.read_text(encoding="utf-8"))]
    with harness.browser() as chromium:
        @contextlib.contextmanager
        def open_again(address):
            with harness.open_offline(chromium, path, width=1100, height=900) as opened:
                opened.page.goto("about:blank")
                opened.page.goto(address)
                yield Page(opened)

        with harness.open_offline(chromium, path, width=1100, height=900) as opened:
            page = Page(opened)
            saving.check_files(page)
            saving.check_tables(page)
            page.failed += [f"light: {text}" for text in readable.faults(opened)]
            for check in (check_range, check_outlier, check_accumulation, check_long_sum, check_step, check_scaling, check_keyboard):
                check(page)
            saving.check_link(page, open_again)
            page.failed += [f"on paper: {text}" for text in readable.cut_on_paper(opened)]
            light = page.page.evaluate("getComputedStyle(document.body).backgroundColor")
            wrong += page.wrong
        with harness.open_offline(chromium, path, dark=True, width=360, height=740) as opened:
            phone = Page(opened)
            phone.check(phone.page.evaluate("document.documentElement.scrollWidth <= innerWidth"),
                        "the page is wider than a phone")
            size, text = readable.smallest_text(opened)
            phone.check(size >= readable.LEAST_PIXELS, f"on a phone '{text}' has {size} pixels")
            phone.failed += [f"dark: {text}" for text in readable.faults(opened)]
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
