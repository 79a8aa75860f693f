"""Writes Vega, Vega-Lite and Vega-Embed into a folder, as one script of a page, and prints the file's name.

Usage: vega.py FOLDER
"""

import pathlib
import sys

import vl_convert

folder = pathlib.Path(sys.argv[1])
file = folder / f"vega-{vl_convert.__version__}.js"
if not file.exists():
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version="6.4")
    folder.mkdir(parents=True, exist_ok=True)
    # No text of the script may end the element that it is in.
    file.write_text(script.replace("</script", "<\\/script"), encoding="utf-8")
print(file)
