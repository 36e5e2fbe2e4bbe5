"""Items without a partner: allowed by a flag (one warning for the array) or an entry each."""

from __future__ import annotations

from typing import Any

from driftline.payloads.paths import Path
from driftline.payloads.rules import FieldRules
from driftline.payloads.run import Run
from driftline.payloads.values import NEW


def tell_surplus(rules: FieldRules, side: int, count: int, run: Run, path: Path) -> bool:
    """Warn about allowed extra or missing items; False where they are not allowed."""
    if side == NEW:
        name = "ignore-extra-items" if rules.ignore_extra else "array-subset" if rules.subset else None
    else:
        name = "ignore-missing-items" if rules.ignore_missing else None
    if name is None:
        return False
    items = "1 extra item" if count == 1 else f"{count} extra items"
    kind, words = ("EXTRA_IN_NEW", f"New array contains {items}")
    if side != NEW:
        kind, words = "MISSING_IN_NEW", f"New array lacks {items.replace('extra ', '')} of Old"
    run.warn(kind, path, f"{words} (allowed by x-migration-{name})", rules.text(name), count=count)
    run.note(path, rules.text(name) or name, "allowed")
    return True


def tell_unpaired(rules: FieldRules, side: int, items: list[tuple[Path, Any]], run: Run, path: Path) -> None:
    """Items that only one side has, in their order."""
    if not items:
        return
    for place, value in items:
        run.one_sided(side, place, value)
    if tell_surplus(rules, side, len(items), run, path):
        return
    rule = rules.text("array-mode") or rules.text("array-subset")
    for place, value in items:
        if side == NEW:
            run.error("ARRAY_ITEM_EXTRA", place, None, value, "The item is in New but not in Old", rule)
        else:
            run.error("ARRAY_ITEM_MISSING", place, value, None, "The item is in Old but not in New", rule)
