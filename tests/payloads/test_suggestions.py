"""Suggested rules, on the vectors and on migrations written here, with bugs that look like rules."""

import importlib.util
import json
import random
from pathlib import Path

import pytest

from driftline import payloads
from driftline.cli._outcome import run
from driftline.cli.main import driftline
from driftline.payloads._suggest.suggest import read_accepted, suggest

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payload-beyond.json").read_text())
CASES = [case for case in VECTORS if case["area"] == "suggest"]


def still_different(pairs, found, wanted):
    plan = payloads.compile(payloads.apply_rules("", read_accepted(found, [wanted])).after or "{}")
    return [number for number, (old, new) in enumerate(pairs) if not plan.compare_values(old, new).is_match]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_vectors(case):
    expect = case["expect"]
    found = suggest([tuple(pair) for pair in case["pairs"]], [tuple(pair) for pair in case.get("old_old", [])])
    told = [(one.path, one.to_dict()["rule"], one.level) for one in found]
    for wanted in expect["rules"]:
        assert (wanted["path"], wanted["rule"], wanted["level"]) in told
    assert not [path for path, _, level in told if path in expect["never_sure"] and level == "sure"]
    for key, wanted in (
        ("still_different_after_accepting_all", "all"),
        ("still_different_after_accepting_sure", "sure"),
    ):
        if expect.get(key) is not None:
            assert still_different(case["pairs"], found, wanted) == expect[key]


def documents(count, seed):
    dice = random.Random(seed)
    for number in range(count):
        lines = [
            {"code": f"C{dice.randint(0, 10**6)}", "net": round(dice.uniform(1, 900), 2), "open": dice.random() < 0.5}
            for _ in range(dice.randint(2, 5))
        ]
        yield {
            "invoice_no": f"INV-{number:05d}",
            "status": dice.choice(["DRAFT", "SENT", "PAID", "VOID"]),
            "amount": round(dice.uniform(10, 9000), 2),
            "created": f"2025-03-{dice.randint(1, 28):02d}T{dice.randint(0, 23):02d}:10:00Z",
            "seen": 1_700_000_000 + dice.randint(0, 10**7),
            "zip": dice.randint(10_000, 99_999),
            "customer": {
                "first_name": dice.choice(["Ann", "Bob", "Cid", "Dora"]) + str(number),
                "vip": dice.random() < 0.3,
            },
            "labels": dice.sample(["a", "b", "c", "d", "e", "f"], 4),
            "lines": lines,
        }


