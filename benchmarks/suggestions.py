"""How good suggested rules are: `python -m benchmarks.suggestions [PAIRS] [SEEDS]` prints precision and recall.

Four APIs with documents and migrations written without a look at the suggester, and bugs that look like rules: each
confined to one field of a few pairs. A suggestion is right when it names the field and the kind of rule of the
migration (and its very value, where a rule has no limits). A bug that became a sure rule, or a fault that is hidden
once sure rules are accepted, counts against it.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from driftline import payloads
from driftline.payloads import Suggestion, apply_rules, read_accepted, suggest

Document = dict[str, Any]
Change = Callable[[Document, random.Random], None]
_START = datetime(2025, 5, 1, tzinfo=UTC)
_LIMITS = {"precision", "datetime-tolerance", "pattern"}  # values that a suggestion may choose


class Api(NamedTuple):
    """Documents of Old, how New writes them, the rules that say so, and what a bug would do to New's."""

    name: str
    document: Callable[[int, random.Random], Document]
    migrate: Change
    rules: dict[str, dict[str, Any]]
    bugs: dict[str, Change]
    fault: Change  # a real difference that no rule may hide
    noise: Change | None = None  # what differs each time Old is asked


def _time(dice: random.Random) -> datetime:
    return _START + timedelta(seconds=dice.randint(0, 20_000_000))


def _order(number: int, dice: random.Random) -> Document:
    skus = [f"{dice.choice('ABC')}{dice.randint(1000, 9999)}-{n}" for n in range(dice.randint(2, 4))]
    lines = [{"sku": sku, "qty": dice.randint(1, 9), "net": round(dice.uniform(1, 300), 2)} for sku in skus]
    return {
        "order_no": f"O-{number:06d}",
        "state": dice.choice(["NEW", "PACKED", "SENT", "BACK"]),
        "placed": _time(dice).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "gross": round(dice.uniform(5, 4000), 2),
        "gift": dice.random() < 0.2,
        "currency": dice.choice(["EUR", "EUR", "USD", "CHF"]),
        "buyer": {"mail": f"person{number}@example.org", "zip": dice.randint(10000, 99999)},
        "lines": lines,
    }


def _migrate_order(new: Document, dice: random.Random) -> None:
    new["orderNumber"] = new.pop("order_no")
    new["state"] = {"NEW": "created", "PACKED": "packed", "SENT": "shipped", "BACK": "returned"}[new["state"]]
    new["placed"] = new["placed"].replace("Z", "+00:00")
    new["gross"] = round(new["gross"] * 100)
    new["buyer"]["zip"] = str(new["buyer"]["zip"])
    if new["currency"] == "EUR":
        del new["currency"]
    dice.shuffle(new["lines"])


def _user(number: int, dice: random.Random) -> Document:
    first_name = f"{dice.choice(['Ada', 'Ben', 'Cleo'])}{number}"
    return {
        "id": 700_000 + number,
        "profile": {"first_name": first_name, "language": dice.choice(["de", "en", "fr"])},
        "last_login": int(_time(dice).timestamp()),
        "newsletter": dice.random() < 0.5,
        "groups": dice.sample(["admin", "ops", "sales", "dev", "audit", "guest"], 3),
        "bio": f"words about person {number}",
        "middle": dice.choice([None, "X", "Y"]),
        "trace": f"t-{dice.randint(10**7, 10**8 - 1)}",
    }


