"""The site of ./dev docs in a browser: people can read it on a screen, a phone and paper, and its generated pages say what they should.

Usage: site_browser.py SOURCE_DIR FP8LAB MKDOCS_PYTHON
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "browser"))
import harness  # noqa: E402
import readable  # noqa: E402

# A page of each kind: text, tables, code, generated ones, plots.
PAGES = ("index", "commands", "specification/accumulation", "units/index", "units/sm90.wgmma.e4m3", "api/cpp/accumulate",
         "api/python/fp8lab", "experiments/outlier")


def build(source, tool, python, root):
    """The site, with the plots of one quick run."""
    run = [tool, "run", "outlier", "--quick", "--set", "elements=256", "--set", "repeats=1", "--out", root / "results"]
    subprocess.run(run, check=True, capture_output=True)
    environment = os.environ | {"FP8LAB_TOOL": tool, "FP8LAB_RESULTS": str(root / "results")}
    command = [python, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", "docs/site.yml", "-d", root / "site"]
    done = subprocess.run(command, env=environment, cwd=source, capture_output=True, text=True)
    return root / "site", done.stdout + done.stderr if done.returncode else ""


def faults_of(chromium, path, name):
    with harness.open_offline(chromium, path, width=390, height=800) as opened:
        size, text = readable.smallest_text(opened)
        if size < readable.LEAST_PIXELS:
            yield f"{name}: '{text}' has {size} pixels on a phone"
        wide = opened.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if wide > 0:
            yield f"{name}: {wide} pixels too wide for a phone"
        yield from (f"{name}: {text}" for text in readable.faults(opened))
        yield from (f"{name}: cut on paper: {text}" for text in readable.cut_on_paper(opened)[:3])
        # Its own files lie beside it.
        yield from (f"{name}: asks for {url}" for url in opened.requests if not url.startswith("file:"))


def broken_links(site):
    """Links of the site that lead nowhere. The page for missing ones has the addresses of a server."""
    pages = {path: path.read_text() for path in site.rglob("*.html") if path.name != "404.html"}
    anchors = {path: set(re.findall(r'\b(?:id|name)="([^"]*)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        text = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        for link in re.findall(r'(?:href|src)="([^"]*)"', text):
            if re.match(r"[a-z]+:", link):
                continue
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            there = (path.parent / name).resolve() if name else path
            if not there.is_file() or (anchor and there in anchors and anchor not in anchors[there]):
                yield f"{path.relative_to(site)}: link to {link}, which is not there"


def search_faults(chromium, site):
    """A word finds its page where the site is opened as a file."""
    with harness.open_offline(chromium, f"{site / 'search.html'}", width=1000) as opened:
        opened.page.locator("#mkdocs-search-query").wait_for()
        opened.page.wait_for_function("document.querySelector('#mkdocs-search-results').textContent.includes('No results')"
                                      " || typeof lunr !== 'undefined'", timeout=20000)
        opened.page.wait_for_timeout(1500)
        opened.page.locator("#mkdocs-search-query").press_sequentially("promotion")
        found = opened.page.locator("#mkdocs-search-results article")
        try:
            found.first.wait_for(timeout=10000)
        except Exception:  # noqa: BLE001 the page says nothing more
            yield "search finds nothing from a file"
            return
        if found.count() < 5 or "romotion" not in found.first.inner_text():
            yield f"search for promotion: {found.all_inner_texts()[:2]}"
        yield from (f"search: {error}" for error in opened.errors)


def main():
    source, tool, python = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    if not pathlib.Path(python).exists():
        harness.skip("./dev docs installs MkDocs")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        site, said = build(source, tool, python, pathlib.Path(folder))
        if said:
            sys.exit(f"mkdocs: {said}")
        for page, words in (("units/sm90.wgmma.e4m3", "h100_wgmma_e4m3"), ("api/cpp/accumulate", "float dot_product("),
                            ("api/python/fp8lab", "AutoScaler"), ("experiments/outlier", "damage_against_tile.svg")):
            if words not in (site / f"{page}.html").read_text():
                found.append(f"{page}: '{words}' is not there")
        found += broken_links(site)
        with harness.browser() as chromium:
            found += search_faults(chromium, site)
            for name in PAGES:
                found += faults_of(chromium, site / f"{name}.html", name)
    print("\n".join([*found, f"{len(found)} faults in {len(PAGES)} pages"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
