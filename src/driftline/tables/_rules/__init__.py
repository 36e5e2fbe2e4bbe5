"""Rules about cells: `cells` says what makes two cells equal, `vectors` says it for whole columns.

`STEPS` (`--normalize`) and `KINDS` (`--as`) are the tables of rules, and engines know rules from them alone. A new rule
is one object with the form of a cell, given to `register`, and gives the same result for ten rows and for a billion.
The form of a column is optional; it makes the rule faster.

>>> rule = CellRule(steps=(Step("no-dashes", lambda text: text.replace("-", "")),))
>>> rule.equal(rule.form("12-34"), rule.form("1-234"))
True
"""

from driftline.tables._rules.cells import KINDS, STEPS, CellRule, Kind, Step, register

__all__ = ["KINDS", "STEPS", "CellRule", "Kind", "Step", "register"]
