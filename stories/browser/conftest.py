"""A browser, people in it, and how results are told to `cargo xtask test`."""

import os
import pathlib
import sys

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, os.path.dirname(__file__))

from issuer import Issuer  # noqa: E402
from stack import PATIENCE_SECS, Stack, Tenant, until  # noqa: E402

#: Of a desk, and of a small phone.
DESK, PHONE = {"width": 1360, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="session")
def stack():
    return Stack()


@pytest.fixture(scope="session")
def issuer(stack):
    with Issuer(int(os.environ["HOLDFAST_ISSUER_PORT"]), stack.url) as issuer:
        yield issuer


@pytest.fixture
def house(stack, tmp_path):
    """A tenant of its own for each test; the partner answers 200 again."""
    stack.behave(200)
    return Tenant(stack, tmp_path)


@pytest.fixture(scope="session")
def screens():
    folder = pathlib.Path(os.environ.get("HOLDFAST_SCREENS", "/tmp/screens"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        # As root, Chromium runs only without its sandbox; it opens nothing but this machine's pages.
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=os.environ["HOLDFAST_BROWSER"], args=arguments)
        yield browser
        browser.close()


class Window:
    """One person's window, in a session of its own. What goes wrong in its scripts fails the test."""

    def __init__(self, browser, stack, token, viewport=None, scheme="light"):
        self.stack = stack
        self.context = browser.new_context(viewport=viewport or DESK, color_scheme=scheme, locale="en-US", timezone_id="UTC", reduced_motion="reduce")
        self.context.set_default_timeout(PATIENCE_SECS * 1000)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=stack.url)
        self.faults = []
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" and "Failed to load resource" not in message.text else None)
        # Whatever is not this machine's is a third party.
        self.page.on("request", lambda request: self.faults.append(f"calls {request.url}") if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")) else None)
        if token:
            self.context.add_init_script(f"if (location.protocol === 'http:' && !sessionStorage.getItem('holdfast.token')) sessionStorage.setItem('holdfast.token', '{token}')")

    def open(self, address=""):
        """Opens a view by its address."""
        # From elsewhere: another fragment alone would not load the page again.
        self.page.goto("about:blank")
        self.page.goto(f"{self.stack.url}/console#/{address}")
        self.ready(address.split("/")[0].split("?")[0])
        return self.page

    def ready(self, view=""):
        """Waits until a view is there, with all that it loads."""
        self.page.wait_for_selector(f"main > .view{'.' + view if view else ''} h1")
        # Not wait_for_function: it evaluates text in the page, which the page's policy forbids.
        until(lambda: self.page.evaluate("!document.querySelector('[aria-busy=true], .loading')"), "the view is whole")


@pytest.fixture
def window(browser, stack):
    """Opens windows: window(token)."""
    opened = []

    def open_window(token=None, **settings):
        opened.append(Window(browser, stack, token, **settings))
        return opened[-1]

    yield open_window
    faults = [fault for one in opened for fault in one.faults]
    for one in opened:
        one.context.close()
    assert faults == []


# ── Results, in the form that `cargo xtask test` counts ─────────────────────────────────────────────────────────────────────


def pytest_terminal_summary(terminalreporter, exitstatus):
    count = {outcome: len(terminalreporter.stats.get(outcome, [])) for outcome in ("passed", "failed", "error", "skipped")}
    left_out = os.environ.get("HOLDFAST_TEST_LEFT_OUT")
    if left_out:
        with open(left_out, "a", encoding="utf-8") as file:
            file.writelines(f"{report.nodeid}\t{report.longrepr[2].removeprefix('Skipped: ')}\n" for report in terminalreporter.stats.get("skipped", []))
    # Rust's test programs count such tests as passed, too: the list takes them out.
    passed, failed = count["passed"] + count["skipped"], count["failed"] + count["error"]
    result = "ok" if exitstatus == 0 else "FAILED"
    terminalreporter.write_line("")
    terminalreporter.write_line(f"test result: {result}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out")
