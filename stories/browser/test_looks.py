"""Every view, by day and by night, on a desk and on a phone: nothing serious for axe-core, nothing to scroll sideways; with
pictures of all of them."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from conftest import PHONE
from house import busy
from stack import Tenant

VIEWS = ["orders", "order/{order}", "new-order", "customers", "customer/{customer}", "stock", "invoices", "invoice/{invoice}", "overview", "events",
         "event/{event}", "dead-letters", "exceptions", "shortfalls", "reconcile", "reconciliation/{run}", "destinations"]


@pytest.fixture(scope="module")
def ids(stack, tmp_path_factory):
    house = Tenant(stack, tmp_path_factory.mktemp("house"))
    return house, busy(house)


def serious(page):
    """What axe-core finds that keeps somebody out, and where."""
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).response["violations"]
    return [(rule["id"], [node["target"] for node in rule["nodes"][:3]]) for rule in found if rule["impact"] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_keeps_anybody_out(ids, window, screens, scheme):
    house, known = ids
    desk = window(house.token(), scheme=scheme)
    found = {}
    for view in VIEWS:
        page = desk.open(view.format(**known))
        page.screenshot(path=screens / f"{view.split('/')[0]}-{scheme}.png")
        found[view] = serious(page)
    assert {view: rules for view, rules in found.items() if rules} == {}


def test_a_phone_shows_every_view_without_scrolling_sideways(ids, window, screens):
    house, known = ids
    phone = window(house.token(), viewport=PHONE)
    wide = {}
    for view in VIEWS:
        page = phone.open(view.format(**known))
        page.screenshot(path=screens / f"{view.split('/')[0]}-phone.png", full_page=True)
        width = page.evaluate("document.documentElement.scrollWidth")
        # Nor is anything cut off by an ancestor that hides it.
        beyond = page.evaluate("""[...document.querySelectorAll('main *, #side *')].filter((e) => e.checkVisibility() && !e.closest('.hidden, .clip, thead, pre, svg') && e.getBoundingClientRect().right > innerWidth + 1)
            .slice(0, 3).map((e) => e.outerHTML.slice(0, 120))""")
        if width > PHONE["width"] or beyond:
            wide[view] = (width, beyond)
        assert serious(page) == []
    assert wide == {}
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation").get_by_role("link", name="Stock").click()
    page.wait_for_selector(".view.stock")
    assert page.get_by_role("navigation").is_hidden()


def test_the_page_of_whoever_is_not_signed_in_keeps_nobody_out(stack, window, screens):
    for scheme in ["light", "dark"]:
        page = window(scheme=scheme).page
        page.goto(f"{stack.url}/console#/stock")
        page.wait_for_selector("h1")
        page.screenshot(path=screens / f"sign-in-{scheme}.png")
        assert serious(page) == []
