"""A table diff under rules as plainly as it can be said: whole files, dicts, exact numbers. It shares no code with
driftline, and is judged by reading it beside the reference page."""

# ruff: noqa: B905, C901, N818, PLR0912, PLR0915, SIM108 - one long plain story is easier to judge than many short ones
from __future__ import annotations

import csv
import datetime
import io
import json
import re
import unicodedata
from fractions import Fraction

SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
ORDER = ["null", "false", "true", "number", "date", "local", "instant", "text"]


class Refused(Exception):
    pass


def diff(a: bytes, b: bytes, o: dict) -> tuple[str, int] | str:
    """The text of all events and the exit code, or the code of the error."""
    try:
        return _diff(a, b, o)
    except Refused as error:
        return str(error)


def _diff(a: bytes, b: bytes, o: dict) -> tuple[str, int]:
    head_a, rows_a, skip_a = read(a, o, "a")
    head_b, rows_b, skip_b = read(b, o, "b")
    bare_a, bare_b = (o.get(f"no_header_{side}", o.get("no_header", False)) for side in "ab")
    if bare_a != bare_b:
        if len(head_a) != len(head_b):
            raise Refused("header_mismatch")
        head_a, head_b = (head_b, head_b) if bare_a else (head_a, head_a)
    for head in (head_a, head_b):
        if len(set(head)) < len(head):
            raise Refused("duplicate_column_name")
    rename, keys = dict(o.get("rename", {})), o.get("key", [])
    if o.get("ignore_column_case"):
        for name in [name for name in head_a if name not in head_b and name not in rename]:
            for other in head_b:
                if other.casefold() == name.casefold() and other not in (*head_a, *rename.values()):
                    rename[name] = other
        folded = [name.casefold() for name in head_a]
        keys = [n if n in head_a else head_a[folded.index(n.casefold())] if n.casefold() in folded else n for n in keys]
    for old, new in rename.items():
        if old not in head_a or new not in head_b:
            raise Refused("unknown_column")
    as_b = [rename.get(name, name) for name in head_a]
    if len(set(as_b)) < len(as_b):
        raise Refused("duplicate_column_name")
    mode = o.get("header_mode", "strict")
    if (mode == "strict" and as_b != head_b) or (mode == "sorted" and sorted(as_b) != sorted(head_b)):
        raise Refused("header_mismatch")
    common = [name for name in head_a if rename.get(name, name) in head_b]
    if not common:
        raise Refused("header_mismatch")
    for name in keys:
        if name not in head_a or rename.get(name, name) not in head_b:
            raise Refused("missing_key_column")
    known = [*head_a, *(name for name in head_b if name not in as_b)]
    for option in ("ignore", "only", "normalize", "types", "types_a", "types_b", "tolerance"):
        for pattern in o.get(option, ()):
            if not any(covers(pattern, name, known) for name in known):
                raise Refused("unknown_column")
    for name in known:
        words = [declared_of(name, o, known, side) for side in "ab"]
        if None not in words and words[0].partition(":")[0] != words[1].partition(":")[0]:
            raise Refused("invalid_option_combination")
    for pattern, limit in o.get("tolerance", {}).items():
        if pattern in known and is_duration(limit) != (kind_of(pattern, o, known) in ("date", "datetime")):
            raise Refused("invalid_option_combination")
        if pattern in known and kind_of(pattern, o, known) in ("text", "boolean"):
            raise Refused("invalid_option_combination")

    def chosen(name: str) -> bool:
        only, ignore = o.get("only", []), o.get("ignore", [])
        return (not only or any(covers(p, name, known) for p in only)) and not any(
            covers(p, name, known) for p in ignore
        )

    columns = [name for name in common if name in keys or chosen(name)]
    if mode == "sorted":
        columns.sort()
    problems(rows_a, head_a, keys, o, known, "a")
    problems(rows_b, head_b, [rename.get(name, name) for name in keys], o, known, "b", dict(zip(as_b, head_a)))
    table_a = [(n, dict(zip(head_a, row))) for n, row in rows_a]
    table_b = [(n, dict(zip(head_b, row))) for n, row in rows_b]

    def forms(row: dict, names: list[str], side: str) -> tuple:
        return tuple(form(row[n if side == "a" else rename.get(n, n)], n, o, known, side) for n in names)

    def same(name: str, one: str, other: str) -> bool:
        x, y = form(one, name, o, known, "a"), form(other, name, o, known, "b")
        limit = None if name in keys else setting(o.get("tolerance", {}), name, known)
        return x == y or (limit is not None and near(x, y, limit))

    def equal(one: dict, other: dict) -> list[str]:
        return [name for name in columns if not same(name, one[name], other[rename.get(name, name)])]

    pairs, dropped = [], [0, 0]
    if keys:
        groups: dict[tuple, tuple[list, list]] = {}
        for at, (table, side) in enumerate(((table_a, "a"), (table_b, "b"))):
            for n, row in table:
                groups.setdefault(forms(row, keys, side), ([], []))[at].append((n, row))
        policy = o.get("duplicates", "error")
        for key in sorted(groups, key=lambda key: [rank(one) for one in key]):
            left, right = groups[key]
            if policy in ("first", "last"):
                dropped[0] += max(len(left) - 1, 0)
                dropped[1] += max(len(right) - 1, 0)
                left, right = (left[:1], right[:1]) if policy == "first" else (left[-1:], right[-1:])
            pairs += match(
                left, right, lambda x, y: forms(x, columns, "a") == forms(y, columns, "b"), lambda x, y: not equal(x, y)
            )
    elif o.get("ignore_row_order"):
        groups = {}
        for at, (table, side) in enumerate(((table_a, "a"), (table_b, "b"))):
            for n, row in table:
                groups.setdefault(forms(row, columns, side), ([], []))[at].append((n, row))
        for key in sorted(groups, key=lambda key: [rank(one) for one in key]):
            left, right = groups[key]
            both = min(len(left), len(right))
            pairs += [
                *zip(left[:both], right[:both]),
                *((x, None) for x in left[both:]),
                *((None, y) for y in right[both:]),
            ]
    else:
        for at in range(max(len(table_a), len(table_b))):
            pairs.append((table_a[at] if at < len(table_a) else None, table_b[at] if at < len(table_b) else None))

    events, counts, changes = (
        [],
        dict.fromkeys(("added", "removed", "changed", "unchanged"), 0),
        dict.fromkeys(columns, 0),
    )
    for left, right in pairs:
        n, row = left or right
        if keys:
            place = {"key": {k: row[k if left else rename.get(k, k)] for k in keys}}
        else:
            place = {} if o.get("ignore_row_order") else {"row_index": n}
        if left and right:
            changed = equal(left[1], right[1])
            for name in changed:
                changes[name] += 1
            if changed:
                delta = {c: {"from": left[1][c], "to": right[1][rename.get(c, c)]} for c in changed}
                events.append(
                    {
                        "type": "changed",
                        **place,
                        "changed": changed,
                        "before": left[1],
                        "after": right[1],
                        "delta": delta,
                    }
                )
            elif o.get("emit_unchanged") and not o.get("ignore_row_order"):
                events.append({"type": "unchanged", **place, "row": row})
            counts["changed" if changed else "unchanged"] += 1
        else:
            kind = "removed" if left else "added"
            counts[kind] += 1
            events.append({"type": kind, **place, "row": row})
    schema = {"type": "schema", "columns_a": head_a, "columns_b": head_b}
    added = [n for n in head_b if n not in as_b and chosen(n)]
    removed = [n for n in head_a if n not in common and chosen(n)]
    if mode == "common":
        schema |= {"columns_added": added, "columns_removed": removed}
    if rename:
        schema["renamed"] = {name: rename[name] for name in head_a if name in rename}
    compared = counts["changed"] + counts["unchanged"]
    stats = {"type": "stats", "rows_total_compared": compared, **{f"rows_{k}": v for k, v in counts.items()}}
    if o.get("ragged") == "skip" or o.get("skip_blank_lines"):
        stats |= {"rows_skipped_a": skip_a, "rows_skipped_b": skip_b}
    if o.get("duplicates") in ("first", "last"):
        stats |= {"duplicates_dropped_a": dropped[0], "duplicates_dropped_b": dropped[1]}
    tail = [stats]
    if o.get("column_stats"):
        tail.insert(
            0,
            {
                "type": "column_stats",
                "columns": [{"name": c, "compared": compared, "changed": changes[c]} for c in columns],
            },
        )
    text = "".join(json.dumps(e, ensure_ascii=False, separators=(",", ":")) + "\n" for e in [schema, *events, *tail])
    different = counts["added"] + counts["removed"] + counts["changed"]
    if o.get("fail_if"):
        return text, int(
            any(fails(one, {**counts, "different": different}, compared + counts["removed"]) for one in o["fail_if"])
        )
    return text, int(bool(different or (mode == "common" and (added or removed))))


