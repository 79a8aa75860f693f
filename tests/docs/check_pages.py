"""Links and paths in the pages of this repository exist, and every page of docs/ is in the site.

Usage: check_pages.py SOURCE_DIR

Checked: relative links of every Markdown file; paths in backticks that begin with a folder of the repository; that
docs/site.yml lists each page of docs/ once; that no page names a document that readers do not have. The check itself is
tried first: on a page with planted faults it must find each of them.
"""

import re
import sys
import tempfile
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
PATH = re.compile(r"`((?:docs|lib|apps|experiments|tests|cuda|notebooks)/[A-Za-z0-9_./-]*)`")
UNKNOWN = re.compile(r"\bNUMERICS\b|\b[Ss]eeds? 00\d")
GENERATED = ("experiments", "library")  # by docs/site_hooks.py, from READMEs
NOT_OURS = {"build", "out", ".git", "node_modules"}


def pages(root):
    return [path for path in sorted(root.rglob("*.md")) if not NOT_OURS & set(path.relative_to(root).parts)]


def faults_of(page, root):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    name = page.relative_to(root)
    for target in LINK.findall(text):
        place = (page.parent / target).resolve()
        generated = any(place.is_relative_to(root / "docs" / folder) for folder in GENERATED)
        if "://" not in target and not generated and not place.exists():
            yield f"{name}: link to {target}, which is not there"
    for target in PATH.findall(text):
        if not (root / target).exists() and not (root / target).parent.joinpath(f"{Path(target).name}.hpp").exists():
            yield f"{name}: names `{target}`, which is not there"
    for word in UNKNOWN.findall(text):
        yield f"{name}: names '{word}', which readers do not have"


def faults(root):
    found = [fault for page in pages(root) for fault in faults_of(page, root)]
    nav = re.findall(r"([\w/-]+\.md)\s*$", (root / "docs/site.yml").read_text(), re.MULTILINE)
    for page in pages(root / "docs"):
        count = nav.count(str(page.relative_to(root / "docs")))
        if count != 1:
            found.append(f"docs/site.yml lists {page.relative_to(root / 'docs')} {count} times, expected once")
    return found


def planted():
    """The faults of a page with one of each kind that no page lists."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "docs").mkdir()
        (root / "docs/site.yml").write_text("nav:\n")
        (root / "docs/page.md").write_text("[gone](gone.md) `lib/gone.hpp` and NUMERICS\n")
        return faults(root)


def main():
    root = Path(sys.argv[1]).resolve()
    if len(planted()) != 4:
        sys.exit(f"of 4 planted faults these were found: {planted()}")
    found = faults(root)
    print("\n".join(found + [f"{len(found)} faults in {len(pages(root))} pages"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
