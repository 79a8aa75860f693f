"""A report's first screen and its plots in a browser: values on pointing, zoom, curves, axes, downloads, contrast.

Usage: plots_browser.py PATH_OF_FP8LAB
"""

import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / folder) for folder in ("browser", "experiment", "explorer")]
import colours  # noqa: E402
import harness  # noqa: E402
import kept_tables  # noqa: E402
import readable  # noqa: E402

FP8LAB = sys.argv[1]
failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def fp8lab(*arguments, **environment):
    ran = subprocess.run([FP8LAB, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment})
    check(ran.returncode == 0, f"{arguments}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}")


def build(root):
    """A page of five experiments. A page needs no files of plots: those of one experiment are drawn."""
    fp8lab("run", "outlier", "--quick", "--set", "elements=256", "--set", "published_repeats=1", "--out", root / "out")
    small = ["accumulator-drift.fit_repeats=2", "accumulator-drift.running_sum_k=4096", "recipes.repeats=2"]
    fp8lab("run", "format-asymmetry", "dynamic-range", "accumulator-drift", "recipes", "--quick", "--out", root / "out",
           *(word for setting in small for word in ("--set", setting)), **kept_tables.UNDRAWN)
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
    for card in cards.all():
        drawn(card)
    check(page.locator(".card .picture svg").count() == 4, "each card has its plot")
    order = page.evaluate("[...document.querySelectorAll('#failures, #claims, nav, #summary')].map(e => e.id || e.tagName)")
    check(order == ["failures", "claims", "NAV", "summary"], f"failures, claims, contents: {order}")
    check(page.locator("main section").first.get_attribute("id") == "claims", "the claims are the first section")
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


def drawn(figure):
    """Scrolls to a figure and waits until it is drawn."""
    figure.scroll_into_view_if_needed()
    figure.locator(".picture svg").wait_for()
    return figure


def points_of(spec):
    """The values of a plot by series: (label, x, y)."""
    labels = spec["usermeta"]["labels"]
    values = sorted(spec["data"]["values"], key=lambda one: one["series"])
    return [(labels[one["series"]], x, y) for one in values for x, y in zip(one["x"], one["y"])]


def curves(figure):
    """Curves that have a point."""
    paths = figure.locator(".picture svg .mark-line.role-mark path").all()
    return sum("L" in (path.get_attribute("d") or "") for path in paths)


def tick_texts(figure):
    return figure.locator(".picture svg .role-axis-label text").all_text_contents()


def until(page, holds, what):
    """Pictures follow within a second or so."""
    for _ in range(60):
        if holds():
            return
        page.wait_for_timeout(100)
    check(False, what)


def download(page, button):
    with page.expect_download() as info:
        button.click()
    return info.value.suggested_filename, pathlib.Path(info.value.path()).read_text(encoding="utf-8")


def tool(figure, name):
    return figure.locator(".tools button", has_text=name)


def plot_of(page, section, name):
    for figure in page.locator(f"section.run:has(h2:has-text('{section}')) figure:has(script)").all():
        if data_of(figure)["name"] == name:
            return drawn(figure)
    raise AssertionError(f"no plot {name}")


def legend_keys(page, figure, labels):
    """The legend is reached with Tab; Enter and the space bar do what a press does."""
    tool(figure, "SVG").focus()  # the last one after the picture
    for _ in range(40):
        page.keyboard.press("Shift+Tab")
        if page.evaluate("document.activeElement.matches('.role-legend-label text')"):
            break
    chosen = page.evaluate("document.activeElement.textContent")
    check(chosen in labels, f"a key reaches the legend: {chosen}")
    pressed = "document.activeElement.getAttribute('aria-pressed')"
    check(page.evaluate(pressed) == "false", "no series is chosen")
    page.keyboard.press("Enter")
    until(page, lambda: curves(figure) == 1, f"Enter shows a series alone: {curves(figure)}")
    check(page.evaluate(pressed) == "true", "and says so")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Space")
    until(page, lambda: curves(figure) == 2, f"the space bar adds another: {curves(figure)}")
    page.keyboard.press("Space")
    until(page, lambda: curves(figure) == 1, f"and takes it away: {curves(figure)}")
    tool(figure, "all of it").click()
    until(page, lambda: curves(figure) == len(labels), "all come back from keys")


