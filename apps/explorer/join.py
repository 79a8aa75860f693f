#!/usr/bin/env python3
"""Joins the page's sources and the compiled library into one HTML file, which may load nothing and run nothing else.

usage: join.py PAGE_FOLDER MODULE_JS OUTPUT_HTML
"""

import base64
import hashlib
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
    html = re.sub(r'<script([^>]*) src="([^"]+)"></script>',
                  lambda m: f"<script{m[1]}>\n{read(m[2])}</script>", html)
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
                      for script in re.findall(r"<script[^>]*>(.*?)</script>", html, re.DOTALL))
    policy = ("default-src 'none'; img-src data: blob:; connect-src data:; worker-src blob:; style-src 'unsafe-inline'; "
              f"script-src 'wasm-unsafe-eval' {hashes}; base-uri 'none'; form-action 'none'")
    html = html.replace('<meta charset="utf-8">',
                        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)
    left = re.findall(r'(?:src|href)="(?!#|data:)([^"]+)"', html)
    if left:
        print(f"join.py: {folder}: expected a page that needs nothing else, got {left}",
              file=sys.stderr)
        return 1
    output.write_text(html, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
