"""Signing in by an issuer or by a token; the end of a token; signing out."""

import re

from stack import until


def test_an_issuer_signs_people_in_and_brings_them_back_to_where_they_were(house, issuer, stack, window):
    order = house.order({"FJORD-OAT-S": 1})
    issuer.token, issuer.refuse = house.token(), None
    page = window().page
    page.goto(f"{stack.url}/console#/order/{order['id']}")
    page.get_by_role("button", name="Sign in", exact=True).first.click()
    page.wait_for_selector(".view.order")
    # Neither code nor state stays in the address, and the verifier is gone.
    assert page.url == f"{stack.url}/console#/order/{order['id']}"
    assert page.evaluate("Object.keys(sessionStorage).filter((name) => name !== 'holdfast.token')") == []
    assert page.evaluate("Object.keys(localStorage)") == []
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign in", exact=True).first.wait_for()
    assert page.evaluate("sessionStorage.length") == 0


def test_a_refused_and_a_foreign_sign_in_are_told_and_let_nobody_in(house, issuer, stack, window):
    issuer.token, issuer.refuse = house.token(), "access_denied"
    page = window().page
    page.goto(f"{stack.url}/console")
    page.get_by_role("button", name="Sign in", exact=True).first.click()
    page.get_by_text("The sign-in was refused: Not today.").wait_for()
    issuer.refuse = None
    # A code that somebody else's sign-in brought about (CSRF).
    page.goto("about:blank")
    page.goto(f"{stack.url}/console?code=stolen&state=stolen")
    page.get_by_text("This sign-in was not begun here").wait_for()
    assert page.evaluate("sessionStorage.getItem('holdfast.token')") is None


def test_a_token_is_pasted_on_a_page_of_its_own_and_an_expired_one_is_not_taken(house, stack, window, screens):
    page = window().page
    page.goto(f"{stack.url}/console#/customers")
    page.get_by_text("Use a token or an API key").click()
    page.get_by_label("Token or API key").fill(house.stack.token(house.id, house.users[0], seconds=-60))
    page.locator("form").get_by_role("button", name="Sign in").click()
    page.get_by_text("This token has expired.").wait_for()
    page.get_by_label("Token or API key").fill(house.token())
    page.locator("form").get_by_role("button", name="Sign in").click()
    page.wait_for_selector(".view.customers")


def test_of_an_api_key_only_what_it_may_do_is_offered_and_an_unknown_one_is_not_taken(house, stack, window):
    page = window().page

    def sign_in(key):
        page.get_by_text("Use a token or an API key").click()
        page.get_by_label("Token or API key").fill(key)
        page.locator("form").get_by_role("button", name="Sign in").click()

    order = house.order({"FJORD-OAT-S": 1})
    page.goto(f"{stack.url}/console#/order/{order['id']}")
    sign_in("hf_" + "0" * 43)
    page.get_by_text("This token or API key is not known").wait_for()
    sign_in(house.key("orders:read"))
    page.wait_for_selector(".view.order")
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Orders", "Customers", "Stock", "Invoices"]
    assert page.locator("main button:visible").all_inner_texts() == []
    page.get_by_role("button", name="Sign out").click()
    sign_in(house.key("orders:read", "orders:write", "outbox:admin"))
    page.get_by_role("button", name="Commit all 1").wait_for()
    assert page.get_by_role("navigation").get_by_role("link", name="Destinations").count() == 1
    page.goto(f"{stack.url}/console#/customer/{house.customers['Boutique Nord']}")
    page.wait_for_selector(".view.customer")
    assert page.get_by_role("button", name="Save").count() == 0
    # Nothing of all that was recorded or changed.
    assert house.get("/orders")["items"] == [house.get(f"/orders/{order['id']}")]


def test_the_end_of_a_token_is_told_before_the_work_is_lost_and_a_new_one_goes_on_with_it(house, issuer, window):
    order = house.order({"FJORD-OAT-S": 1})
    # Within the time in which the page warns.
    page = window(house.stack.token(house.id, house.users[0], seconds=100)).open(f"order/{order['id']}")
    page.get_by_text(re.compile("Your sign-in ends in")).wait_for()
    page.get_by_label("Notes").fill("Half a thought")
    issuer.token, issuer.refuse = house.token(), None
    page.get_by_role("button", name="Sign in again").click()
    with page.expect_popup() as small:
        page.get_by_role("dialog").get_by_role("button", name="Sign in", exact=True).first.click()
    page.get_by_text("Signed in.").wait_for()
    # What windows do is heard of only while one waits by Playwright's own clock.
    until(lambda: page.wait_for_timeout(50) or small.value.is_closed(), "the small window closes itself")
    assert page.get_by_label("Notes").input_value() == "Half a thought"
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved as version 2.").wait_for()


def test_a_token_that_ends_in_the_middle_of_a_save_is_renewed_and_the_save_happens_once(house, window):
    order = house.order({"FJORD-OAT-S": 1})
    page = window(house.token()).open(f"order/{order['id']}")
    page.get_by_label("Notes").fill("Half a thought")
    # As if it had been withdrawn: well formed, and refused.
    page.evaluate("sessionStorage.setItem('holdfast.token', sessionStorage.getItem('holdfast.token').slice(0, -8) + 'AAAAAAAA')")
    page.get_by_role("button", name="Save", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("Use a token or an API key").click()
    dialog.get_by_label("Token or API key").fill(house.token())
    dialog.locator("form").get_by_role("button", name="Sign in").click()
    page.get_by_text("Saved as version 2.").wait_for()
    assert house.get(f"/orders/{order['id']}")["version"] == 2


def test_what_was_typed_is_there_after_a_reload(house, window):
    order = house.order({"FJORD-OAT-S": 1})
    page = window(house.token()).open(f"order/{order['id']}")
    page.get_by_label("Notes").fill("Half a thought")
    page.get_by_text("1 change not saved").wait_for()
    page.reload()
    page.wait_for_selector(".view.order")
    assert page.get_by_label("Notes").input_value() == "Half a thought"