def interaction(opened):
    page = opened.page
    figure = plot_of(page, "outlier", "bulk_error_against_outlier")
    spec = data_of(figure)
    labels = spec["usermeta"]["labels"]
    total = len(labels)
    check(curves(figure) == total > 3, f"a curve a series: {curves(figure)} of {total}")
    check(figure.locator(".picture svg .mark-area path").count() > 0, "repeats are a band")
    # The table of the folder holds what the plot shows.
    name, text = download(page, tool(figure, "CSV"))
    check(name == "bulk_error_against_outlier.csv", name)
    rows = list(csv.reader(io.StringIO(text)))[1:]
    expected = [(label, x, y) for label, x, y in points_of(spec) if y is not None and x > 0 and y > 0]
    got = [(label, float(x), float(y)) for label, x, y in rows]
    check(got == expected, f"the CSV has every point: {len(got)} of {len(expected)}, {got[:2]} for {expected[:2]}")

    def press(label):
        entry = figure.locator(".picture svg .role-legend-label text", has_text=re.compile(f"^{re.escape(label)}$"))
        entry.click(force=True)

    press(labels[0])
    until(page, lambda: curves(figure) == 1, f"a series alone on a press: {curves(figure)}")
    rows = list(csv.reader(io.StringIO(download(page, tool(figure, "CSV"))[1])))[1:]
    check({row[0] for row in rows} == {labels[0]}, "and alone in the CSV")
    press(labels[1])
    until(page, lambda: curves(figure) == 2, f"and another one: {curves(figure)}")
    tool(figure, "all of it").click()
    until(page, lambda: curves(figure) == total, "all come back")
    legend_keys(page, figure, labels)

    # The first marks are those of the pointer's layer, a ring a point.
    ring = figure.locator(".picture svg .mark-symbol.role-mark path").nth(20)
    box = ring.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tip = page.locator("#vg-tooltip-element")
    until(page, tip.is_visible, "pointing shows a value")
    words = tip.inner_text()
    check(any(label in words for label in labels) and spec["usermeta"]["y"] in words and any(c.isdigit() for c in words), f"and what it is of: {words}")
    page.mouse.move(5, 5)
    until(page, lambda: not tip.is_visible(), "nothing is shown where no point is")

    before = tick_texts(figure)
    tool(figure, "zoom in").click()
    until(page, lambda: tick_texts(figure) != before, "a press zooms")
    fewer = list(csv.reader(io.StringIO(download(page, tool(figure, "CSV"))[1])))[1:]
    check(0 < len(fewer) < len(expected), f"what is seen is what is saved: {len(fewer)} of {len(expected)}")
    tool(figure, "all of it").click()
    until(page, lambda: tick_texts(figure) == before, "and back")
    middle = figure.locator(".picture").bounding_box()
    page.mouse.move(middle["x"] + middle["width"] / 2, middle["y"] + 150)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(page, lambda: tick_texts(figure) != before, "Ctrl and the wheel zoom")
    zoomed = tick_texts(figure)
    page.mouse.down()
    page.mouse.move(middle["x"] + middle["width"] / 2 + 120, middle["y"] + 220, steps=4)
    page.mouse.up()
    until(page, lambda: tick_texts(figure) != zoomed, "dragging moves")
    tool(figure, "all of it").click()
    until(page, lambda: tick_texts(figure) == before, "and back again")
    check(tool(figure, "log x").get_attribute("aria-pressed") == "true", "the axis is logarithmic")
    tool(figure, "log x").click()
    until(page, lambda: tick_texts(figure) != before, "linear on a press")
    check(tool(figure, "log x").get_attribute("aria-pressed") == "false", "and the button says so")
    check("values ≤ 0" not in figure.locator("p.quiet").all_inner_texts(), "an axis that shows all has no note")
    tool(figure, "log y").click()
    until(page, lambda: tool(figure, "log y").get_attribute("aria-pressed") == "false", "both are linear")
    tool(figure, "all of it").click()
    until(page, lambda: tick_texts(figure) == before, "all of it brings the axes back")
    check([tool(figure, f"log {axis}").get_attribute("aria-pressed") for axis in "xy"] == ["true", "true"], "and their buttons say so")

    name, text = download(page, tool(figure, "SVG"))
    root = ElementTree.fromstring(text)
    lines = [path for group in root.iter() if {"mark-line", "role-mark"} <= set((group.get("class") or "").split())
             for path in group.iter() if path.tag.endswith("path")]
    check(name.endswith(".svg") and len(lines) == total, f"the SVG has every curve: {len(lines)}")
    check(all((path.get("stroke") or "").startswith("#") for path in lines), "and its colours")


