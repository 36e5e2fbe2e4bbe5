"""Random payloads, their mutations, and schemas with any rules: every rule that there is comes up."""

from __future__ import annotations

import random

NAMES = ["a", "b", "id", "n", "a_b", "aB", "q/x", "t~1", "-", ""]
TEXTS = ["a", "A", " a ", "", "x", "1", "true", "2025-02-02T10:30:00Z"]
SCALARS = [None, True, False, 0, 1, 2, 1.5, 150, 2**53 + 1, 1700000000, *TEXTS]
ROWS = {"array-mode": "keyed", "array-key": "id"}
# Every rule, with values that it takes; those that need each other come together.
RULES = {
    "strategy": ["ignore", "exists", "lenient"],
    "precision": [0.5, 1],
    "case-insensitive": [True],
    "trim-whitespace": [True],
    "cast": ["int", "float", "string", "boolean"],
    "datetime-tolerance": ["5s"],
    "datetime-format": ["ISO8601", {"old": "epoch", "new": "ISO8601"}, {"old": "ISO8601", "new": "epoch"}],
    "order-by": [["id"], ["-n"]],
    "array-mode": ["unordered"],
    "array-key": ["id"],
    "allow-null-as-missing": [True],
    "empty-string-as-null": [True],
    "inherit-rules": [True],
    "global-ignores": [["$..a"], ["$..b[?@.id==1]"], ["$..id[0]"]],
    "pattern": ["^a"],
    "alias": NAMES,
    "default": [1, "a", {"id": 1}],
    "enum-map": [{"A": "a", "1": "x"}, {"true": 1}, {"a": "b", "b": "a"}],
    "ignore-extra-items": [True],
    "ignore-missing-items": [True],
    "array-subset": [True],
    "duplicate-handling": ["error", "first", "last", "merge"],
    "when": ["$.a == 1", "@.id"],
    "scale": [100, 0.01, 3],
    "allow-new-members": [True],
    "naming": ["snake-to-camel", "camel-to-snake"],
}


class Maker:
    """Random documents, their mutations, and schemas with any rules."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def value(self, depth):
        pick = self.random.random
        if depth == 0 or pick() < 0.3:
            return self.random.choice(SCALARS)
        if pick() < 0.4:
            rows = range(self.random.randrange(5))
            return [{"id": self.random.choice([1, 2, 3, True, "1"]), "n": self.value(depth - 1)} for _ in rows]
        if pick() < 0.3:
            return [self.value(depth - 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(NAMES): self.value(depth - 1) for _ in range(self.random.randrange(5))}

    def mutation(self, value):
        pick = self.random.random
        if pick() < 0.05:
            return self.value(2)
        if isinstance(value, dict):
            kept = [(name, item) for name, item in value.items() if pick() > 0.08]
            made = {self.random.choice(NAMES) if pick() < 0.05 else name: self.mutation(item) for name, item in kept}
            return made | ({self.random.choice(NAMES): self.value(1)} if pick() < 0.1 else {})
        if isinstance(value, list):
            made = [self.mutation(item) for item in value if pick() > 0.1] + [self.value(1)] * (pick() < 0.2)
            if pick() < 0.3:
                self.random.shuffle(made)
            return made
        return self.random.choice(SCALARS) if pick() < 0.15 else value

    def schema(self, depth):
        chosen = self.random.sample(sorted(RULES), self.random.randrange(3))
        rules = {name: self.random.choice(RULES[name]) for name in chosen}
        rules |= ROWS if "array-key" in rules or self.random.random() < 0.2 else {}
        made = {f"x-migration-{name}": value for name, value in rules.items()}
        if depth:
            names = [self.random.choice(NAMES) for _ in range(self.random.randrange(4))]
            made |= {"properties": {name: self.schema(depth - 1) for name in names}, "items": self.schema(depth - 1)}
        return made