def read(data: bytes, o: dict, side: str) -> tuple[list[str], list, int]:
    encoding = o.get(f"encoding_{side}", o.get("encoding", "utf-8"))
    if encoding == "utf-16":
        encoding = "utf-16-be" if data.startswith(b"\xfe\xff") else "utf-16-le"
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding  # a mark is dropped below, in every encoding
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise Refused("invalid_encoding") from None
    text = text.removeprefix("\ufeff")
    if not text:
        raise Refused("empty_file")
    delimiter = o.get(f"delimiter_{side}", o.get("delimiter", ","))
    if delimiter == "auto":
        start = text.lstrip("\r\n") if o.get("skip_blank_lines") else text
        line, inside = "", False
        for letter in start:
            inside ^= letter == '"'
            if letter in "\r\n" and not inside:
                break
            line += "" if inside or letter == '"' else letter
        delimiter = max(",;\t|", key=lambda d: line.count(d))
    try:
        records = [r or [""] for r in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)]
    except csv.Error:
        raise Refused("csv_parse_error") from None
    kept = [(n, r) for n, r in enumerate(records, 1) if not (o.get("skip_blank_lines") and r == [""])]
    if not kept:
        raise Refused("empty_file")
    bare = o.get(f"no_header_{side}", o.get("no_header"))
    if bare:
        head = [f"c{at}" for at in range(1, len(kept[0][1]) + 1)]
    else:
        head = kept.pop(0)[1]
    if o.get("duplicate_columns") == "rename" and not bare:
        head = [name or f"c{at}" for at, name in enumerate(head, 1)]
        taken, result = set(head), []
        for name in head:
            if name in result:
                k = 2
                while f"{name}.{k}" in taken:
                    k += 1
                name = f"{name}.{k}"
                taken.add(name)
            result.append(name)
        head = result
    rows = []
    for n, row in kept:
        if len(row) != len(head):
            if o.get("ragged") == "skip":
                continue
            if o.get("ragged") == "pad" and not any(row[len(head) :]):
                row = (row + [""] * len(head))[: len(head)]
        rows.append((n, row))
    return head, rows, len(records) - len(rows) - (0 if bare else 1)


