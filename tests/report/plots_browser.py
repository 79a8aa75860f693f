"""A report's first screen and its plots in a browser: values on pointing, zoom, curves, axes, downloads, contrast.

Usage: plots_browser.py PATH_OF_FP8LAB
"""

import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "browser"))
import harness  # noqa: E402
import readable  # noqa: E402

FP8LAB = sys.argv[1]
failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def fp8lab(*arguments):
    ran = subprocess.run([FP8LAB, *map(str, arguments)], capture_output=True, text=True)
    check(ran.returncode == 0, f"{arguments}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}")


def build(root):
    small = ["--set", "outlier.elements=256", "--set", "outlier.published_repeats=1"]
    fp8lab("run", "outlier", "format-asymmetry", "dynamic-range", "accumulator-drift", "recipes", "--quick", *small, "--out", root / "out")
    fp8lab("claims", "F1", "S12", "T5", "--out", root / "out")
    fp8lab("report", root / "out", "-o", root / "report.html")
    return root / "report.html"


def first_screen(opened):
    """Failures in pictures, remedies, claims by verdict; contents that stay in sight."""
    page = opened.page
    cards = page.locator(".card")
    check(cards.count() == 4, f"four failures: {cards.all_inner_texts()}")
    for text in cards.all_inner_texts():
        check("What to do." in text and any(c.isdigit() for c in text), f"a card has figures and advice: {text}")
    check(page.locator(".card .plot > svg").count() == 4, "each card has its plot")
    check(page.locator("table.remedies tbody tr").count() == 4, "a remedy for each failure")
    verdicts = page.locator("#claims summary").all_inner_texts()
    check(sum(int(v.split("(")[1].split(" ")[0]) for v in verdicts) == 3, f"every claim has a verdict: {verdicts}")
    check(page.locator("#claims dt").all_text_contents() != [], "claims are listed")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    box = page.locator("nav").bounding_box()
    check(box is not None and 0 <= box["y"] < 50, f"the contents stay in sight: {box}")
    page.evaluate("scrollTo(0, 0)")


def data_of(figure):
    return json.loads(figure.locator("script").text_content())


def curves(figure):
    return figure.locator(".plot > svg path.line").count()


def tick_texts(figure):
    return figure.locator(".plot > svg text").all_text_contents()


def download(page, button):
    with page.expect_download() as info:
        button.click()
    return info.value.suggested_filename, pathlib.Path(info.value.path()).read_text(encoding="utf-8")


def tool(figure, name):
    return figure.locator(".tools button", has_text=name)


def plot_of(page, section, name):
    for figure in page.locator(f"section.run:has(h2:has-text('{section}')) figure:has(script)").all():
        if data_of(figure)["name"] == name:
            figure.scroll_into_view_if_needed()
            return figure
    raise AssertionError(f"no plot {name}")


def interaction(opened):
    page = opened.page
    figure = plot_of(page, "outlier", "bulk_error_against_outlier")
    data = data_of(figure)
    total = len(data["series"])
    check(curves(figure) == total > 3, f"a curve a series: {curves(figure)} of {total}")
    check(figure.locator("path.band").count() > 0, "repeats are a band")
    # The table of the folder holds what the plot shows.
    name, text = download(page, tool(figure, "CSV"))
    check(name == "bulk_error_against_outlier.csv", name)
    rows = list(csv.reader(io.StringIO(text)))[1:]
    expected = [(s["label"], x, y) for s in data["series"] for x, y in zip(s["x"], s["y"]) if y is not None and x > 0 and y > 0]
    got = [(label, float(x), float(y)) for label, x, y in rows]
    check(got == expected, f"the CSV has every point: {len(got)} of {len(expected)}, {got[:2]} for {expected[:2]}")

    figure.locator(".legend button").first.click()
    check(curves(figure) == total - 1, "a curve goes on a press")
    rows = list(csv.reader(io.StringIO(download(page, tool(figure, "CSV"))[1])))[1:]
    check(data["series"][0]["label"] not in {row[0] for row in rows}, "and from the CSV")
    figure.locator(".legend button").first.click()
    check(curves(figure) == total, "and comes back")

    svg = figure.locator(".plot > svg")
    mark = svg.bounding_box()
    line = svg.locator("path.line").first.get_attribute("d")
    x, y = map(float, line[1:].split("L")[0].split(","))
    page.mouse.move(mark["x"] + x, mark["y"] + y)
    tip = figure.locator(".tip")
    check(tip.is_visible() and data["series"][0]["label"] in tip.inner_text(), f"pointing shows the value: {tip.inner_text()}")
    page.mouse.move(mark["x"] + 2, mark["y"] + 2)
    check(not tip.is_visible(), "nothing is shown where no point is")

    before = tick_texts(figure)
    page.mouse.move(mark["x"] + x + 200, mark["y"] + y - 60)
    page.mouse.down()
    page.mouse.move(mark["x"] + x - 20, mark["y"] + y + 40, steps=3)
    page.mouse.up()
    check(tick_texts(figure) != before, "dragging zooms")
    fewer = list(csv.reader(io.StringIO(download(page, tool(figure, "CSV"))[1])))[1:]
    check(0 < len(fewer) < len(expected), f"what is seen is what is saved: {len(fewer)} of {len(expected)}")
    tool(figure, "all of it").click()
    check(tick_texts(figure) == before, "and back")
    check(tool(figure, "log x").get_attribute("aria-pressed") == "true", "the axis is logarithmic")
    tool(figure, "log x").click()
    check(tick_texts(figure) != before and tool(figure, "log x").get_attribute("aria-pressed") == "false", "linear on a press")
    tool(figure, "log x").click()

    name, text = download(page, tool(figure, "SVG"))
    root = ElementTree.fromstring(text)
    lines = [e for e in root.iter() if e.tag.endswith("path") and "line" in e.get("class", "").split()]
    check(name.endswith(".svg") and len(lines) == total, f"the SVG has every curve: {len(lines)}")
    check(all(e.get("stroke", "").startswith("rgb") for e in lines), "and its colours")


