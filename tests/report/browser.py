"""Reports in a browser: offline, sorted, light and dark, on a phone, on paper.

Usage: browser.py PATH_OF_FP8LAB
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / folder) for folder in ("browser", "experiment")]
import harness  # noqa: E402
import kept_tables  # noqa: E402

FP8LAB = sys.argv[1]
failures = 0


def check(holds, what):
    global failures
    if not holds:
        failures += 1
        print("FAILED:", what)


def fp8lab(*arguments, code=0, **environment):
    ran = subprocess.run([FP8LAB, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment})
    check(ran.returncode == code, f"{arguments}: exit {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def wrong_product(root):
    """Golden and wrong output of a product, without NumPy."""

    def npy(name, descr, rows, columns, data):
        head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {columns}), }}"
        head = head.ljust(117) + "\n"
        (root / name).write_bytes(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + data)

    codes = bytes((i * 37 + i // 64 * 11) % 0x78 for i in range(32 * 64))
    npy("a.npy", "|u1", 32, 64, codes)
    npy("b.npy", "|u1", 32, 64, codes[::-1])
    product = [root / "a.npy", root / "b.npy", "--dtype", "e4m3fn"]
    fp8lab("gemm", *product, "-o", root / "golden.npy")
    golden = (root / "golden.npy").read_bytes()
    wrong = bytearray(golden)
    wrong[-4 * 32 * 5 + 20] ^= 1
    (root / "wrong.npy").write_bytes(wrong)
    return ["verify", root / "wrong.npy", "--inputs", *product]


def build(root):
    """The pages to look at."""
    small = ["--quick", "--set", "elements=256", "--set", "repeats=1", "--set", "published_repeats=1"]
    for name, more in (("one", []), ("again", []), ("other", ["--seed", "2", "--set", "tiles=16,64"])):
        # The files of plots of a comparison are those of `one` and `other`.
        drawn = {} if name in ("one", "other") else kept_tables.UNDRAWN
        fp8lab("run", "outlier", *small, "--out", root / name, *more, **drawn)
    sweep = ["sweep", "outlier", *small, "--axis", "tiles=16:64:*2", "--axis", "sigma=0.1,0.4", "--repeat", 2]
    fp8lab(*sweep, "--out", root / "sweep", **kept_tables.UNDRAWN)
    fp8lab(*wrong_product(root), "--out", root / "checked", code=1)
    pages = {}
    for name, folders in {
        "runs": ["one"],
        "sweep": ["sweep"],
        "comparison": ["one", "other"],
        "same": ["one", "again"],
        "sweeps": ["sweep", "sweep"],
        "verify": ["checked"],
        "separate": ["one", "other", "--separate"],
        "first": [*["one"] * 5, "--separate"],
    }.items():
        pages[name] = root / f"{name}.html"
        fp8lab("report", *(f if f.startswith("-") else root / f for f in folders), "-o", pages[name])
    return pages


def column_of(page, table, column):
    """What the sort goes by, top to bottom."""
    return page.evaluate(
        "([t, c]) => [...document.querySelectorAll('table.sortable')[t].tBodies[0].rows]"
        ".map(row => row.cells[c].title || row.cells[c].textContent)",
        [table, column],
    )


def sorting(opened):
    """Numbers as numbers, by pointer and by keyboard, rows kept whole."""
    page = opened.page
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    heads = page.locator("table.sortable").first.locator("thead th")
    names = heads.all_inner_texts()
    column = next(i for i, name in enumerate(names) if name.startswith("bulk_l2"))
    rows = sorted(page.locator("table.sortable").first.locator("tbody tr").all_inner_texts())
    button = heads.nth(column).locator("button")
    button.click()
    up = [float(value) for value in column_of(page, 0, column)]
    check(up == sorted(up) and len(set(up)) > 10, f"a click sorts upwards: {up[:5]}")
    check(heads.nth(column).get_attribute("aria-sort") == "ascending", "aria-sort says so")
    button.focus()
    page.keyboard.press("Enter")
    down = [float(value) for value in column_of(page, 0, column)]
    check(down == up[::-1] or down == sorted(up, reverse=True), f"Enter sorts downwards: {down[:5]}")
    check(heads.nth(column).get_attribute("aria-sort") == "descending", "aria-sort says so")
    check(sorted(page.locator("table.sortable").first.locator("tbody tr").all_inner_texts()) == rows, "rows stay whole")
    label = next(i for i, name in enumerate(names) if name.startswith("scales"))
    heads.nth(label).locator("button").click()
    words = column_of(page, 0, label)
    check(words == sorted(words) and len(set(words)) > 1, f"labels sort as text: {words[:5]}")
    check(heads.nth(column).get_attribute("aria-sort") is None, "one column at a time is the sorted one")


def empty_cells_last(opened):
    """Numbers that are not there come last, up and down."""
    page = opened.page
    heads = page.locator("table.sortable").first.locator("thead th")
    names = heads.all_inner_texts()
    column = next(i for i, name in enumerate(names) if name.startswith("bulk_l2 B/A"))
    for order in ("ascending", "descending"):
        heads.nth(column).locator("button").click()
        page.locator(f"th[aria-sort={order}]").wait_for()
        values = column_of(page, 0, column)
        check("" in values and values[-1] == "", f"empty cells last, {order}: {values}")
        check(values == sorted(values, key=lambda v: v == ""), f"only at the end: {values}")


def brightness(page):
    """Of the page's background, 0 to 255."""
    red, green, blue = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")[:3]
    return (red + green + blue) / 3


