"""A house in the middle of a working day: what every view shows."""

RUN = {"HARBOR-NVY-XS": 6, "HARBOR-NVY-S": 12, "HARBOR-NVY-M": 18, "HARBOR-NVY-L": 12, "HARBOR-NVY-XL": 6}


def busy(house):
    """Orders in every state, invoices, deliveries that failed, exceptions, a shortfall. Returns names → ids."""
    stack = house.stack
    webhook = house.webhook()
    # Gives up at once, so that there are dead letters.
    strict = house.webhook("Legacy EDI gateway", maxAttempts=1, eventTypes=["order.created", "order.line_allocated", "sku.ats_changed"])
    stack.behave(200)
    first = house.order(RUN, customerPo="PO-7741", shipWindowStart="2027-02-01", shipWindowEnd="2027-02-28", notes="Call the dock before delivery.")
    house.allocate(first, {"HARBOR-NVY-S": 12, "HARBOR-NVY-M": 6})
    shipped = house.order({"TERN-BLK-S": 4, "TERN-BLK-M": 8}, "Boutique Nord", customerPo="BN-118")
    house.allocate(shipped, {"TERN-BLK-S": 4, "TERN-BLK-M": 8})
    stack.relay()
    stack.threepl(house.account, house.secret, {"type": "order.shipped", "orderId": shipped["id"], "shipmentId": "S-1",
                  "lines": [{"lineId": "1", "sku": "TERN-BLK-S", "qty": 4}, {"lineId": "2", "sku": "TERN-BLK-M", "qty": 8}]})
    invoice = house.send("POST", f"/orders/{shipped['id']}/invoices", {})
    house.send("POST", f"/invoices/{invoice['id']}/payments", {"amountMinor": 60_000, "reference": "BANK-2026-0117"})
    for customer, quantities, po in [("Kioto Select", {"FJORD-OAT-S": 10, "FJORD-OAT-M": 20, "FJORD-OAT-L": 10}, "KS-2027-01"), ("Maison Élise", {"HARBOR-SND-M": 30, "HARBOR-SND-L": 24}, "ME-0031"),
                                     ("Harbour & Sons", {"CHINO-OLV-30": 12, "CHINO-OLV-32": 12}, None), ("North Loop Outfitters", {"TERN-BLK-L": 6}, "PO-7742")]:
        order = house.order(quantities, customer, person=1, customerPo=po)
        if customer != "Harbour & Sons":
            house.allocate(order, quantities, person=1)
    gone = house.order({"FJORD-OAT-S": 2}, "Boutique Nord")
    house.send("POST", f"/orders/{gone['id']}/cancel", {})
    stack.relay()
    stack.behave(503)
    house.order({"CHINO-OLV-34": 8}, "Kioto Select", customerPo="KS-2027-02")
    stack.relay()
    stack.behave(200)
    house.send("PATCH", f"/customers/{house.customers['Harbour & Sons']}", {"baseVersion": house.get(f"/customers/{house.customers['Harbour & Sons']}")["version"], "onHold": True})
    # An ASN that announces what nobody knows, and one that is cancelled after its units were sold.
    stack.threepl(house.account, house.secret, {"type": "asn.created", "asnId": "ASN-88", "lines": [{"lineId": "1", "sku": "HARBOR-GRN-M", "qty": 120}]})
    stack.threepl(house.account, house.secret, {"type": "asn.created", "asnId": "ASN-90", "lines": [{"lineId": "1", "sku": "HARBOR-NVY-M", "qty": 12}]})
    sold = house.order({"HARBOR-NVY-M": 12}, "Maison Élise", customerPo="ME-0032")
    house.allocate(sold, {"HARBOR-NVY-M": 12})
    stack.threepl(house.account, house.secret, {"type": "asn.cancelled", "asnId": "ASN-90"})
    there = {code: sku["onHand"] for code, sku in house.skus.items()}
    night = house.reconcile({**there, "FJORD-OAT-L": there["FJORD-OAT-L"] + 60, "CHINO-OLV-36": there["CHINO-OLV-36"] - 3, "HARBOR-GRN-L": 24})
    dead = house.get("/admin/outbox?state=dead")["items"]
    assert dead and house.get("/admin/exceptions?state=open")["items"] and house.get("/admin/shortfalls?state=open")["items"]
    return {"order": first["id"], "shipped": shipped["id"], "invoice": invoice["id"], "customer": house.customers["Boutique Nord"], "event": dead[0]["id"], "run": night, "webhook": webhook["id"], "strict": strict["id"]}