CONTRAST = """() => {
    const light = text => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const all = [];
    for (const figure of document.querySelectorAll("figure.wide")) {
        const cells = [...figure.querySelectorAll(".mark-rect.role-mark path")];
        for (const text of figure.querySelectorAll(".mark-text.role-mark text")) {
            const box = text.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            const cell = cells.find(one => {
                const room = one.getBoundingClientRect();
                return room.left <= x && x <= room.right && room.top <= y && y <= room.bottom;
            });
            const [a, b] = [text, cell].map(e => light(getComputedStyle(e).fill)).sort((p, q) => q - p);
            all.push((a + 0.05) / (b + 0.05));
        }
    }
    return all;
}"""


def heat_maps(opened):
    """Numbers that can be read on their colours, values on pointing, all of it as CSV, in dark mode too."""
    page = opened.page
    figure = plot_of(page, "recipes", "small_half_error")
    spec = data_of(figure)
    columns, labels = spec["usermeta"]["columns"], spec["usermeta"]["rows"]
    expected = [(labels[row["row"]], columns[column], value, text) for row in spec["data"]["values"]
                for column, value, text in zip(row["column"], row["value"], row["text"])]
    cells = figure.locator(".mark-rect.role-mark path")
    check(cells.count() == len(expected) == len(labels) * len(columns) > 20, f"a cell a value: {cells.count()} of {len(expected)}")
    shown = figure.locator(".mark-text.role-mark text").all_text_contents()
    check(sorted(shown) == sorted(text for *_, text in expected), f"each with its number: {shown[:4]}")
    colours = {cell.evaluate("e => getComputedStyle(e).fill") for cell in cells.all()}
    check(len(colours) > 12, f"a few large cells leave colours to the others: {len(colours)}")
    check("larger cells have the last one" in figure.locator("p.quiet").inner_text(), "and the note says so")
    for dark in ("light", "dark"):
        page.emulate_media(color_scheme=dark)
        page.wait_for_timeout(1000)
        contrasts = page.evaluate(CONTRAST)
        check(len(contrasts) >= len(expected) and min(contrasts) >= 4.5, f"{dark}: contrast of the numbers is {min(contrasts)}")
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(500)
    cells.first.hover(force=True, position={"x": 20, "y": 14})
    tip = page.locator("#vg-tooltip-element")
    until(page, tip.is_visible, "pointing shows a value")
    words = tip.inner_text()
    check(expected[0][0] in words and expected[0][1] in words, f"pointing says where and what: {words}")
    page.mouse.move(5, 5)
    name, text = download(page, tool(figure, "CSV"))
    rows = list(csv.reader(io.StringIO(text)))
    check(name == "small_half_error.csv" and [(r, c, float(v)) for r, c, v in rows[1:]] == [one[:3] for one in expected],
          f"{name}: {rows[:3]}")
    root = ElementTree.fromstring(download(page, tool(figure, "SVG"))[1])
    groups = [e for e in root.iter() if {"mark-rect", "role-mark"} <= set((e.get("class") or "").split())]
    check(sum(e.tag.endswith("path") for group in groups for e in group.iter()) == len(expected), "the SVG has every cell")


def colours_and_scales(opened):
    """Variants share a colour, the first curve is on top, powers are raised, x has its second scale."""
    page = opened.page
    figure = plot_of(page, "accumulator-drift", "error_against_k_uniform")
    spec = data_of(figure)
    labels = spec["usermeta"]["labels"]
    place = {label.split(",")[0]: i for i, label in enumerate(labels)}
    looks = next(layer["encoding"] for layer in spec["layer"] if layer["mark"]["type"] == "line")
    colours = looks["color"]["scale"]["range"]
    for name in ("sm90.wgmma.e4m3", "sequential14.rne"):
        check(colours[place[f"{name}/128"]] == colours[place[name]], f"{name}: promoted in colour {colours}")
    strokes = [(line.get_attribute("stroke"), line.get_attribute("stroke-dasharray"))
               for line in figure.locator(".picture svg .mark-line.role-mark path").all()]
    check([dash for _, dash in strokes[-2:]] == ["8,5", "8,5"] and strokes[-3][1] in ("1,0", None), f"dashed curves are drawn last: {strokes}")
    check(strokes[-3][0].lower() == colours[0].lower(), f"and the first one just below them: {strokes}")
    raised = figure.locator(".picture svg .role-legend-label text").all_text_contents()
    check(sum("K¹" in text or "K⁰" in text or "K⁻" in text for text in raised) >= 6, f"exponents are raised: {raised}")
    figure = plot_of(page, "outlier", "bulk_error_against_outlier")
    texts = figure.locator(".picture svg text").all_text_contents()
    check("in units of σ of the other elements" in texts, f"a second scale: {texts}")
    check("10²" in texts, f"ticks: {texts}")
    check(upper_ticks(figure) and all(abs(place - unit * 0.4) <= 0.02 * place for place, unit in upper_ticks(figure)),
          f"it divides by σ: {upper_ticks(figure)}")
    tool(figure, "log x").click()
    until(page, lambda: tool(figure, "log x").get_attribute("aria-pressed") == "false", "x is linear")
    page.wait_for_timeout(300)
    linear = upper_ticks(figure)
    check(len(linear) > 2 and all(abs(place - unit * 0.4) <= 0.02 * place for place, unit in linear if unit > 0),
          f"it divides by σ on a linear axis too: {linear}")
    tool(figure, "all of it").click()
    check(not any("^" in text for text in page.locator("figcaption, .picture svg text, #summary li").all_text_contents()), "no caret is left")