def problems(rows: list, head: list, keys: list, o: dict, known: list, side: str, names: dict | None = None) -> None:
    if any(len(row) != len(head) for _, row in rows):
        raise Refused("row_width_mismatch")
    if not keys:
        return
    seen, twice = set(), False
    for _, row in rows:
        key = tuple(form(dict(zip(head, row))[k], (names or {}).get(k, k), o, known, side) for k in keys)
        if o.get("empty_key") != "allow" and any(one in (("null",), ("text", "")) for one in key):
            raise Refused("missing_key_value")
        twice |= key in seen
        seen.add(key)
    if twice and o.get("duplicates", "error") == "error":
        raise Refused("duplicate_key")


def covers(pattern: str, name: str, known: list[str]) -> bool:
    if pattern in known:
        return pattern == name
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name, re.DOTALL))


def setting(settings: dict, name: str, known: list[str]):
    if name in settings:
        return settings[name]
    found = [value for pattern, value in settings.items() if covers(pattern, name, known)]
    return found[-1] if found else None


def kind_of(name: str, o: dict, known: list[str]) -> str | None:
    declared = declared_of(name, o, known, "a") or declared_of(name, o, known, "b")
    return declared.partition(":")[0] if declared else None


def declared_of(name: str, o: dict, known: list[str], side: str) -> str | None:
    both = {**o.get("types", {})}
    for pattern, value in o.get(f"types_{side}", {}).items():
        both.pop(pattern, None)  # the last one counts
        both[pattern] = value
    return setting(both, name, known)


