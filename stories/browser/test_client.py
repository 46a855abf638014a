"""client.js, in the browser and in Node; and the page's own rules for size runs and conflicts."""

import json
import pathlib
import shutil
import subprocess

import playwright
import pytest

from stack import PATIENCE_SECS, ROOT

CASES = pathlib.Path(__file__).with_name("client_cases.mjs")
PAGE = ROOT / "functions/console/page"
RUN = """import { run } from '%s'; import * as lib from '%s'; console.log(JSON.stringify(await run(lib)));"""


def test_the_client_keeps_its_promises_in_a_browser(house, window):
    page = window(house.token()).open("orders")
    folder = page.evaluate("document.querySelector('script[type=module]').src.replace('/app.js', '')")
    # The cases come from the page's own origin, as its policy wants it.
    page.route("**/client_cases.mjs", lambda route: route.fulfill(path=CASES, content_type="text/javascript"))
    result = page.evaluate("async (folder) => (await import(`${folder}/client_cases.mjs`)).run(await import(`${folder}/client.js`))", folder)
    assert result["failed"] == {} and result["ran"] >= 14


def test_the_client_keeps_its_promises_in_node(tmp_path):
    # Playwright brings a Node for its driver; whoever has one of their own uses that.
    node = shutil.which("node") or next(iter(pathlib.Path(playwright.__file__).parent.glob("driver/node*")), None)
    if node is None:
        pytest.skip("there is no Node")
    # Where no package.json says so, a module is told by its name.
    lib = tmp_path / "client.mjs"
    lib.write_text((PAGE / "client.js").read_text())
    main = tmp_path / "main.mjs"
    main.write_text(RUN % (CASES.as_uri(), lib.as_uri()))
    ran = subprocess.run([node, str(main)], capture_output=True, text=True, timeout=PATIENCE_SECS, check=False)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["failed"] == {} and result["ran"] >= 14


def module(page, name):
    return page.evaluate("document.querySelector('script[type=module]').src").replace("app.js", name)


@pytest.mark.parametrize("pasted, lines, wrong", [
    ("HARBOR-NVY-S\t12\nHARBOR-NVY-M\t1,200\n", {"HARBOR-NVY-S": 12, "HARBOR-NVY-M": 1200}, 0),
    ("SKU\tQty\nA-1\t3\nA-1\t4\n", {"A-1": 7}, 0),
    ("\tS\tM\tL\nRUN-A\t1\t\t3\n", {"RUN-A-S": 1, "RUN-A-L": 3}, 0),
    ("A;5\nB;x\nC\n", {"A": 5}, 2),
    ("A\t1.5\nB\t-2\nC\t0\n", {}, 2),
    ("", {}, 0),
])
def test_cells_of_a_spreadsheet_are_read(house, window, pasted, lines, wrong):
    page = window(house.token()).open("stock")
    read = page.evaluate("async ([url, text]) => (await import(url)).readPaste(text)", [module(page, "size-run.js"), pasted])
    assert ({line["code"]: line["qty"] for line in read["lines"]}, len(read["wrong"])) == (lines, wrong)


def test_the_machine_chooses_only_where_one_side_alone_has_changed(house, window):
    page = window(house.token()).open("stock")
    compare = """async ([url, base, theirs, yours]) => (await import(url)).compare([{ name: 'po' }, { name: 'notes' }], [{ name: 'qty a' }, { name: 'qty b' }], base, theirs, yours).map((row) => [row.name, row.side])"""
    base = {"po": "1", "notes": None, "qty a": 1, "qty b": 1}

    def sides(theirs, yours):
        return dict(page.evaluate(compare, [module(page, "conflict.js"), base, {**base, **theirs}, {**base, **yours}]))

    assert sides({"po": "2"}, {"notes": "n"}) == {"po": "theirs", "notes": "yours"}
    assert sides({"po": "2"}, {"po": "3"}) == {"po": "both"}
    assert sides({"po": "2"}, {"po": "2"}) == {"po": "same"}
    assert sides({"po": "2"}, {"qty a": 2}) == {"po": "theirs", "qty a": "yours"}
    # A size run that both have changed is chosen line by line, though they changed different lines.
    assert sides({"qty a": 2}, {"qty b": 2}) == {"qty a": "both", "qty b": "both"}
