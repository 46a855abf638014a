"""Checks a history of `cargo xtask chaos --history FILE`, knowing only what the product promises.

    python3 chaos/check_history.py FILE

Each line of the file is a JSON object. The first is {"type":"begin","counters":[{"skuId","ats"}]}: SKUs that nothing but
allocations and releases moves, and what was available to sell. Then, by time (milliseconds, "at"):
  invoke   {"op":[intention, try], "client", "key", "method", "path", "body"}
  answer   {"op", "status", "body"}: an answer that stands
  fail     {"op"}: nothing was changed
  unknown  {"op"}: it was done once or not at all

1. All answers to one key are equal.
2. Per counter, the answers' atsAfter are a linearizable counter: there is an order of all that succeeded, in which each comes
   after whatever had ended before it began, and in which each answer is the value of that moment. What has no answer may
   stand anywhere after its beginning, or nowhere.
3. Per order, versions are given out once, each to a save of the version before it, and never backwards in time.
"""

import json
import sys
from collections import defaultdict


def read(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    begin, rest = lines[0], lines[1:]
    operations = {}
    for line in rest:
        if line["type"] == "invoke":
            # All tries of one intention are one operation: it happens once or not at all.
            one = operations.setdefault(line["op"][0], {
                "key": line["key"], "method": line["method"], "path": line["path"], "body": line["body"],
                "began": line["at"], "ended": None, "answers": [], "unknown": False})
            one["began"] = min(one["began"], line["at"])
        else:
            one = operations[line["op"][0]]
            if line["type"] == "answer":
                one["answers"].append((line["status"], line["body"]))
                one["ended"] = line["at"] if one["ended"] is None else min(one["ended"], line["at"])
            elif line["type"] == "unknown":
                one["unknown"] = True
    return begin, list(operations.values())


def equal_answers(operations):
    by_key = defaultdict(list)
    for one in operations:
        by_key[one["key"]] += one["answers"]
    return [f"key {key}: {answers}" for key, answers in by_key.items() if any(a != answers[0] for a in answers)]


def moves(operations, sku):
    """The operations that move this counter: (units, atsAfter or None, began, ended or infinity)."""
    found = []
    for one in operations:
        kind = one["path"].rsplit("/", 1)[-1]
        if kind not in ("allocate", "release") or one["body"].get("skuId") != sku:
            continue
        units = one["body"]["qty"] * (-1 if kind == "allocate" else 1)
        if one["answers"]:
            status, body = one["answers"][0]
            if status == 200:
                found.append((units, body["lines"][0]["atsAfter"], one["began"], one["ended"]))
        elif one["unknown"]:
            found.append((units, None, one["began"], float("inf")))
    return found


def linearizable(start, operations):
    """Depth first over (which are done, value), with what was seen before left out. None, or what cannot be placed."""
    operations = sorted(operations, key=lambda one: one[2])
    total = sum(1 for one in operations if one[1] is not None)
    seen, deepest = set(), (0, start)
    stack = [(0, frozenset(), start)]  # first not done, done beyond it, value
    while stack:
        first, beyond, value = stack.pop()
        while first < len(operations) and first in beyond:
            beyond = beyond - {first}
            first += 1
        state = (first, beyond, value)
        if state in seen:
            continue
        seen.add(state)
        placed = sum(1 for i in list(range(first)) + list(beyond) if operations[i][1] is not None)
        if placed == total:
            return None
        if placed > deepest[0]:
            deepest = (placed, value)
        left = [i for i in range(first, len(operations)) if i not in beyond]
        # Nothing may come before what had ended when it began.
        limit = min(operations[i][3] for i in left)
        for i in left:
            units, after, began, _ended = operations[i]
            if began > limit:
                break
            if after is None:
                stack.append((first, beyond | {i}, value))  # it never happened
            if after is None or value + units == after:
                stack.append((first, beyond | {i}, value + units))
        if len(seen) > 2_000_000:
            return "too many orders to look through"
    return f"after {deepest[0]} of {total} answers, at {deepest[1]}, nothing fits"


def versions(operations):
    wrong, by_order = [], defaultdict(list)
    for one in operations:
        parts = one["path"].strip("/").split("/")
        if one["method"] == "PATCH" and parts[0] == "orders" and one["answers"] and one["answers"][0][0] == 200:
            version = one["answers"][0][1]["version"]
            by_order[parts[1]].append((version, one["body"]["baseVersion"], one["began"], one["ended"]))
    for order, saves in by_order.items():
        saves.sort()
        for version, base, _began, _ended in saves:
            if version != base + 1:
                wrong.append(f"order {order}: version {version} was saved over {base}")
        for (version, _, _, _), (again, _, _, _) in zip(saves, saves[1:]):
            if version == again:
                wrong.append(f"order {order}: version {version} was given out twice")
        for i, (version, _, began, _) in enumerate(saves):
            for later, _, _, ended in saves[i + 1:]:
                if ended < began:
                    wrong.append(f"order {order}: version {later} had been answered before {version} was asked for")
    return wrong, sum(map(len, by_order.values()))


def main(path):
    begin, operations = read(path)
    wrong = equal_answers(operations)
    counted = 0
    for counter in begin["counters"]:
        found = moves(operations, counter["skuId"])
        counted += len(found)
        failed = linearizable(counter["ats"], found)
        if failed:
            wrong.append(f"SKU {counter['skuId']}: {failed}")
    wrong_versions, saves = versions(operations)
    wrong += wrong_versions
    for line in wrong:
        print(line)
    print(f"{len(operations)} operations, {counted} moves of counters, {saves} saves: {len(wrong)} violations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
