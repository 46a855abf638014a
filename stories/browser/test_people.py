"""Account managers: orders, commitment, two people on one order."""

import datetime
import re

from stack import until

RUN = {"HARBOR-NVY-S": 12, "HARBOR-NVY-M": 6, "HARBOR-NVY-L": 12}


def order_keys(page, suffix):
    """The idempotency keys of the requests to addresses that end so, as they are sent."""
    keys = []
    page.on("request", lambda request: keys.append(request.headers.get("idempotency-key")) if request.method != "GET" and request.url.endswith(suffix) else None)
    return keys


def test_two_people_change_different_things_and_the_second_rebases_with_one_click(house, window):
    order = house.order(RUN)
    maya, kenji = window(house.token(0)).open(f"order/{order['id']}"), window(house.token(1)).open(f"order/{order['id']}")
    maya.get_by_label("Notes").fill("Call the dock.")
    kenji.get_by_label("Customer PO").fill("PO-9")
    kenji.get_by_role("button", name="Save", exact=True).click()
    kenji.get_by_text("Saved as version 2.").wait_for()
    # Maya sees that somebody has saved before she saves.
    maya.get_by_text(re.compile("Kenji Sato saved version 2")).first.wait_for()
    maya.get_by_role("button", name="Save", exact=True).click()
    dialog = maya.get_by_role("dialog")
    dialog.get_by_text("You changed different things.").wait_for()
    assert [cell.strip() for cell in dialog.locator("thead th").all_inner_texts()][1:] == ["You loaded", "Theirs", "Yours"]
    assert "Kenji Sato saved" in dialog.inner_text() and dialog.get_by_role("radio").count() == 0
    dialog.get_by_role("button", name="Rebase & save").click()
    maya.get_by_text("Saved as version 3.").wait_for()
    stored = house.get(f"/orders/{order['id']}")
    assert (stored["notes"], stored["customerPo"], stored["version"]) == ("Call the dock.", "PO-9", 3)


def test_two_people_change_the_same_and_nothing_is_chosen_for_them(house, window, screens):
    order = house.order(RUN, customerPo="PO-1", notes="old")
    maya_window = window(house.token(0))
    maya, kenji = maya_window.open(f"order/{order['id']}"), window(house.token(1)).open(f"order/{order['id']}")
    kenji.get_by_label("Customer PO").fill("PO-KENJI")
    kenji.get_by_label("Ordered HARBOR-NVY-S").fill("20")
    kenji.get_by_role("button", name="Save", exact=True).click()
    kenji.get_by_text("Saved as version 2.").wait_for()
    maya.get_by_label("Customer PO").fill("PO-MAYA")
    maya.get_by_label("Ordered HARBOR-NVY-L").fill("24")
    maya.get_by_label("Notes").fill("new")
    maya.get_by_role("button", name="Save", exact=True).click()
    dialog = maya.get_by_role("dialog")
    save = dialog.get_by_role("button", name="Save what was chosen")
    save.wait_for()
    # The PO, and every line of the size run that differs: each is a choice, and none is made.
    assert dialog.get_by_role("radio").count() == 6 and dialog.get_by_role("radio", checked=True).count() == 0
    assert save.is_disabled()
    maya.screenshot(path=screens / "conflict-light.png")
    dialog.get_by_label("Customer PO, theirs").check()
    dialog.get_by_label("HARBOR-NVY-S, theirs").check()
    assert save.is_disabled() and "Choose 1 more" in dialog.inner_text()
    dialog.get_by_label("HARBOR-NVY-L, yours").check()
    keys = order_keys(maya, order["id"])
    save.click()
    maya.get_by_text("Saved as version 3.").wait_for()
    stored = house.get(f"/orders/{order['id']}")
    assert (stored["customerPo"], stored["notes"]) == ("PO-KENJI", "new")
    assert {line["code"]: line["qty"] for line in stored["lines"]} == {"HARBOR-NVY-S": 20, "HARBOR-NVY-M": 6, "HARBOR-NVY-L": 24}
    assert len(set(keys)) == 1


