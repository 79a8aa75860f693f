"""What the explorer's page gives away: pictures as files, and links that bring its state back."""

import csv
import io
import pathlib
import xml.etree.ElementTree as ElementTree

FIGURES = ("range", "outlier", "sum", "error", "step", "mu", "share")


def saved(p, figure, what):
    """Name and bytes of what a button below a figure saves."""
    with p.page.expect_download() as download:
        p.page.click(f"#{figure}-figure + .save button:text-is('{what}')")
    return download.value.suggested_filename, pathlib.Path(download.value.path()).read_bytes()


def check_files(p):
    for figure in FIGURES:
        name, data = saved(p, figure, "SVG")
        p.equal(name, f"fp8lab-{figure}.svg", "name of a picture")
        root = ElementTree.fromstring(data)
        drawn = [e for e in root.iter() if e.tag.rsplit("}")[-1] in ("path", "rect", "circle", "line")]
        p.check(len(drawn) > 5, f"the SVG of {figure} has {len(drawn)} shapes")
        p.check(all(e.get("fill") is not None for e in drawn), f"the SVG of {figure} has no colours of its own")
        texts = [e.text for e in root.iter() if e.tag.endswith("text")]
        for entry in p.page.locator(f"#{'accumulation' if figure in ('sum', 'error') else figure}-legend span").all_inner_texts():
            p.check(entry in texts, f"the SVG of {figure} has no legend '{entry}'")
        name, data = saved(p, figure, "PNG")
        width = int.from_bytes(data[16:20], "big")
        p.check(data.startswith(b"\x89PNG") and width > 500, f"{name}: {width} pixels wide")
        p.check(len(set(data)) > 100, f"{name} is empty")


def table(p, figure):
    rows = list(csv.reader(io.StringIO(saved(p, figure, "CSV")[1].decode())))
    p.check(len({len(row) for row in rows}) == 1, f"the CSV of {figure} has rows of different lengths")
    return [dict(zip(rows[0], row)) for row in rows[1:]]


def check_tables(p):
    p.equal(len(table(p, "outlier")), 512, "elements in the CSV")
    killed = sum(row["fate"] == "killed" for row in table(p, "outlier"))
    p.equal(p.count("#outlier-figure .mark.red.cross"), killed, "crosses, and killed elements in the CSV")
    errors = table(p, "error")
    p.equal(float(errors[-1]["plain_relative_l2"]), float(p.page.get_attribute("#accumulation-says", "data-plain")),
            "last error in the CSV")
    mu = table(p, "mu")
    p.equal((len(mu), mu[0]["mu"]), (3000, "1"), "steps of mu in the CSV, and the first")
    lost = {row["term"]: row["lost"] for row in table(p, "step")}
    p.equal(lost.get("a2 b2"), "5", "what the CSV says is lost of 13 beside 2^16")


def check_link(p, open_again):
    """A copied address opens with the same controls and sentences; a wrong one says so."""
    p.page.fill("#range-value", "0.02")
    p.choose("#outlier-tile", "32")
    p.page.click("#outlier-seed")
    p.choose("#accumulation-model", "sm100.mma.e4m3")
    p.page.fill("#step-a", "448 1 0.5")
    p.page.fill("#step-b", "448,1,1")
    p.choose("#scaling-growth", "linear")
    p.page.check("input[name=outlier-scope][value=tile]", force=True)
    p.settle()
    p.answered()
    p.page.click("#link")
    p.page.wait_for_selector("#link-shown:not(:empty)")
    address = p.page.evaluate("location.href")
    sentences = {name: p.text(f"#{name}-says") for name in ("range", "outlier", "accumulation", "step", "scaling")}
    with open_again(address) as again:
        for name, text in sentences.items():
            p.equal(again.text(f"#{name}-says"), text, f"what the link brings back of {name}")
        p.check(not again.page.is_visible("#failure"), "a good link is followed in part")
        p.failed += again.wrong
    with open_again(address.split("#")[0] + "#set:outlier-tile=33&step-nothing=1&range-value=7") as again:
        said = again.text("#failure")
        p.check("'33' is not a value of 'outlier-tile'" in said and "step-nothing" in said, f"a bad link: {said}")
        p.check(again.text("#range-says").startswith("For x = 7 "), "what is good of a bad link")
        p.equal(again.page.input_value("#outlier-tile"), "128", "what is bad of a link")
