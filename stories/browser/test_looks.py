"""Every view, by day and by night, on a desk and on a phone: nothing serious for axe-core, nothing to scroll sideways; with
pictures of all of them."""

import re

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


@pytest.mark.parametrize("scheme, viewport", [("light", None), ("dark", None), ("light", PHONE)])
def test_no_dialog_keeps_anybody_out(ids, window, scheme, viewport):
    """Each is opened as a person does; `found` names the one that does not hold."""
    house, known = ids
    people = window(house.token(), scheme=scheme, viewport=viewport)
    found = {}

    def look(name):
        people.page.get_by_role("dialog").wait_for()
        width = people.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        found[name] = serious(people.page) + ([f"{width} px too wide"] if width > 0 else [])

    page = people.open("orders")
    page.keyboard.press("?")
    look("keys")
    page = people.open(f"order/{known['order']}")
    page.get_by_role("button", name="Add SKUs").click()
    page.get_by_role("dialog").get_by_role("combobox").fill("tern")
    page.get_by_role("option").first.wait_for()
    look("list of styles")
    page.get_by_role("option").first.click()
    page.get_by_label("TERN-BLK-S, units").fill("-4")
    look("grid of sizes")
    page = people.open(f"order/{known['order']}")
    page.get_by_role("button", name="Paste from a spreadsheet").click()
    look("paste")
    page = people.open(f"order/{known['order']}")
    page.get_by_role("button", name="Release HARBOR-NVY-S").click()
    look("release")
    page = people.open(f"invoice/{known['invoice']}")
    page.get_by_role("button", name="Book a payment").click()
    page.get_by_label("Amount").fill("much")
    page.get_by_label("Reference").fill("x")
    page.get_by_role("button", name="Book it").click()
    look("payment with a mistake")
    page = people.open("destinations")
    page.get_by_role("button", name="New destination").click()
    look("kinds")
    page.get_by_role("button", name=re.compile("^Webhook")).click()
    page.get_by_label("All events").uncheck()
    look("webhook")
    page = people.open("destinations")
    page.get_by_role("button", name="Rotate").first.click()
    look("rotation")
    page = people.open("shortfalls")
    page.get_by_role("button", name="Settle").click()
    look("settlement")
    page = people.open(f"order/{known['order']}")
    page.get_by_label("Notes").fill(f"{scheme} {viewport}")
    order = house.get(f"/orders/{known['order']}")
    house.send("PATCH", f"/orders/{known['order']}", {"baseVersion": order["version"], "notes": f"by Kenji {scheme} {viewport}", "customerPo": "PO-7741"}, person=1)
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Save what was chosen").wait_for()
    look("conflict")
    assert {name: rules for name, rules in found.items() if rules} == {}


def test_the_page_of_whoever_is_not_signed_in_keeps_nobody_out(stack, window, screens):
    for scheme in ["light", "dark"]:
        page = window(scheme=scheme).page
        page.goto(f"{stack.url}/console#/stock")
        page.wait_for_selector("h1")
        page.screenshot(path=screens / f"sign-in-{scheme}.png")
        assert serious(page) == []
