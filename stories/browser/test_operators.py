"""Operators: dead letters, exceptions, shortfalls, destinations; and that partners' text stays text."""

import csv
import re

from stack import http, until

MARKUP = "<img src=x onerror=\"document.title='owned'\">"


def counted(page, name):
    return page.locator(f"[data-count={name}]")


def test_a_dead_letter_is_read_the_partner_mended_and_the_group_sent_again_and_delivered(house, window):
    house.webhook("Legacy EDI", maxAttempts=1, eventTypes=["order.created"])
    house.stack.behave(503)
    for _ in range(3):
        house.order({"FJORD-OAT-S": 1})
    house.stack.relay()
    page = window(house.token()).open("dead-letters")
    until(lambda: counted(page, "deadLetters").inner_text() == "3", "three dead letters are counted")
    assert "HTTP 503" in page.locator("pre.cause").inner_text() and page.locator("pre.cause").count() == 1
    page.get_by_role("button", name="Show them").click()
    page.get_by_role("link", name="order.created").first.click()
    page.wait_for_selector(".view.event")
    assert "HTTP 503" in page.locator(".view.event pre").first.inner_text()
    attempt = page.get_by_role("table", name="Attempts").get_by_role("row").last
    assert re.search(r"503\s+[\d,]+\xa0?\s*ms\s+HTTP 503", attempt.inner_text()), attempt.inner_text()
    assert '"aggregate"' in page.locator(".view.event").inner_text()
    house.stack.behave(200)
    page.get_by_role("link", name=re.compile("Dead letters")).click()
    page.get_by_role("button", name="Send 3 again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    page.get_by_text("3 events are pending again.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_text("No dead letters").wait_for()
    house.stack.relay()
    assert {event["state"] for event in house.get("/admin/outbox?type=order.created")["items"]} == {"delivered"}
    until(lambda: counted(page, "deadLetters").inner_text() == "", "nothing is counted any more")


def test_only_the_group_of_one_cause_is_sent_again(house, window):
    house.webhook("Legacy EDI", maxAttempts=1, eventTypes=["order.created"])
    for status in (503, 500):
        house.stack.behave(status)
        house.order({"FJORD-OAT-S": 1})
        house.stack.relay()
    house.stack.behave(200)
    page = window(house.token()).open("dead-letters")
    group = page.locator(".panel", has_text="HTTP 500")
    group.get_by_role("button", name="Send 1 again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    page.get_by_text("1 event is pending again.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.locator("pre.cause", has_text="HTTP 500").wait_for(state="detached")
    assert "HTTP 503" in page.locator("pre.cause").inner_text()
    page.get_by_role("button", name="Discard all").click()
    page.get_by_label(re.compile("Why")).fill("The gateway is retired.")
    page.get_by_role("dialog").get_by_role("button", name="Discard all").click()
    page.get_by_text("1 event is discarded.").wait_for()
    assert [event["state"] for event in house.get("/admin/outbox?state=discarded")["items"]] == ["discarded"]


def test_thousands_of_dead_letters_are_sent_again_in_bounded_calls_and_the_progress_is_shown(house, window):
    house.webhook("Legacy EDI")
    house.dead(4_501, "HTTP 503 Service Unavailable")
    page = window(house.token()).open("dead-letters")
    page.get_by_text("The newest 1,000 are shown by their causes").wait_for()
    sent, told = [], []

    def slowly(route):
        sent.append(route.request.headers["idempotency-key"])
        answer = route.fetch()
        told.append(page.get_by_role("dialog").locator("[role=status]").first.inner_text())
        route.fulfill(response=answer)

    page.route("**/admin/outbox/requeue", slowly)
    page.get_by_role("button", name="Send all 4,501 again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    page.get_by_text("4,501 events are pending again.").wait_for()
    assert told == ["", "2,000 of 4,501", "4,000 of 4,501"] and len(set(sent)) == 3
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_text("No dead letters").wait_for()


def test_what_a_filter_finds_is_discarded_or_sent_again_whole(house, window):
    destination = house.webhook("Legacy EDI")
    house.dead(60, "HTTP 500")
    house.order({"FJORD-OAT-S": 1})
    page = window(house.token()).open(f"events?state=dead&destination={destination['id']}")
    assert page.locator("a.row").count() == 50
    page.get_by_role("button", name="Discard all of these").click()
    page.get_by_label(re.compile("Why")).fill("Out of business.")
    page.get_by_role("dialog").get_by_role("button", name="Discard all").click()
    page.get_by_text("60 events are discarded.").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    page.get_by_text("No event fits").wait_for()
    house.stack.relay()
    page.get_by_label("State").select_option("delivered")
    page.get_by_role("button", name="Send all of these again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send again").click()
    page.get_by_text("1 event is pending again.").wait_for()
    states = [event["state"] for event in house.get("/admin/outbox?limit=200")["items"]]
    assert (states.count("discarded"), states.count("pending")) == (60, 1)


def test_a_destination_is_deleted_with_what_waits_and_its_dead_letters_can_only_be_discarded(house, window):
    house.webhook("Legacy EDI")
    house.dead(3, "HTTP 500")
    house.order({"FJORD-OAT-S": 1})
    page = window(house.token()).open("destinations")
    page.get_by_role("button", name="Delete").click()
    page.get_by_label(re.compile("Why")).fill("Out of business.")
    page.get_by_role("dialog").get_by_role("button", name="Delete it").click()
    page.get_by_text("Legacy EDI is deleted; 1 event that waited is discarded.").wait_for()
    page.get_by_text("No destinations yet").wait_for()
    page.get_by_role("link", name=re.compile("Dead letters")).click()
    page.get_by_role("heading", name="A deleted destination").wait_for()
    assert page.get_by_role("button", name=re.compile("again$")).all_inner_texts() == ["Look again"]
    page.get_by_role("button", name="Show them").click()
    page.locator("a.row").first.click()
    page.wait_for_selector(".view.event")
    assert page.get_by_role("button", name="Send again").count() == 0 and page.get_by_text("a deleted destination").count() == 1
    page.go_back()
    page.get_by_role("button", name="Discard all").click()
    page.get_by_label(re.compile("Why")).fill("Out of business.")
    page.get_by_role("dialog").get_by_role("button", name="Discard all").click()
    page.get_by_text("3 events are discarded.").wait_for()


def test_a_secret_that_became_known_is_replaced_at_once(house, window):
    destination = house.webhook()
    before = house.get(f"/admin/destinations/{destination['id']}/secret")["secret"]
    page = window(house.token()).open("destinations")
    page.get_by_role("button", name="Rotate").click()
    page.get_by_role("dialog").get_by_role("button", name="At once").click()
    page.get_by_role("heading", name="Signing secret of Northbound EDI").wait_for()
    shown = page.get_by_role("dialog").locator("code").inner_text()
    live = house.get(f"/admin/destinations/{destination['id']}/secret")
    assert shown == live["secret"] != before and len(live["secrets"]) == 1


def test_a_night_that_is_held_back_is_read_taken_away_as_csv_and_decided(house, window):
    there = {code: sku["onHand"] for code, sku in house.skus.items()}
    house.reconcile({**there, "FJORD-OAT-L": 1_000, "TERN-BLK-S": there["TERN-BLK-S"] - 2, "NOSUCH-S": 4})
    page = window(house.token()).open("reconcile")
    until(lambda: counted(page, "held").inner_text() == "1", "the run that waits is counted")
    page.locator("a.row").click()
    page.get_by_text("It waits for your decision.").wait_for()
    row = page.get_by_role("row", name=re.compile("FJORD-OAT-L"))
    assert "+892" in row.inner_text() and page.get_by_role("row", name=re.compile("NOSUCH-S")).count() == 1

    def one_line_first(route):
        # A part of the file, as of a night with more findings than the server puts into one.
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text() if "after=" in route.request.url else "".join(answer.text().splitlines(keepends=True)[:2]))

    page.route("**/variances.csv*", one_line_first)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    table = list(csv.DictReader(open(download.value.path(), newline="", encoding="utf-8")))
    # Counts of this minute are kept even where they agree, since what moved may not have been committed yet.
    assert sorted((line["kind"], line["sku"], line["variance"]) for line in table if line["variance"] != "0") == [("unknown", "NOSUCH-S", ""), ("variance", "FJORD-OAT-L", "892"), ("variance", "TERN-BLK-S", "-2")]
    assert download.value.suggested_filename.startswith("reconciliation-")
    page.get_by_role("button", name="Book it").click()
    page.get_by_role("dialog").get_by_role("button", name="Book it").click()
    page.get_by_text("It is being booked.").wait_for()
    house.stack.invoke("reconcile", {"tenantId": house.id})
    page.locator(".head .badge", has_text="done").wait_for()
    assert house.sku("FJORD-OAT-L")["onHand"] == 1_000
    until(lambda: counted(page, "held").inner_text() == "", "nothing is counted any more")


def test_what_partners_and_people_write_stays_text(house, window):
    house.send("PATCH", f"/customers/{house.customers['Kioto Select']}", {"baseVersion": 1, "name": MARKUP})
    order = house.order({"FJORD-OAT-S": 1}, "Kioto Select", customerPo=MARKUP, notes=MARKUP)
    destination = house.webhook(MARKUP)
    event = house.get(f"/admin/outbox?destination={destination['id']}")
    house.stack.relay()
    house.order({"FJORD-OAT-S": 1})
    event = house.get(f"/admin/outbox?destination={destination['id']}")["items"][0]
    # What a partner answers is kept as the error; this one answers in markup.
    db = house.stack
    db.sql(f"update outbox set last_error = $q${MARKUP}$q$, dead_lettered_at = now() where id = {int(event['id'])}")
    db.sql(f"update wholesale_order set number = $q${MARKUP}$q$ where id = '{order['id']}'")
    db.threepl(house.account, house.secret, {"type": "asn.created", "asnId": MARKUP, "lines": [{"lineId": "1", "sku": MARKUP, "qty": 1}]})
    maya = window(house.token())
    views = ["orders", f"order/{order['id']}", "customers", f"customer/{house.customers['Kioto Select']}", "destinations", "events", f"event/{event['id']}", "dead-letters", "exceptions", "overview"]
    for view in views:
        page = maya.open(view)
        assert MARKUP in page.locator("main").inner_text() or MARKUP in " ".join(page.locator("main input, main textarea").evaluate_all("all => all.map((e) => e.value)")), view
        assert page.locator("img").count() == 0, view
        assert page.title() != "owned", view
    page.get_by_role("link", name=re.compile("Exceptions")).click()
    page.get_by_text("The body as it came").click()
    assert page.locator("img").count() == 0


def test_an_exception_is_read_mended_and_tried_again(house, window, tmp_path):
    house.stack.threepl(house.account, house.secret, {"type": "asn.created", "asnId": "ASN-1", "lines": [{"lineId": "1", "sku": "HARBOR-GRN-M", "qty": 30}]})
    page = window(house.token()).open("exceptions")
    card = page.locator("article", has_text="asn.created")
    card.get_by_text("The body as it came").click()
    assert '"HARBOR-GRN-M"' in card.locator("pre").inner_text() and "Create the SKU" in card.inner_text()
    card.get_by_role("button", name="Try again").click()
    page.locator("#alerts", has_text="still not possible").wait_for()
    house._import(tmp_path, "skus", ["code", "style"], [("HARBOR-GRN-M", "Harbor Jacket")])
    # What comes may have run it already.
    if house.get("/admin/exceptions?state=open")["items"]:
        page.get_by_role("button", name="Try all again").click()
        page.get_by_role("dialog").get_by_role("button", name="Try all again").click()
        page.get_by_text("1 exception is processed.").wait_for()
        page.get_by_role("dialog").get_by_role("button", name="Close").click()
    else:
        page.reload()
    page.get_by_text("Nothing waits here").wait_for()
    until(lambda: counted(page, "exceptions").inner_text() == "", "nothing is counted any more")
    assert [sku["onOrder"] for sku in house.get("/skus?q=HARBOR-GRN-M")["items"]] == [30]


def test_a_shortfall_is_settled_with_a_note(house, window):
    message = {"asnId": "ASN-2", "lines": [{"lineId": "1", "sku": "HARBOR-NVY-M", "qty": 10}]}
    house.stack.threepl(house.account, house.secret, {"type": "asn.created", **message})
    house.allocate(house.order({"HARBOR-NVY-M": 16}), {"HARBOR-NVY-M": 16})
    house.stack.threepl(house.account, house.secret, {"type": "asn.cancelled", "asnId": "ASN-2"})
    page = window(house.token()).open("shortfalls")
    page.get_by_role("button", name="Settle").click()
    page.get_by_label("How was it settled?").fill("The customer takes ten fewer.")
    page.get_by_role("dialog").get_by_role("button", name="Settle").click()
    page.get_by_text("No shortfalls").wait_for()
    assert house.get("/admin/shortfalls?state=settled")["items"][0]["note"] == "The customer takes ten fewer."


def test_a_destination_is_set_up_its_secret_copied_and_tested_on_the_spot(house, window, screens):
    page = window(house.token()).open("destinations")
    page.get_by_role("button", name="New destination").click()
    page.get_by_role("button", name=re.compile("^Webhook")).click()
    page.get_by_label("Name").fill("Northbound EDI")
    page.get_by_label("Address").fill("http://10.0.0.1/x")
    page.get_by_role("button", name="Set it up").click()
    # What the server refuses is said at the field, inside the dialog.
    page.get_by_role("dialog").locator("#alerts").wait_for()
    assert page.get_by_label("Address").get_attribute("aria-invalid") == "true"
    page.get_by_label("Address").fill(f"{house.stack.partner}/webhooks/00000000-0000-4000-8000-000000000001")
    page.get_by_role("button", name="Set it up").click()
    page.get_by_role("heading", name="Northbound EDI is set up").wait_for()
    secret = page.get_by_role("dialog").locator("code").inner_text()
    page.get_by_role("button", name="Copy").click()
    assert secret.startswith("whsec_") and page.evaluate("navigator.clipboard.readText()") == secret
    page.get_by_role("button", name="Send a test event").click()
    page.get_by_text("Sending …").wait_for()
    until(lambda: house.get("/admin/outbox?type=destination.test")["items"], "the test event is written")
    house.stack.relay()
    page.get_by_role("dialog").locator(".badge", has_text="delivered").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    # It was shown once: to see it again is a decision of its own.
    page.get_by_role("button", name="Secret").click()
    assert page.get_by_text(secret).count() == 0
    page.get_by_role("dialog").get_by_role("button", name="Show it").click()
    page.get_by_text(secret).wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    assert page.get_by_text(secret).count() == 0
    page.get_by_role("button", name="Pause").click()
    page.locator("article .badge", has_text="paused").wait_for()


def test_attempts_of_the_last_hour_are_drawn_and_told_in_words(house, window):
    house.webhook()
    house.order({"FJORD-OAT-S": 1})
    house.stack.relay()
    page = window(house.token()).open("overview")
    drawn = page.get_by_role("img", name=re.compile(r"Per minute: [1-9]\d* delivered and 0 failed"))
    drawn.first.wait_for()
    page.get_by_label("Span").select_option("day")
    page.get_by_role("img", name=re.compile("Per hour: [1-9]")).first.wait_for()


def test_what_somebody_may_not_do_is_not_offered(house, window):
    order = house.order({"FJORD-OAT-S": 1})
    reader = window(house.token(scope="orders:read"))
    page = reader.open("orders")
    assert page.get_by_role("navigation").get_by_role("link").all_inner_texts() == ["Orders", "Customers", "Stock", "Invoices"]
    assert page.get_by_role("link", name="New order").count() == 0
    page = reader.open(f"order/{order['id']}")
    assert page.locator("main button:visible").all_inner_texts() == []
    operator = window(house.token(scope="outbox:admin")).open("overview")
    assert operator.get_by_role("navigation").get_by_role("link", name="Orders").count() == 0


def test_the_page_is_small_and_is_not_fetched_twice(stack, house, window):
    maya = window(house.token())
    sizes = {}
    maya.page.on("response", lambda response: sizes.setdefault(response.url, []).append(response.headers.get("cache-control")) if "/console/" in response.url else None)
    maya.open("orders")
    for view in ["stock", "overview"]:
        maya.page.goto(f"{stack.url}/console#/{view}")
        maya.page.wait_for_selector(f".view.{view}")
    assert sizes and all(set(kept) == {"public, max-age=31536000, immutable"} for kept in sizes.values()), sizes
    assert http("GET", next(iter(sizes)))[0] == 200