def fits(opened, what):
    """Nothing but boxes that scroll on their own is wider than the window."""
    wide = opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    check(wide <= 0, f"{what}: {wide} pixels too wide")


def pictures(opened, what):
    for figure in opened.page.locator("figure").all():
        figure.scroll_into_view_if_needed()
        figure.locator(".picture svg, img").first.wait_for()
    sizes = opened.page.evaluate("""() => [
        ...[...document.images].map(image => image.complete && image.naturalWidth),
        ...[...document.querySelectorAll(".picture")].map(picture => {
            const svg = picture.querySelector("svg");
            return svg?.querySelectorAll(".mark-line path, .mark-symbol path, .mark-rect path").length > 4 && svg.clientWidth;
        })]""")
    check(sizes and all(size > 0 for size in sizes), f"{what}: every picture is drawn: {sizes}")
    opened.page.evaluate("scrollTo(0, 0)")


def look(chromium, name, path):
    with harness.open_offline(chromium, path) as opened:
        check(brightness(opened.page) > 200, f"{name}: light by default")
        pictures(opened, name)
        fits(opened, f"{name} on a screen")
        opened.page.emulate_media(color_scheme="dark")
        check(brightness(opened.page) < 60, f"{name}: dark where that is preferred")
        opened.page.set_viewport_size({"width": 390, "height": 800})
        fits(opened, f"{name} on a phone")
        opened.page.set_viewport_size({"width": 1200, "height": 1000})
        folded = opened.page.locator("details:not([open])").count()
        pdf = opened.page.pdf(format="A4")
        check(pdf.startswith(b"%PDF-") and len(pdf) > 20_000, f"{name}: prints, {len(pdf)} bytes")
        if name == "runs":  # long tables stay folded, so that a run takes a few pages
            runs = opened.page.locator("section.run").count()
            count = len(re.findall(rb"/Type\s*/Page\b", pdf))
            check(0 < count <= 3 + 4 * runs, f"{name}: {count} printed pages for {runs} runs")
        check(opened.page.locator("details:not([open])").count() == folded, f"{name}: printing leaves what was folded")
        opened.require_clean()


def first_screen(chromium, path):
    """Five failures, each with its remedy in one small plot, and what the remedies buy, are seen without scrolling."""
    with harness.open_offline(chromium, path, width=1440, height=900) as opened:
        opened.page.wait_for_function("document.querySelectorAll('.card svg').length === 5")
        legends = opened.page.evaluate(
            "[...document.querySelectorAll('.card')].map(card => "
            "[...card.querySelectorAll('.role-legend-label text')].map(text => text.textContent))"
        )
        check(legends == [["one scale per tensor", "one scale per tile of 128"]] * 5, f"curves of the cards: {legends}")
        tops = opened.page.evaluate("[...document.querySelectorAll('.card')].map(card => card.getBoundingClientRect().top)")
        check(len(set(tops)) == 1, f"all cards stand in one row: {tops}")
        bottom = opened.page.evaluate("document.querySelector('table.remedies').getBoundingClientRect().bottom")
        check(bottom <= 900, f"the table of remedies ends at {bottom} of 900 pixels")
        opened.page.set_viewport_size({"width": 390, "height": 844})
        opened.page.wait_for_timeout(300)
        heights = opened.page.evaluate("[...document.querySelectorAll('.card')].map(card => card.getBoundingClientRect().height)")
        check(max(heights) <= 844, f"a card is one screen of a phone: {heights}")
        opened.require_clean()


def main():
    with tempfile.TemporaryDirectory() as folder, harness.browser() as chromium:
        root = pathlib.Path(folder)
        pages = build(root)
        for name in ("runs", "sweep", "comparison", "verify"):
            look(chromium, name, pages[name])
        first_screen(chromium, pages["first"])
        with harness.open_offline(chromium, pages["runs"]) as opened:
            sorting(opened)
            opened.require_clean()
        with harness.open_offline(chromium, pages["comparison"]) as opened:
            empty_cells_last(opened)
            text = opened.page.inner_text("#summary")
            check("seed (1 in A, 2 in B)" in text and "rows differ" in text, f"a comparison says what differs: {text}")
            check(opened.page.locator(".pair").count() > 2, "plots stand side by side")
            opened.require_clean()
        for name in ("same", "sweeps"):
            with harness.open_offline(chromium, pages[name]) as opened:
                text = opened.page.inner_text("#summary")
                check("Identical to the last byte" in text and "differ" not in text.split("\n", 1)[1], f"{name}: {text}")
                opened.require_clean()
        with harness.open_offline(chromium, pages["separate"], script=False) as opened:
            check(opened.page.locator("section.run").count() == 2, "--separate lists both, and without a script too")
            check(opened.page.locator("table.sortable tbody tr").count() > 50, "tables are there without a script")
            opened.require_clean()
        for name in ("runs", "comparison"):
            check(not harness.runs_foreign_scripts(chromium, pages[name]), f"{name}: the policy keeps foreign scripts out")
        svg = root / "checked" / "verify" / "mismatches.svg"
        check(ElementTree.parse(svg).getroot().tag.endswith("svg"), "the mismatch map is XML")
        with harness.open_offline(chromium, svg) as opened:
            check(opened.page.locator("svg").first.bounding_box()["width"] > 300, "and opens as a picture")
            opened.require_clean()
    print(f"{failures} failures")
    return 1 if failures else 0


sys.exit(main())
