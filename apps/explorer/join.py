#!/usr/bin/env python3
"""Joins the page's sources and the compiled library into one HTML file.

usage: join.py PAGE_FOLDER MODULE_JS OUTPUT_HTML
"""

import pathlib
import re
import sys


def main() -> int:
    folder, module, output = map(pathlib.Path, sys.argv[1:])
    html = (folder / "index.html").read_text(encoding="utf-8")

    def read(name: str) -> str:
        path = module if name == "fp8lab.js" else folder / name
        return path.read_text(encoding="utf-8").replace("</script", "<\\/script")

    html = re.sub(r'<link rel="stylesheet" href="([^"]+)">',
                  lambda m: f"<style>\n{read(m[1])}</style>", html)
    html = re.sub(r'<script src="([^"]+)"></script>',
                  lambda m: f"<script>\n{read(m[1])}</script>", html)
    left = re.findall(r'(?:src|href)="(?!#|data:)([^"]+)"', html)
    if left:
        print(f"join.py: {folder}: expected a page that needs nothing else, got {left}",
              file=sys.stderr)
        return 1
    output.write_text(html, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