def test_a_double_click_and_a_reload_in_mid_flight_commit_once(house, window):
    order = house.order({"HARBOR-NVY-L": 12})
    page = window(house.token()).open(f"order/{order['id']}")
    keys = order_keys(page, "/allocate")
    arrived = []

    def hold(route):
        # The first reaches the server, and its answer never the page.
        if arrived:
            route.continue_()
        else:
            route.fetch()
            arrived.append(route)

    page.route("**/allocate", hold)
    page.get_by_role("button", name="Commit all 12").dblclick()
    until(lambda: page.wait_for_timeout(50) or arrived, "the request arrives")
    page.reload()
    notice = page.get_by_text("No answer was seen.")
    notice.wait_for()
    page.get_by_role("button", name="Find out").click()
    page.get_by_text("It is done, once.").wait_for()
    assert len(keys) == 2 and keys[0] == keys[1], keys
    assert notice.count() == 0
    line = house.get(f"/orders/{order['id']}")["lines"][0]
    assert (line["qtyAllocated"], house.sku("HARBOR-NVY-L")["allocated"]) == (12, 12)


def test_an_answer_that_is_lost_on_the_way_is_asked_for_again_and_it_happens_once(house, window):
    order = house.order({"HARBOR-NVY-L": 12})
    page = window(house.token()).open(f"order/{order['id']}")
    keys = order_keys(page, "/allocate")
    lost = []

    def lose(route):
        if len(lost) < 2:
            route.fetch()
            lost.append(1)
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/allocate", lose)
    page.get_by_role("button", name="Commit all 12").click()
    page.get_by_text("Committed 12 units.").wait_for()
    assert len(keys) == 3 and len(set(keys)) == 1
    assert house.sku("HARBOR-NVY-L")["allocated"] == 12


def test_while_offline_a_commitment_waits_and_goes_on_by_itself(house, window):
    order = house.order({"HARBOR-NVY-L": 12})
    maya = window(house.token())
    page = maya.open(f"order/{order['id']}")
    maya.context.set_offline(True)
    page.get_by_role("button", name="Commit all 12").click()
    page.get_by_text("You are offline.").wait_for()
    assert house.sku("HARBOR-NVY-L")["allocated"] == 0
    maya.context.set_offline(False)
    page.get_by_text("Committed 12 units.").wait_for()
    assert house.sku("HARBOR-NVY-L")["allocated"] == 12


def test_a_refusal_says_beside_the_line_how_much_is_short_and_what_there_is_can_be_taken(house, window):
    order = house.order({"HARBOR-NVY-S": 12, "HARBOR-NVY-M": 18})
    page = window(house.token()).open(f"order/{order['id']}")
    page.get_by_role("button", name="Commit all 30").click()
    page.get_by_role("row", name=re.compile("HARBOR-NVY-M")).get_by_text("Short by 12: 6 left to sell").wait_for()
    assert "Not done" in page.locator("#alerts").inner_text()
    page.get_by_role("button", name="Commit what there is").click()
    page.get_by_text("Committed 18 units of 30.").wait_for()
    assert house.sku("HARBOR-NVY-M")["ats"] == 0


def test_what_is_left_to_sell_moves_while_one_looks(house, window):
    order, other = house.order({"HARBOR-NVY-M": 6}), house.order({"HARBOR-NVY-M": 6})
    page = window(house.token()).open(f"order/{order['id']}")
    left = page.locator(f"[data-ats='{house.skus['HARBOR-NVY-M']['id']}']")
    until(lambda: left.inner_text() == "6", "the ATS is shown")
    house.allocate(other, {"HARBOR-NVY-M": 4}, person=1)
    until(lambda: left.inner_text() == "2", "the ATS is followed")


def test_what_is_left_to_sell_is_shown_and_followed_on_every_line_of_a_long_order(house, window, tmp_path):
    codes = [f"RUN{n:02}-BLK-{size}" for n in range(20) for size in ("S", "M")]
    house._import(tmp_path, "skus", ["code", "style"], [(code, "Tern Parka") for code in codes])
    house._import(tmp_path, "stock", ["code", "onHand"], [(code, 1000 + n) for n, code in enumerate(codes)])
    house.skus = {sku["code"]: sku for sku in house.get("/skus?limit=200")["items"]}
    order, other = house.order(dict.fromkeys(codes, 3)), house.order({codes[-1]: 5})
    page = window(house.token()).open(f"order/{order['id']}")
    until(lambda: page.locator("[data-ats]").all_inner_texts() == [f"{1000 + codes.index(code):,}" for run in range(20) for code in codes[2 * run:2 * run + 2]], "all are shown")
    house.allocate(other, {codes[-1]: 5}, person=1)
    left = page.locator(f"[data-ats='{house.skus[codes[-1]]['id']}']")
    until(lambda: left.inner_text() == "1,034", "the last one is followed, too")


