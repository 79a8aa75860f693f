"""Whether people can read an opened page: sizes of text, contrast, nothing that paper would cut.

    import harness, readable             # with tests/browser in sys.path

    with harness.open_offline(chromium, "page.html") as opened:
        assert not readable.faults(opened)
"""

LEAST_PIXELS = 11
RULES = ["color-contrast", "button-name", "image-alt", "duplicate-id", "aria-allowed-attr", "label", "select-name"]


def faults(opened):
    """axe-core's faults of the page, one line each; a note, and none, where its package is not installed."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        print("axe-playwright-python is not installed: contrast is not checked")
        return []
    found = Axe().run(opened.page, options={"runOnly": RULES})
    said = [f"{v['id']} ({len(v['nodes'])}): {[node['html'][:120] for node in v['nodes'][:3]]}"
            for v in found.response["violations"]]
    return said if found.response["passes"] else said + ["axe-core looked at nothing"]


def smallest_text(opened):
    """The least size of text that is seen, in pixels of the screen, and the text; folded parts are opened."""
    return opened.page.evaluate("""() => {
        for (const d of document.querySelectorAll("details")) d.open = true;
        const sizes = [];
        for (const element of document.querySelectorAll("body *")) {
            const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
            if (!own || !element.getClientRects().length || element.closest("script, noscript")) continue;
            const matrix = element.ownerSVGElement ? element.getScreenCTM() : null;
            const scale = matrix === null ? 1 : Math.hypot(matrix.a, matrix.b);  // turned text too
            sizes.push([scale * parseFloat(getComputedStyle(element).fontSize), element.textContent.trim().slice(0, 40)]);
        }
        return sizes.sort((a, b) => a[0] - b[0])[0];
    }""")


def cut_on_paper(opened, width=718):
    """What would be cut at the right edge of printed A4 (718 pixels between usual margins): tag, class and right edge."""
    page = opened.page
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 1000})
    page.emulate_media(media="print")
    page.wait_for_timeout(300)
    found = page.evaluate("""() => {
        const cut = [];
        for (const element of document.querySelectorAll("body *")) {
            const box = element.getBoundingClientRect();
            if (box.width > 0 && box.right > innerWidth + 1 && getComputedStyle(element).visibility !== "hidden")
                cut.push(`${element.tagName} ${element.getAttribute("class") ?? element.id} ${Math.round(box.right)}`);
        }
        return cut;
    }""")
    page.emulate_media(media="screen")
    page.set_viewport_size(before)
    return found
