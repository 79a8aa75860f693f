"""Draws plots: a line of standard input is a list in JSON, the bytes of a folder's path in hex and names of plots in it;
the answer is a line with what went wrong, as text in JSON. `NAME.json`, a Vega-Lite specification, becomes NAME.svg,
NAME.png, NAME.pdf."""

import concurrent.futures
import ctypes
import json
import multiprocessing
import os
import pathlib
import re
import signal
import sys

try:
    import vl_convert
except ImportError:
    print('"no vl_convert"', flush=True)
    sys.exit(1)


def numbered_again(svg):
    """The picture with its clips and gradients numbered from 0: Vega counts on from picture to picture."""
    places = {}

    def renamed(found):
        before, kind, number = found.groups()
        return f"{before}{kind}{places.setdefault((kind, number), len(places))}"

    return re.sub(r'(id="|url\(#)(clip|gradient_)(\d+)', renamed, svg)


def in_order(pdf):
    """The file with its lists of resources sorted: they come in the order of hash tables, another one each time. A
    permutation of lines moves no object."""
    entries = re.compile(rb"(?:^ +/[A-Za-z]+\d+ \d+ 0 R\n)+", re.MULTILINE)
    return entries.sub(lambda found: b"".join(sorted(found[0].splitlines(keepends=True))), pdf)


def draw(file):
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
    file.with_suffix(".pdf").write_bytes(in_order(vl_convert.svg_to_pdf(svg)))


def tried(file):
    """What goes wrong with a file, or nothing."""
    try:
        draw(file)
    except Exception as error:
        return f"{file.name}: {error}".split("\n\nStack backtrace")[0]
    return ""


def set_up():
    """A process that draws ends with this program, and does not hold its output open."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# The package keeps Python's lock while it draws, so processes share the work. All are forked at the first plot, before
# there is a thread.
processes = min(4, len(os.sched_getaffinity(0)))
fork = multiprocessing.get_context("fork")
with concurrent.futures.ProcessPoolExecutor(processes, fork, set_up) as pool:
    print('""', flush=True)
    for line in sys.stdin:
        folder, *names = json.loads(line)
        folder = os.fsdecode(bytes.fromhex(folder))
        said = pool.map(tried, [pathlib.Path(folder, name) for name in names])
        print(json.dumps(next(filter(None, said), "").encode(errors="backslashreplace").decode()), flush=True)