def form(cell: str, name: str, o: dict, known: list[str], side: str) -> tuple:
    steps = setting(o.get("normalize", {}), name, known) or []
    text = normalized(cell, steps)
    if text in [normalized(word, steps) for word in o.get("null", [])]:
        return ("null",)
    declared = declared_of(name, o, known, side) or kind_of(name, o, known)
    limit = (
        None
        if name.casefold() in [k.casefold() for k in o.get("key", [])]
        else setting(o.get("tolerance", {}), name, known)
    )
    if declared is None and limit is not None and not is_duration(limit):
        declared = "number"
    return read_value(strip(text), declared) or ("text", text)


def strip(text: str) -> str:
    while text and ord(text[0]) in SPACE:
        text = text[1:]
    while text and ord(text[-1]) in SPACE:
        text = text[:-1]
    return text


def normalized(text: str, steps: list[str]) -> str:
    assert set(steps) <= {"nfc", "blanks", "trim", "case"}, f"the oracle knows not all of {steps}"
    if "nfc" in steps:
        text = unicodedata.normalize("NFC", text)
    if "blanks" in steps:
        text = " ".join(part for part in "".join(" " if ord(c) in SPACE else c for c in text).split(" ") if part)
    if "trim" in steps:
        text = strip(text)
    return text.casefold() if "case" in steps else text


def read_value(text: str, declared: str | None) -> tuple | None:
    kind, _, pattern = (declared or "").partition(":")
    if kind == "number":
        found = re.fullmatch(r"([+-]?)([0-9]*)(?:(\.)([0-9]*))?(?:[eE]([+-]?[0-9]+))?", text)
        if not found or not (found[2] or found[4]):
            return None
        if len((found[5] or "").lstrip("+-").lstrip("0")) > 9:
            return None
        value = Fraction(int((found[2] or "") + (found[4] or "") or "0")) / 10 ** len(found[4] or "")
        return ("number", (-value if found[1] == "-" else value) * Fraction(10) ** int(found[5] or 0))
    if kind == "boolean":
        word = "".join(c.lower() if c.isascii() else c for c in text)
        return (
            ("true",)
            if word in ("true", "t", "yes", "y", "1")
            else ("false",)
            if word in ("false", "f", "no", "n", "0")
            else None
        )
    if kind in ("date", "datetime"):
        return read_time(text, kind, pattern)
    return None