def _migrate_user(new: Document, dice: random.Random) -> None:
    new["profile"]["givenName"] = new["profile"].pop("first_name")
    new["last_login"] = datetime.fromtimestamp(new["last_login"], UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    new["newsletter"] = "true" if new["newsletter"] else "false"
    dice.shuffle(new["groups"])
    if new["middle"] is None:
        del new["middle"]
    _new_trace(new, dice)


def _new_trace(value: Document, dice: random.Random) -> None:
    value["trace"] = f"t-{dice.randint(10**7, 10**8 - 1)}"


def _parcel(number: int, dice: random.Random) -> Document:
    times = [_time(dice).strftime("%Y-%m-%dT%H:%M:%SZ") for _ in range(3)]
    hops = [{"code": f"H{n}{dice.randint(10, 99)}", "at": at} for n, at in enumerate(times)]
    return {
        "tracking": f"{dice.randint(10**9, 10**10 - 1)}",
        "weight": round(dice.uniform(0.1, 30), 4),
        "eta": _time(dice).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "label": f"Label {number} {dice.choice(['small', 'large'])}",
        "carrier": dice.choice(["dhl", "ups", "gls"]),
        "insured": dice.random() < 0.5,
        "hops": hops,
    }


def _migrate_parcel(new: Document, dice: random.Random) -> None:
    new["weight"] = round(new["weight"], 2)
    eta = datetime.fromisoformat(new["eta"]) + timedelta(seconds=dice.randint(-2, 2))
    new["eta"] = eta.strftime("%Y-%m-%dT%H:%M:%SZ")
    new["label"] = f" {new['label']} "
    new["carrier"] = new["carrier"].upper()
    dice.shuffle(new["hops"])
    for hop in new["hops"]:
        hop["arrivedAt"] = hop.pop("at")


def _booking(number: int, dice: random.Random) -> Document:
    return {
        "booking_ref": f"BK{number:07d}",
        "amount": round(dice.uniform(100, 90_000), 2),
        "kind": dice.choice(["C", "D", "F"]),
        "valued": _time(dice).strftime("%Y-%m-%d"),
        "text": f"payment {dice.randint(1, 999)} of {number}",
        "account": {"iban_no": f"DE{dice.randint(10**10, 10**11 - 1)}", "open": dice.random() < 0.7},
        "balance_after": round(dice.uniform(0, 10**6), 2),
    }


def _migrate_booking(new: Document, dice: random.Random) -> None:
    new["bookingRef"] = new.pop("booking_ref")
    new["kind"] = {"C": "credit", "D": "debit", "F": "fee"}[new["kind"]]
    new["account"]["ibanNo"] = new["account"].pop("iban_no")
    new["amount"] = f"{new['amount']}"


def _set(path: str, change: Callable[[Any], Any]) -> Change:
    *parents, last = path.split(".")

    def apply(value: Document, dice: random.Random) -> None:
        for name in parents:
            value = value[name]
        value[last] = change(value[last])

    return apply


APIS = (
    Api(
        "orders",
        _order,
        _migrate_order,
        {
            "$.orderNumber": {"alias": "order_no"},
            "$.state": {"enum-map": {"NEW": "created", "PACKED": "packed", "SENT": "shipped", "BACK": "returned"}},
            "$.placed": {"datetime-format": "ISO8601"},
            "$.gross": {"scale": 100},
            "$.buyer.zip": {"cast": "string"},
            "$.currency": {"default": "EUR"},
            "$.lines": {"array-mode": "keyed", "array-key": "sku"},
        },
        {
            "a cent too much": _set("gross", lambda cents: cents + 1),
            "mails in capitals": _set("buyer.mail", str.upper),
            "a blank behind the number": _set("orderNumber", lambda text: f"{text} "),
            "an hour too late": _set("placed", lambda text: text.replace("T1", "T2") if "T1" in text else text),
        },
        _set("gift", lambda flag: not flag),
    ),
    Api(
        "users",
        _user,
        _migrate_user,
        {
            "$.profile.givenName": {"alias": "first_name"},
            "$.last_login": {"datetime-format": {"old": "epoch", "new": "ISO8601"}},
            "$.newsletter": {"cast": "string"},
            "$.groups": {"array-mode": "unordered"},
            "$.middle": {"allow-null-as-missing": True},
            "$.trace": {"pattern": ""},
        },
        {
            "an id as text": _set("id", str),
            "a bio in capitals": _set("bio", str.upper),
            "English for everybody": _set("profile.language", lambda _: "en"),
            "a null too few": _set("bio", lambda _: ""),
        },
        _set("profile.language", lambda code: {"de": "fr", "fr": "en", "en": "de"}[code]),
        _new_trace,
    ),
    Api(
        "parcels",
        _parcel,
        _migrate_parcel,
        {
            "$.weight": {"precision": 0.005},
            "$.eta": {"datetime-format": "ISO8601", "datetime-tolerance": "2s"},
            "$.label": {"trim-whitespace": True},
            "$.carrier": {"enum-map": {"dhl": "DHL", "ups": "UPS", "gls": "GLS"}},
            "$.hops": {"array-mode": "keyed", "array-key": "code"},
            "$.hops[*].arrivedAt": {"alias": "at"},
        },
        {
            "weights in grams": _set("weight", lambda kilos: kilos * 1000),
            "tracking as a number": _set("tracking", int),
            "a flag as text": _set("insured", lambda flag: str(flag).lower()),
        },
        _set("insured", lambda flag: not flag),
    ),
    Api(
        "bookings",
        _booking,
        _migrate_booking,
        {
            "$.bookingRef": {"alias": "booking_ref"},
            "$.kind": {"enum-map": {"C": "credit", "D": "debit", "F": "fee"}},
            "$.account.ibanNo": {"alias": "iban_no"},
            "$.amount": {"cast": "string"},
        },
        {
            "balances rounded": _set("balance_after", round),
            "balances a little off": _set("balance_after", lambda euros: round(euros + 0.01, 2)),
            "texts trimmed wrongly": _set("text", lambda text: f"  {text}"),
            "a day too late": _set("valued", lambda text: f"{text[:-2]}{min(int(text[-2:]) + 1, 28):02d}"),
        },
        _set("account.open", lambda flag: not flag),
    ),
)


class Score(NamedTuple):
    """What became of one API's rules, bugs and faults."""

    wanted: int
    found: int
    wrong: int
    sure: int
    bugs: int
    bugs_sure: int
    faults: int
    faults_told: int

    @property
    def precision(self) -> float:
        """The share of suggestions that are right."""
        return self.found / max(self.found + self.wrong, 1)

    @property
    def recall(self) -> float:
        """The share of the migration's rules that were suggested."""
        return self.found / self.wanted


def evaluate(api: Api, pairs: int, seed: int) -> Score:
    """Suggest on the migration (with a few faults), and on each bug alone."""
    faulty = set(range(3, pairs, max(pairs // 6, 1)))
    made = list(_pairs(api, pairs, seed, faulty))
    noise = [(old, _changed(old, api.noise, random.Random(f"again {n}"))) for n, (old, _) in enumerate(made)][:30]
    found = suggest(made, noise if api.noise is not None else ())
    rules = [one for one in found if one.rule]
    right = {one.path for one in rules if _is_right(one, api.rules)}
    chosen = [one for one in rules if one.level == "sure" or one.path in right]
    plan = payloads.compile(apply_rules("", chosen).after or "{}")
    told = {number for number, pair in enumerate(made) if not plan.compare_values(*pair).is_match}
    sure_bugs = sum(_bug_is_sure(api, bug, pairs, seed) for bug in api.bugs.values())
    return Score(
        len(api.rules), len(right), sum(one.path not in right for one in rules), len(read_accepted(rules, ["sure"])),
        len(api.bugs), sure_bugs, len(faulty), len(faulty & told),
    )  # fmt: skip


def _pairs(api: Api, count: int, seed: int, faulty: set[int]) -> Iterator[tuple[Document, Document]]:
    dice = random.Random(f"{api.name} {seed}")
    for number in range(count):
        old = api.document(number, dice)
        new = _changed(old, api.migrate, dice)
        yield old, _changed(new, api.fault, dice) if number in faulty else new


def _changed(value: Document, change: Change | None, dice: random.Random) -> Document:
    copied = copy.deepcopy(value)
    if change is not None:
        change(copied, dice)
    return copied


def _is_right(one: Suggestion, wanted: dict[str, dict[str, Any]]) -> bool:
    rule = wanted.get(one.path)
    if rule is None or rule.keys() != one.rule.keys():
        return False
    return all(name in _LIMITS or one.rule[name] == value for name, value in rule.items())


def _bug_is_sure(api: Api, bug: Change, pairs: int, seed: int) -> bool:
    """Whether a bug in one of twelve pairs becomes a sure rule that the migration does not have."""
    dice = random.Random(f"bug {seed}")
    made = list(_pairs(api, pairs, seed + 1, set()))
    for _, new in made[::12]:
        bug(new, dice)
    return any(one.level == "sure" and not _is_right(one, api.rules) for one in suggest(made))


_ROW = "{:10} {:>6} {:>6} {:>6} {:>6} {:>10} {:>7} {:>10} {:>12}"


def main(pairs: int = 300, seeds: int = 5) -> None:
    """Print a line for each API and one for all."""
    print(_ROW.format("", "rules", "found", "wrong", "sure", "precision", "recall", "bugs sure", "faults told"))
    scores = {api.name: added(evaluate(api, pairs, seed) for seed in range(seeds)) for api in APIS}
    for name, score in {**scores, "all": added(scores.values())}.items():
        bugs, faults = f"{score.bugs_sure} of {score.bugs}", f"{score.faults_told} of {score.faults}"
        shares = (f"{score.precision:.3f}", f"{score.recall:.3f}")
        print(_ROW.format(name, score.wanted, score.found, score.wrong, score.sure, *shares, bugs, faults))


def added(scores: Iterable[Score]) -> Score:
    """Scores as one."""
    return Score(*map(sum, zip(*scores, strict=True)))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