def migrated(old, dice):
    new = json.loads(json.dumps(old))
    new["invoiceNumber"] = new.pop("invoice_no")
    new["status"] = {"DRAFT": "draft", "SENT": "sent_out", "PAID": "settled", "VOID": "cancelled"}[new["status"]]
    new["amount"] = round(new["amount"] * 100)
    new["created"] = new["created"].replace("Z", "+00:00")
    from datetime import UTC, datetime

    new["seen"] = datetime.fromtimestamp(new["seen"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    new["zip"] = str(new["zip"])
    new["customer"]["firstName"] = new["customer"].pop("first_name")
    dice.shuffle(new["labels"])
    dice.shuffle(new["lines"])
    return new


TRUE_RULES = {
    "$.invoiceNumber": {"alias": "invoice_no"},
    "$.status": {"enum-map": {"DRAFT": "draft", "SENT": "sent_out", "PAID": "settled", "VOID": "cancelled"}},
    "$.amount": {"scale": 100},
    "$.created": {"datetime-format": "ISO8601"},
    "$.seen": {"datetime-format": {"old": "epoch", "new": "ISO8601"}},
    "$.zip": {"cast": "string"},
    "$.customer.firstName": {"alias": "first_name"},
    "$.labels": {"array-mode": "unordered"},
    "$.lines": {"array-mode": "keyed", "array-key": "code"},
}


@pytest.mark.parametrize("seed", range(3))
def test_a_migration_is_found_and_faults_stay(seed):
    dice = random.Random(seed)
    pairs = [(old, migrated(old, dice)) for old in documents(150, seed)]
    for number in range(0, 150, 37):  # faults that no rule may hide
        pairs[number][1]["customer"]["vip"] = not pairs[number][1]["customer"]["vip"]
    found = suggest(pairs)
    assert {one.path: one.rule for one in found if one.rule} == TRUE_RULES
    assert {one.path for one in found if one.level == "review"} == {"$.amount"}
    assert still_different(pairs, found, "all") == list(range(0, 150, 37))
    preserving = {one.path for one in read_accepted(found)}
    assert preserving == {
        "$.invoiceNumber", "$.status", "$.created", "$.seen", "$.zip", "$.customer.firstName",
    }  # fmt: skip


BUGS = {
    "cents cut off": lambda new, n: new.update(amount=int(new["amount"])),
    "an hour off": lambda new, n: new.update(created=new["created"].replace(":10:", ":11:")),
    "blanks": lambda new, n: new.update(invoice_no=new["invoice_no"] + " "),
    "upper case": lambda new, n: new["customer"].update(first_name=new["customer"]["first_name"].upper()),
    "a flag lost": lambda new, n: new["customer"].update(vip=not new["customer"]["vip"]),
    "text instead of a number": lambda new, n: new.update(zip=str(new["zip"])),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS)
def test_a_bug_in_some_pairs_is_never_sure(bug):
    pairs = [(old, json.loads(json.dumps(old))) for old in documents(200, 5)]
    for number in range(0, 200, 12):
        bug(pairs[number][1], number)
    assert [one for one in suggest(pairs) if one.level == "sure"] == []


def test_constants_are_no_rename():
    pairs = [({"kind": "x", "n": n}, {"sort": "x", "n": n}) for n in range(40)]
    assert [(one.path, one.level) for one in suggest(pairs) if one.level != "finding"] == []


def test_a_rename_with_a_scale_needs_a_person():
    pairs = [
        ({"n": n, "amount": cents / 100}, {"n": n, "amountValue": cents})
        for n, cents in enumerate(range(995, 9955, 140))
    ]
    found = suggest(pairs)
    rules = {"$.amountValue:alias": ("review", "amount"), "$.amountValue:scale": ("review", 100)}
    assert {one.id: (one.level, *one.rule.values()) for one in found} == rules
    assert still_different(pairs, found, "all") == []
    unlike = [(old, {"n": old["n"], "amountValue": 7919 * new["n"] % 997}) for old, new in pairs]
    assert {one.level for one in suggest(unlike)} == {"finding"}


def test_rivals_need_a_person():
    pairs = [({"x": n}, {"p": n, "q": n}) for n in range(40)]
    found = [one for one in suggest(pairs) if "alias" in one.rule]
    assert [one.level for one in found] == ["review"]
    assert found[0].rivals


def test_noise_is_a_shape_or_presence():
    def answer(dice):
        return {"req": f"req_{dice.randint(10**5, 10**6 - 1)}", "note": " ".join(dice.sample("abcdef", 3)), "n": 1}

    dice = random.Random(1)
    pairs = [(answer(dice), answer(dice)) for _ in range(30)]
    again = [(answer(dice), answer(dice)) for _ in range(10)]
    found = {one.path: one.rule for one in suggest(pairs, again)}
    assert found == {"$.req": {"pattern": "^req_[0-9]{6}$"}, "$.note": {"strategy": "exists"}}
    assert all(not one.rule for one in suggest(pairs))


def test_defaults_and_missing_members():
    dice = random.Random(2)
    pairs = []
    for _ in range(60):
        value = dice.choice([0, 0, 5, 7])
        old = {"n": value, "gone": 1}
        pairs.append((old, {"n": value} if value else {}))
    found = {one.path: (one.rule, one.level) for one in suggest(pairs)}
    assert found["$.n"] == ({"default": 0}, "sure")
    assert found["$.gone"] == ({}, "finding")


def test_the_command_writes_rules_that_work(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dice = random.Random(9)
    pairs = [(old, migrated(old, dice)) for old in documents(60, 9)]
    lines = [json.dumps({"id": n, "old": old, "new": new}) for n, (old, new) in enumerate(pairs)]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    assert run(driftline, ["payloads", "suggest", "pairs.jsonl", "-o", "rules.yaml", "--page", "rules.html"]) == 0
    text = (tmp_path / "rules.yaml").read_text()
    assert "# review $.amount:scale" in text
    assert "#   hides: the factor; a wrong unit would look the same" in text
    assert "Suggested rules" in (tmp_path / "rules.html").read_text()
    assert run(driftline, ["payloads", "lint", "rules.yaml"]) == 0
    everything = [
        "payloads",
        "suggest",
        "pairs.jsonl",
        "--accept",
        "sure",
        "--accept",
        "$.amount:scale",
        "-o",
        "all.yaml",
    ]
    assert run(driftline, everything) == 0
    assert run(driftline, ["payloads", "batch", "pairs.jsonl", "--schema", "all.yaml", "-o", "out"]) == 0
    assert run(driftline, ["payloads", "suggest", "pairs.jsonl", "--accept", "$.nope:cast"]) == 2
    again = ["payloads", "suggest", "pairs.jsonl", "--schema", "all.yaml", "--format", "json"]
    capfd.readouterr()
    assert run(driftline, again) == 0
    assert json.loads(capfd.readouterr().out) == []


def test_precision_and_recall_on_migrations_written_apart():
    path = Path(__file__).parents[2] / "benchmarks" / "suggestions.py"
    spec = importlib.util.spec_from_file_location("suggestions", path)
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    score = judge.added(judge.evaluate(api, 60, 1) for api in judge.APIS)
    assert score.wanted == 23
    assert score.precision >= 0.95
    assert score.recall >= 0.95
    assert (score.bugs, score.bugs_sure) == (15, 0)
    assert score.faults_told == score.faults >= 24