def test_an_order_in_another_currency_has_no_price_until_somebody_enters_one(house, window, tmp_path):
    house._import(tmp_path, "customers", ["name", "currency", "creditLimitMinor"], [("Zürcher & Co", "CHF", "")])
    page = window(house.token()).open("new-order")
    # The style first: its price is in dollars as long as nobody says otherwise.
    page.get_by_role("combobox", name="Add a style or code").fill("fjord")
    page.get_by_role("option", name=re.compile("FJORD-OAT")).click()
    page.get_by_label("FJORD-OAT-S, units").fill("4")
    assert page.get_by_label("Price each, USD").input_value() == "56.00"
    page.get_by_role("combobox", name="Customer").fill("zür")
    page.get_by_role("option", name=re.compile("Zürcher")).click()
    price = page.get_by_label("Price each, CHF")
    assert price.input_value() == "" and page.get_by_text("It has a price in USD only.").count() == 1
    page.get_by_role("button", name="Create the order").click()
    assert page.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true" and house.get("/orders")["items"] == []
    price.fill("61.50")
    page.get_by_label("Notes").fill("By air.")
    # What was entered is there after a reload.
    page.reload()
    assert (price.input_value(), page.get_by_label("FJORD-OAT-S, units").input_value(), page.get_by_label("Notes").input_value()) == ("61.50", "4", "By air.")
    page.get_by_role("button", name="Create the order").click()
    page.wait_for_selector(".view.order")
    order = house.get("/orders")["items"][0]
    assert (order["currency"], [(line["qty"], line["unitPriceMinor"]) for line in order["lines"]]) == ("CHF", [(4, 6150)])
    # A SKU that is added to it has no price of its own either.
    page.get_by_role("button", name="Add SKUs").click()
    page.get_by_role("dialog").get_by_role("combobox").fill("tern")
    page.get_by_role("option", name=re.compile("TERN-BLK")).click()
    page.get_by_label("TERN-BLK-M, units").fill("2")
    page.get_by_role("button", name="Add them").click()
    assert page.get_by_label("Price of TERN-BLK-M, CHF").get_attribute("aria-invalid") == "true"
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_label("Price of TERN-BLK-M, CHF").fill("150")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved as version 2.").wait_for()


def test_with_the_keys_alone_an_order_is_created_committed_and_invoiced(house, window):
    page = window(house.token()).open("orders")
    keys = page.keyboard
    keys.press("n")
    page.wait_for_selector(".view.new-order")

    def until_focus(name, key="Tab", most=60):
        for _ in range(most):
            focused = page.evaluate("(() => { const e = document.activeElement; return e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].innerText) || e.innerText || ''; })()")
            if re.search(name, focused):
                return
            keys.press(key)
        raise AssertionError(f"the keys do not reach {name}; they are at {focused!r}")

    until_focus("^Customer$")
    keys.type("north loop")
    page.get_by_role("option", name=re.compile("North Loop")).wait_for()
    keys.press("Enter")
    until_focus("Add a style or code")
    keys.type("fjord")
    page.get_by_role("option", name=re.compile("FJORD-OAT")).wait_for()
    keys.press("Enter")
    page.get_by_label("FJORD-OAT-S, units").wait_for()
    until_focus("FJORD-OAT-S, units")
    keys.type("4")
    keys.press("Tab")
    keys.type("6")
    until_focus("^Create the order")
    keys.press("Enter")
    page.wait_for_selector(".view.order")
    until_focus("^Commit all 10")
    keys.press("Enter")
    page.get_by_text("Committed 10 units.").wait_for()
    until_focus("^Invoice USD")
    keys.press("Enter")
    page.get_by_text("Invoiced USD 560.00.").wait_for()
    order = house.get("/orders")["items"][0]
    assert [(line["code"], line["qty"], line["qtyAllocated"], line["qtyInvoiced"]) for line in order["lines"]] == [("FJORD-OAT-S", 4, 4, 4), ("FJORD-OAT-M", 6, 6, 6)]


