"""For pytest: assertions as fixtures, and `--fp8lab-report DIR`, one page of all outputs that were wrong."""

from __future__ import annotations

import html
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from fp8lab import testing

_STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark; }
pre { background: #8881; padding: .8rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
"""


@pytest.fixture
def assert_matches() -> Callable[..., None]:
    """`fp8lab.testing.assert_matches`."""
    return testing.assert_matches


@pytest.fixture
def assert_attention_matches() -> Callable[..., None]:
    """`fp8lab.testing.assert_attention_matches`."""
    return testing.assert_attention_matches


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("fp8lab").addoption(
        "--fp8lab-report",
        metavar="DIR",
        help="write DIR/index.html with the reports of all outputs that fp8lab found wrong",
    )


def pytest_configure(config: pytest.Config) -> None:
    folder = config.getoption("--fp8lab-report")
    if folder:
        config.pluginmanager.register(_Collector(Path(folder)), "fp8lab-collector")


class _Collector:
    """Keeps the reports of failed tests, and writes the page at the end; with nothing failed, too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.failures: list[tuple[str, str]] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and isinstance(call.excinfo.value, testing.WrongOutput):
            # Tests that other processes run send this with their report.
            report.user_properties.append(("fp8lab", str(call.excinfo.value)))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failures += [(report.nodeid, str(text)) for name, text in report.user_properties if name == "fp8lab"]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):  # one of several processes: the first one writes
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "index.html").write_text(_page(self.failures), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        count = len(self.failures)
        terminalreporter.write_line(
            f"fp8lab: {count} wrong output{'' if count == 1 else 's'} in {self.folder / 'index.html'}"
        )


def _page(failures: list[tuple[str, str]]) -> str:
    parts = [
        f"<h2>{html.escape(name)}</h2>\n<p>{html.escape(text.splitlines()[0])}</p>\n<pre>{html.escape(text)}</pre>"
        for name, text in failures
    ]
    title = "No wrong output" if not failures else f"{len(failures)} wrong output{'' if len(failures) == 1 else 's'}"
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8">\n<title>fp8lab: {title}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n<h1>{title}</h1>\n'
        + "\n".join(parts)
        + "\n</html>\n"
    )