def upper_ticks(figure):
    """(x, number) of each label of the axis at the top: the x at its place, and what it says."""
    return figure.evaluate("""figure => {
        const plot = Plot.all.find(one => figure.contains(one.box));
        const number = text => {
            const raised = {"⁻": "-", "⁰": 0, "¹": 1, "²": 2, "³": 3, "⁴": 4, "⁵": 5, "⁶": 6, "⁷": 7, "⁸": 8, "⁹": 9};
            const power = text.match(/^10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)$/);
            return power ? 10 ** Number([...power[1]].map(c => raised[c]).join("")) : Number(text.replaceAll(",", "").replace("−", "-"));
        };
        const axes = [...figure.querySelectorAll(".picture svg .role-axis")]
            .filter(axis => [...axis.querySelectorAll("text")].some(text => text.textContent.includes("units of σ")));
        const frame = figure.querySelector(".picture svg .role-frame .background").getBoundingClientRect();
        return axes.flatMap(axis => [...axis.querySelectorAll(".role-axis-label text")].filter(text => text.textContent).map(text => {
            const box = text.getBoundingClientRect();
            return [plot.view.scale("x").invert(box.x + box.width / 2 - frame.x), number(text.textContent)];
        }));
    }""")


def zeros(opened):
    """What a log axis leaves out is said, and a band that begins at zero begins at the lower edge."""
    figure = plot_of(opened.page, "outlier", "crushed_share_against_outlier")
    spec = data_of(figure)
    gone = sum(y is not None and y <= 0 for one in spec["data"]["values"] for y in one["y"])
    check(gone > 0 and f"{gone} values ≤ 0 left out" in figure.locator("p.quiet").inner_text(),
          f"{gone} zeros: {figure.locator('p.quiet').all_inner_texts()}")
    steep = figure.evaluate("""figure => {
        const bands = [...figure.querySelectorAll(".picture svg .mark-area path")].map(path => path.getAttribute("d"));
        return bands.filter(Boolean).map(band => {
            const points = band.match(/-?[\\d.]+,-?[\\d.]+/g).map(point => point.split(",").map(Number));
            const left = Math.min(...points.map(([x]) => x));
            const ys = points.filter(([x]) => Math.abs(x - left) < 0.01).map(([, y]) => y);
            return Math.max(...ys) - Math.min(...ys);
        });
    }""")
    check(len(steep) > 2 and max(steep) < 2, f"bands begin with a vertical edge of {steep} pixels")


def whole_labels(opened):
    """No text of a picture is cut."""
    for figure in opened.page.locator("figure:has(script)").all():
        drawn(figure)
    texts = opened.page.locator(".picture svg text").all_text_contents()
    check(len(texts) > 500, f"texts of pictures: {len(texts)}")
    cut = [text for text in texts if text.endswith("…")]
    check(not cut, f"cut: {cut[:5]}")
    planted = opened.page.evaluate("measured('E4M3 (OCP), saturating') > measured('e4m3 (ocp), saturating')")
    check(planted, "capitals are measured as capitals")