def test_what_is_taken_from_a_list_is_what_was_typed_however_late_an_earlier_answer_comes(house, window):
    page = window(house.token()).open("new-order")
    # The page's clock stands still, so that it has not yet asked for what is typed when the late answer comes.
    page.clock.install()
    page.clock.pause_at(datetime.datetime.now() + datetime.timedelta(minutes=1))
    late = []
    page.route(re.compile(r"/customers\?q=&limit=20$"), lambda route: late.append(route))
    box = page.get_by_role("combobox", name="Customer")
    box.focus()
    until(lambda: page.wait_for_timeout(50) or late, "the list is asked for")
    page.keyboard.type("kioto")
    with page.expect_response(re.compile(r"/customers\?q=&limit=20$")) as answered:
        late[0].continue_()
    answered.value.finished()
    page.wait_for_timeout(200)
    page.keyboard.press("Enter")
    until(lambda: box.input_value() == "Kioto Select", "what was typed is taken")
    assert page.get_by_text("No credit limit").count() == 1
    # What is typed over it takes the customer away, not only its name.
    page.keyboard.type("x")
    page.get_by_text("No credit limit").wait_for(state="detached")


def test_a_list_shows_what_was_asked_last_however_late_an_earlier_answer_comes(house, window):
    wanted = house.order(RUN, customerPo="FIND-ME")
    house.order(RUN, customerPo="FALSE")
    page = window(house.token()).open("orders")
    late = []
    page.route(re.compile(r"/orders\?q=F$"), lambda route: late.append(route))
    page.get_by_role("searchbox").fill("F")
    until(lambda: page.wait_for_timeout(50) or late, "the first is asked for")
    page.get_by_role("searchbox").fill("FIND")
    until(lambda: page.locator("a.row").all_inner_texts() == [wanted["number"]], "the second is shown")
    with page.expect_response(re.compile(r"/orders\?q=F$")) as answered:
        late[0].continue_()
    answered.value.finished()
    page.wait_for_timeout(200)
    assert page.locator("a.row").all_inner_texts() == [wanted["number"]]


def test_what_happens_around_a_field_takes_no_key_from_whoever_types_in_it(house, window):
    order = house.order({"HARBOR-NVY-S": 6, "HARBOR-NVY-L": 6})
    page = window(house.token()).open(f"order/{order['id']}")
    page.get_by_label("Notes").focus()
    page.keyboard.type("Call ")
    house.send("PATCH", f"/orders/{order['id']}", {"baseVersion": 1, "customerPo": "PO-KENJI"}, person=1)
    page.get_by_text("Kenji Sato saved version 2").wait_for()
    page.keyboard.type("the dock.")
    assert page.get_by_label("Notes").input_value() == "Call the dock."
    page.get_by_role("button", name="Compare with mine").click()
    page.get_by_role("dialog").get_by_role("button", name="Rebase & save").click()
    page.get_by_text("Saved as version 3.").wait_for()
    # What another one commits is shown beside the field, and the size run follows when the field is left.
    page.get_by_label("Ordered HARBOR-NVY-L").focus()
    house.allocate(order, {"HARBOR-NVY-S": 6}, person=1)
    page.locator("dl.facts", has_text="Committed").get_by_text("6 units").wait_for()
    page.get_by_text("Kenji Sato committed 6 units of HARBOR-NVY-S").wait_for()
    page.keyboard.type("0")
    assert page.get_by_label("Ordered HARBOR-NVY-L").input_value() == "60"


def test_a_look_that_began_before_a_save_does_not_tell_of_it_as_somebody_elses(house, window):
    order = house.order({"HARBOR-NVY-S": 6})
    page = window(house.token()).open(f"order/{order['id']}")
    late = []
    page.route(f"**/orders/{order['id']}", lambda route: late.append((route, route.fetch())) if route.request.method == "GET" and not late else route.continue_())
    until(lambda: page.wait_for_timeout(50) or late, "the page looks")
    page.get_by_label("Notes").fill("Mine")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_text("Saved as version 2.").wait_for()
    route, answer = late[0]
    route.fulfill(response=answer)
    page.wait_for_timeout(300)
    assert page.get_by_text("You see version").count() == 0