CONTRAST = """() => {
    const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    return [...document.querySelectorAll("rect.cell + text")].map(text => {
        const [a, b] = [text, text.previousElementSibling].map(e => light(getComputedStyle(e).fill)).sort((p, q) => q - p);
        return (a + 0.05) / (b + 0.05);
    });
}"""


def heat_maps(opened):
    """Numbers that can be read on their colours, values on pointing, all of it as CSV, in dark mode too."""
    page = opened.page
    figure = plot_of(page, "recipes", "small_half_error")
    data = data_of(figure)
    cells = figure.locator("rect.cell")
    total = sum(text != "" for text in data["texts"])
    check(cells.count() == total == len(data["rows"]) * len(data["columns"]) > 20, f"a cell a value: {cells.count()} of {total}")
    shown = figure.locator("rect.cell + text").all_text_contents()
    check(sorted(shown) == sorted(data["texts"]), f"each with its number: {shown[:4]}")
    colours = {cell.evaluate("e => getComputedStyle(e).fill") for cell in cells.all()}
    check(len(colours) > 12, f"a few large cells leave colours to the others: {len(colours)}")
    check("larger cells have the last one" in figure.locator("p.quiet").inner_text(), "and the note says so")
    for dark in ("light", "dark"):
        page.emulate_media(color_scheme=dark)
        least = min(page.evaluate(CONTRAST))
        check(least >= 4.5, f"{dark}: contrast of the numbers is {least}")
    page.emulate_media(color_scheme="light")
    cells.first.hover(force=True)
    tip = figure.locator(".tip").inner_text()
    check(data["rows"][0] in tip and data["columns"][0] in tip, f"pointing says where and what: {tip}")
    name, text = download(page, tool(figure, "CSV"))
    rows = list(csv.reader(io.StringIO(text)))
    expected = [(row, column, data["values"][y * len(data["columns"]) + x]) for y, row in enumerate(data["rows"])
                for x, column in enumerate(data["columns"])]
    check(name == "small_half_error.csv" and [(r, c, float(v)) for r, c, v in rows[1:]] == expected, f"{name}: {rows[:3]}")
    root = ElementTree.fromstring(download(page, tool(figure, "SVG"))[1])
    check(sum(e.get("class") == "cell" for e in root.iter()) == total, "the SVG has every cell")


def colours_and_scales(opened):
    """Variants share a colour, the first curve is on top, powers are raised, x has its second scale."""
    page = opened.page
    figure = plot_of(page, "accumulator-drift", "error_against_k_uniform")
    series = data_of(figure)["series"]
    place = {s["label"].split(",")[0]: i for i, s in enumerate(series)}
    for name in ("sm90.wgmma.e4m3", "sequential14.rne"):
        got = series[place[f"{name}/128"]].get("colour", place[f"{name}/128"])
        check(got == series[place[name]].get("colour", place[name]), f"{name}: promoted in colour {got}")
    lines = figure.locator("path.line")
    classes = [line.get_attribute("class") for line in lines.all()]
    dashes = [line.get_attribute("stroke-dasharray") for line in figure.locator(".plot > svg path.line").all()]
    check(dashes[-2:] == ["8 5", "8 5"] and dashes[-3] == "none", f"dashed curves are drawn last: {dashes}")
    check(figure.locator(".plot > svg path.line").nth(len(series) - 3).get_attribute("class") == "line s0",
          f"and the first one just below them: {classes}")
    check(figure.locator(".legend sup").count() >= 6, "exponents are raised")
    figure = plot_of(page, "outlier", "bulk_error_against_outlier")
    texts = figure.locator(".plot > svg text").all_text_contents()
    check("in units of σ of the other elements" in texts, f"a second scale: {texts}")
    check("10²" in texts or "100" in texts, f"ticks: {texts}")
    check(not any("^" in text for text in page.locator("figcaption, .legend, #summary li").all_inner_texts()), "no caret is left")


def main():
    with tempfile.TemporaryDirectory() as folder, harness.browser() as chromium:
        path = build(pathlib.Path(folder))
        with harness.open_offline(chromium, path) as opened:
            first_screen(opened)
            interaction(opened)
            heat_maps(opened)
            colours_and_scales(opened)
            cut = readable.cut_on_paper(opened)
            check(not cut, f"cut on paper: {cut[:3]}")
            said = readable.faults(opened)
            check(not said, f"light: {said}")
            opened.require_clean()
        with harness.open_offline(chromium, path, dark=True) as opened:
            said = readable.faults(opened)
            check(not said, f"dark: {said}")
            opened.require_clean()
        with harness.open_offline(chromium, path, width=390, height=800) as opened:
            least = readable.smallest_text(opened)
            check(least[0] >= readable.LEAST_PIXELS, f"on a phone the smallest text has {least}")
            wide = opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            check(wide <= 0, f"on a phone {wide} pixels too wide")
            opened.require_clean()
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
