"""Draws plots: a line of standard input is a list in JSON, a folder and names of plots in it; the answer is a line
with what went wrong, as text in JSON. `NAME.json`, a Vega-Lite specification, becomes NAME.svg, NAME.png, NAME.pdf."""

import json
import pathlib
import re
import sys

try:
    import vl_convert
except ImportError:
    sys.exit(1)


def numbered_again(svg):
    """The picture with its clips and gradients numbered from 0: Vega counts on from picture to picture."""
    places = {}

    def renamed(found):
        before, kind, number = found.groups()
        return f"{before}{kind}{places.setdefault((kind, number), len(places))}"

    return re.sub(r'(id="|url\(#)(clip|gradient_)(\d+)', renamed, svg)


def draw(folder, name):
    file = pathlib.Path(folder, name)
    plot = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    # A file has no zoom and no pointer: without what they need, clips above all, it is drawn in half the time.
    whole = "domain" not in plot["encoding"]["y"]["scale"]
    for layer in plot["layer"]:
        if whole:
            layer["mark"].pop("clip", None)
        if layer.get("name") == "pointer":
            layer["transform"] = [{"filter": "false"}]
            layer["params"] = [param for param in layer["params"] if param["name"] != "zoom"]
    vega = vl_convert.vegalite_to_vega(plot, vl_version="6.4")
    svg = numbered_again(vl_convert.vega_to_svg(vega))
    file.with_suffix(".svg").write_text(svg, encoding="utf-8")
    file.with_suffix(".png").write_bytes(vl_convert.svg_to_png(svg, scale=1.5))
    file.with_suffix(".pdf").write_bytes(vl_convert.svg_to_pdf(svg))


print('""', flush=True)
for line in sys.stdin:
    said = ""
    try:
        folder, *names = json.loads(line)
        for name in names:
            draw(folder, name)
    except Exception as error:
        said = f"{name}: {error}".split("\n\nStack backtrace")[0]
    print(json.dumps(said), flush=True)
