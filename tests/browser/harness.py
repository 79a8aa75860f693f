"""Pages opened from files in a headless Chromium, with everything they complain about or ask for kept.

    import harness                      # with tests/browser in sys.path

    with harness.browser() as chromium:
        with harness.open_offline(chromium, "page.html") as opened:
            opened.page.click("th button")
            opened.require_clean()

Without playwright or Chromium the import prints why and ends the process with 77, CTest's sign of a skipped test: before
anything could fail.
"""

import contextlib
import pathlib
import shutil
import sys

SKIPPED = 77


def skip(reason):
    print("SKIPPED:", reason, flush=True)
    sys.exit(SKIPPED)


try:
    from playwright.sync_api import sync_playwright
except ImportError:
    skip("no playwright for this Python")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    skip("no chromium")


@contextlib.contextmanager
def browser():
    """Debian's Chromium, driven by playwright."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield chromium
        finally:
            chromium.close()


class Opened:
    """A page and what it did: `errors` (and warnings of the console, uncaught ones too) and `requests` beside its own file."""

    def __init__(self, page, address):
        self.page = page
        self.errors = []
        self.requests = []
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self._note(request.url, address))

    def _note_message(self, message):
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def _note(self, url, address):
        inside = url.startswith(("data:", "blob:")) or url.split("#")[0] == address
        if not inside:
            self.requests.append(url)

    def require_clean(self):
        """Raises AssertionError with what went wrong so far."""
        assert not self.errors, f"errors of the page: {self.errors}"
        assert not self.requests, f"requests beside the page itself: {self.requests}"


@contextlib.contextmanager
def open_offline(chromium, path, *, dark=False, width=1200, height=1000, script=True):
    """Opens a file without a network; yields an `Opened`."""
    address = pathlib.Path(path).resolve().as_uri()
    context = chromium.new_context(
        offline=True,
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        java_script_enabled=script,
    )
    try:
        opened = Opened(context.new_page(), address)
        opened.page.goto(address)
        yield opened
    finally:
        context.close()


def runs_foreign_scripts(chromium, path):
    """Whether the page would run a script that something brought into it, or fetch a picture from elsewhere."""
    with open_offline(chromium, path) as opened:
        kept_out = opened.page.evaluate("""async () => {
            const kept_out = [];
            addEventListener("securitypolicyviolation", event => kept_out.push(event.effectiveDirective));
            const script = document.createElement("script");
            script.textContent = "window.planted = true";
            document.body.append(script);
            const picture = document.createElement("img");
            const over = new Promise(done => { picture.onerror = picture.onload = done; });
            picture.src = "https://example.org/picture.png";
            document.body.append(picture);
            await over;
            return window.planted === true ? [] : kept_out.sort();
        }""")
        return kept_out != ["img-src", "script-src-elem"]