def test_a_size_run_is_pasted_from_a_spreadsheet_and_what_is_wrong_is_named(house, window, screens):
    page = window(house.token()).open("new-order")
    page.get_by_role("combobox", name="Customer").fill("boutique")
    page.get_by_role("option", name=re.compile("Boutique Nord")).click()
    page.get_by_role("button", name="Paste from a spreadsheet").click()
    page.get_by_label("Cells").fill("\tS\tM\tL\nTERN-BLK\t4\t1,000\t\nNOSUCH\t1\t2\t3\n")
    page.get_by_role("button", name="Take over").click()
    page.get_by_text("3 rows could not be taken over").wait_for()
    assert page.get_by_label("TERN-BLK-M, units").input_value() == "1000"
    assert "over the credit limit" in page.locator(".standing").inner_text()
    page.get_by_label("TERN-BLK-M, units").fill("8")
    page.get_by_role("button", name="Close").click()
    page.screenshot(path=screens / "new-order-filled.png")
    page.get_by_role("button", name="Create the order").click()
    page.wait_for_selector(".view.order")
    assert {line["code"]: line["qty"] for line in house.get("/orders")["items"][0]["lines"]} == {"TERN-BLK-S": 4, "TERN-BLK-M": 8}


def test_a_filter_stands_in_the_address_and_an_address_leads_to_its_order(house, window):
    order = house.order(RUN, customerPo="FIND-ME")
    house.order(RUN, "Boutique Nord")
    maya = window(house.token())
    page = maya.open("orders")
    page.keyboard.press("/")
    page.keyboard.type("FIND")
    page.wait_for_url(re.compile("q=FIND"))
    until(lambda: page.locator("a.row").all_inner_texts() == [order["number"]], "the order alone is shown")
    page.reload()
    page.get_by_role("link", name=order["number"], exact=True).wait_for()
    assert page.get_by_role("searchbox").input_value() == "FIND" and page.locator("a.row").all_inner_texts() == [order["number"]]
    page.get_by_role("heading", name="Orders").focus()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".view.order")
    assert page.url.endswith(f"#/order/{order['id']}")


def test_a_customer_on_hold_and_its_limit_are_set_by_whoever_may_and_felt_at_once(house, window):
    order = house.order(RUN, "Boutique Nord")
    page = window(house.token()).open(f"customer/{house.customers['Boutique Nord']}")
    page.get_by_label("On hold").check()
    page.get_by_role("button", name="Save").click()
    page.get_by_text("nothing new can be ordered or committed").wait_for()
    clerk = window(house.token(1, scope="orders:read orders:write")).open(f"customer/{house.customers['Boutique Nord']}")
    assert clerk.get_by_role("button", name="Save").count() == 0
    clerk.goto(f"{house.stack.url}/console#/order/{order['id']}")
    clerk.get_by_role("button", name=re.compile("Commit all")).click()
    clerk.locator("#alerts", has_text="on hold").wait_for()


def test_an_invoice_is_paid_by_hand_and_an_order_ends(house, window):
    order = house.order({"TERN-BLK-S": 4})
    house.allocate(order, {"TERN-BLK-S": 2})
    invoice = house.send("POST", f"/orders/{order['id']}/invoices", {})
    maya = window(house.token())
    page = maya.open(f"order/{order['id']}")
    page.get_by_role("button", name="Book a payment").click()
    page.get_by_label("Amount, USD").fill("100.00")
    page.get_by_label("Reference").fill("CHEQUE-6")
    page.get_by_role("button", name="Book it").click()
    row = page.get_by_role("row", name=re.compile(invoice["id"][:8]))
    row.get_by_text("USD 184.00").wait_for()
    assert row.get_by_text("USD 100.00").count() == 1
    page.get_by_text("booked USD 100.00 (CHEQUE-6)").wait_for()
    page = maya.open(f"invoice/{invoice['id']}")
    page.get_by_role("button", name="Book a payment").click()
    page.get_by_label("Amount, USD").fill("184.00")
    page.get_by_label("Reference").fill("CHEQUE-7")
    page.get_by_role("button", name="Book it").click()
    page.locator(".head .badge", has_text="paid").wait_for()
    assert page.get_by_role("row", name=re.compile("CHEQUE-7")).get_by_text("Maya Ortiz").count() == 1
    page = maya.open(f"order/{order['id']}")
    page.get_by_role("button", name="Cancel the order").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the order").click()
    page.locator(".head .badge", has_text="cancelled").wait_for()
    assert house.sku("TERN-BLK-S")["allocated"] == 0
    page.get_by_text("cancelled the order").wait_for()
    assert page.get_by_text("booked USD 184.00 (CHEQUE-7)").count() == 1