def told_apart(root):
    """Two curves of a plot differ in colour, also for people who see no green, or in mark or dash."""
    found, compared = [], 0
    places = {}
    for path in sorted((root / "out").glob("*/*.json")):
        spec = json.loads(path.read_text(encoding="utf-8"))
        looks = [layer["encoding"] for layer in spec.get("layer", []) if "strokeDash" in layer.get("encoding", {})]
        if not looks:
            continue
        marks = [layer["encoding"]["shape"]["scale"]["range"] for layer in spec["layer"] if "shape" in layer["encoding"]]
        shades, dashes = (looks[0][channel]["scale"]["range"] for channel in ("color", "strokeDash"))
        shapes = marks[0] if marks else [""] * len(shades)
        labels = spec["usermeta"]["labels"]
        for i, label in enumerate(labels):
            places.setdefault((path.parent.name, label), set()).add(shades[i])
            for j in range(i):
                compared += 1
                differ = dashes[i] != dashes[j] or shapes[i] != shapes[j]
                if not differ and colours.distance(shades[i], shades[j]) < 11:
                    found.append(f"{path.name}: '{labels[j]}' and '{label}' are {shades[j]} and {shades[i]}")
                if not differ and shades[i] == shades[j]:
                    found.append(f"{path.name}: '{labels[j]}' and '{label}' look the same")
    check(compared > 50 and not found, f"of {compared} pairs: {found[:3]}")
    changed = {key: seen for key, seen in places.items() if len(seen) > 1}
    check(len(places) > 20 and not changed, f"a thing has one colour in the plots of a run: {list(changed.items())[:3]}")


def validated(root):
    """Every specification fits Vega-Lite's schema, and files show the values of the page."""
    try:
        import altair
        import jsonschema
    except ImportError:
        print("altair is not installed: specifications are not validated")
        return
    schema = json.loads((pathlib.Path(altair.__file__).parent / "vegalite/v6/schema/vega-lite-schema.json").read_text())
    validator = jsonschema.Draft7Validator(schema)
    page = (root / "report.html").read_text(encoding="utf-8")
    files = [path for path in sorted((root / "out").glob("*/*.json")) if path.name != "result.json"]
    check(len(files) > 15, f"specifications: {len(files)}")
    for path in files:
        text = path.read_text(encoding="utf-8")
        faults = [fault.message[:200] for fault in validator.iter_errors(json.loads(text))]
        check(not faults, f"{path.name}: {faults[:2]}")
        check(text.strip().replace("<", "\\u003c") in page, f"{path.name} is what the page draws")
    broken = json.loads(files[0].read_text(encoding="utf-8"))
    broken["layer"][0]["mark"] = {"type": "no such mark"}
    check(not validator.is_valid(broken), "the schema refuses what it does not know")


def same_in_files(page, root):
    """A file's curves have as many points, and at the same relative places, as those of the page."""
    figure = plot_of(page, "outlier", "damage_against_tile")
    svg = ElementTree.parse(root / "out" / "outlier" / "damage_against_tile.svg").getroot()
    in_file = [path.get("d") for group in svg.iter() if {"mark-line", "role-mark"} <= set((group.get("class") or "").split())
               for path in group.iter() if path.tag.endswith("path")]
    on_page = [path.get_attribute("d") for path in figure.locator(".picture svg .mark-line.role-mark path").all()]

    def places(drawing):
        numbers = [list(map(float, point.split(","))) for point in drawing[1:].split("L")]
        (x0, y0), (x1, y1) = numbers[0], numbers[-1]
        return [((x - x0) / (x1 - x0), (y - y0) / (y1 - y0)) for x, y in numbers]

    check(len(in_file) == len(on_page) >= 2, f"curves: {len(in_file)} and {len(on_page)}")
    for a, b in zip(in_file, on_page):
        near = len(places(a)) == len(places(b)) and all(abs(p - q) < 0.005 for one, two in zip(places(a), places(b)) for p, q in zip(one, two))
        check(near, f"file and page show the same: {a} {b}")


def printed(opened):
    """All plots are on paper, also those that were never in sight."""
    count = "[document.querySelectorAll('figure .plot').length, document.querySelectorAll('figure .picture svg').length]"
    plots, before = opened.page.evaluate(count)
    check(0 <= before < plots, f"plots are drawn when they come into sight: {before} of {plots}")
    opened.page.pdf(format="A4")
    plots, after = opened.page.evaluate(count)
    check(plots == after > 20, f"paper has every plot: {after} of {plots}")


def main():
    with tempfile.TemporaryDirectory() as folder, harness.browser() as chromium:
        path = build(pathlib.Path(folder))
        validated(pathlib.Path(folder))
        told_apart(pathlib.Path(folder))
        with harness.open_offline(chromium, path) as opened:
            printed(opened)
            first_screen(opened)
            interaction(opened)
            heat_maps(opened)
            colours_and_scales(opened)
            zeros(opened)
            same_in_files(opened.page, pathlib.Path(folder))
            cut = readable.cut_on_paper(opened)
            check(not cut, f"cut on paper: {cut[:3]}")
            whole_labels(opened)
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
            whole_labels(opened)
            opened.require_clean()
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