def read_time(text: str, kind: str, pattern: str) -> tuple | None:
    zone = r"(?P<z>Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
    if pattern:
        expression = re.escape(pattern).replace("%%", "%")
        for letter, digits in {
            "Y": "{4}",
            "y": "{2}",
            "m": "{1,2}",
            "d": "{1,2}",
            "H": "{1,2}",
            "M": "{1,2}",
            "S": "{1,2}",
            "f": "{1,9}",
        }.items():
            expression = expression.replace(f"%{letter}", f"(?P<{letter}>[0-9]{digits})")
        expression = expression.replace("%z", zone)
    else:
        expression = "(?P<Y>[0-9]{4})-(?P<m>[0-9]{2})-(?P<d>[0-9]{2})"
        if kind == "datetime":
            expression += (
                rf"(?:[T ](?P<H>[0-9]{{2}}):(?P<M>[0-9]{{2}})(?::(?P<S>[0-9]{{2}})(?:\.(?P<f>[0-9]{{1,9}}))?)?{zone}?)?"
            )
    found = re.fullmatch(expression, text)
    if not found:
        return None
    parts = {k: v for k, v in found.groupdict().items() if v is not None}
    year = int(parts["Y"]) if "Y" in parts else int(parts["y"]) + (1900 if int(parts["y"]) >= 69 else 2000)
    try:
        moment = datetime.datetime(
            year,
            int(parts["m"]),
            int(parts["d"]),
            int(parts.get("H", 0)),
            int(parts.get("M", 0)),
            int(parts.get("S", 0)),
        )
    except ValueError:
        return None
    nanoseconds = ((moment - datetime.datetime(1, 1, 1)) // datetime.timedelta(seconds=1)) * 10**9 + int(
        parts.get("f", "0").ljust(9, "0")
    )
    if kind == "date":
        return ("date", nanoseconds)
    if "z" not in parts:
        return ("local", nanoseconds)
    if parts["z"] != "Z":
        digits = parts["z"][1:].replace(":", "").ljust(4, "0")
        if int(digits[:2]) > 23 or int(digits[2:]) > 59:
            return None
        nanoseconds -= (int(digits[:2]) * 60 + int(digits[2:])) * 60 * 10**9 * (-1 if parts["z"][0] == "-" else 1)
    return ("instant", nanoseconds)


def rank(form: tuple) -> tuple:
    return ORDER.index(form[0]), *form[1:]


def is_duration(limit: str) -> bool:
    return limit[-1] in "smhd"


def near(x: tuple, y: tuple, limit: str) -> bool:
    if x[0] != y[0]:
        return False
    if is_duration(limit):
        unit = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 6 * 10**10, "h": 36 * 10**11, "d": 864 * 10**11}
        amount, word = re.fullmatch(r"([0-9.]+)([a-z]+)", limit).groups()
        return x[0] in ("date", "local", "instant") and abs(x[1] - y[1]) <= Fraction(amount) * unit[word]
    if x[0] != "number":
        return False
    try:
        a, b = float(x[1]), float(y[1])
    except OverflowError:
        return False
    distance = abs(a - b)
    for part in limit.split(","):
        if part.endswith("%"):
            r = float(part[:-1]) / 100
            if distance <= abs(r * a) or distance <= abs(r * b):
                return True
        elif distance <= float(part):
            return True
    return False


def match(left: list, right: list, exact, tolerant) -> list:
    partner, free = {}, list(range(len(right)))
    for test in (exact, tolerant, lambda x, y: True):
        for at, (_, row) in enumerate(left):
            if at not in partner:
                hit = next((other for other in free if test(row, right[other][1])), None)
                if hit is not None:
                    partner[at] = hit
                    free.remove(hit)
    pairs = [(one, right[partner[at]] if at in partner else None) for at, one in enumerate(left)]
    return pairs + [(None, right[other]) for other in free]


def fails(condition: str, counts: dict, total: int) -> bool:
    name, sign, limit = re.fullmatch(r"\s*(\w+)\s*([<>]=?)\s*([0-9.]+%?)\s*", condition).groups()
    value = Fraction(counts[name])
    if limit.endswith("%"):
        value = value * 100 / total if total else Fraction(100 if value else 0)
    bound = Fraction(limit.rstrip("%"))
    return {">": value > bound, ">=": value >= bound, "<": value < bound, "<=": value <= bound}[sign]
