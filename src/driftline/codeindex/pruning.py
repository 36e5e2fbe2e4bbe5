"""Throwing away old diffs and what killed processes left behind."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from driftline.codeindex.options import whole_number
from driftline.codeindex.registry import DIFF_ID, Registry
from driftline.codeindex.storage import explain, names_in
from driftline.core._json import JsonObject


@dataclass(slots=True)
class Pruned:
    """What a prune removed, or would remove."""

    removed: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    kept: int = 0
    dry_run: bool = False

    def to_dict(self) -> JsonObject:
        """The answer as plain data."""
        return {"removed": self.removed, "orphans": self.orphans, "kept": self.kept, "dryRun": self.dry_run}


def prune(
    registry: Registry,
    *,
    max_diffs: object = 50,
    retain_days: object = 30,
    dry_run: bool = False,
    wait_ms: int = 0,
    now: datetime | None = None,
) -> Pruned:
    """Remove diffs that are neither among the newest `max_diffs` nor younger than `retain_days`, and all orphans."""
    newest = whole_number(max_diffs, "max-diffs", minimum=0)
    oldest = (now or datetime.now(UTC)) - _days(whole_number(retain_days, "retain-days", minimum=0))
    if dry_run:
        return _plan(registry, newest, oldest, dry_run=True)
    with registry.locked(wait_ms):
        plan = _plan(registry, newest, oldest, dry_run=False)
        manifest = registry.manifest()
        for diff_id in plan.removed:
            del manifest["diffs"][diff_id]
        if plan.removed:
            # First out of the manifest: a prune that is killed here leaves orphans for the next one.
            registry.write_manifest(manifest)
        for name in (*plan.removed, *plan.orphans):
            _remove(registry, name)
        return plan


def _plan(registry: Registry, newest: int, oldest: datetime, *, dry_run: bool) -> Pruned:
    listed = registry.entries()
    entries = [entry for entry in listed if not entry.get("foreign")]
    present = set(_leftovers(registry))
    stays = [
        entry["diffId"] in present and (rank < newest or _moment(entry["createdAt"]) > oldest)
        for rank, entry in enumerate(entries)
    ]
    removed = [entry["diffId"] for entry, stay in zip(entries, stays, strict=True) if not stay]
    known = {entry["diffId"] for entry in listed}
    return Pruned(removed, sorted(present - known), sum(stays), dry_run)


def _leftovers(registry: Registry) -> list[str]:
    """Directories of diffs, listed or not, and temporary files; anything else in there is not ours."""
    names = names_in(registry.cache.inside("diffs", "diffs"), "diffs")
    return [name for name in names if DIFF_ID.fullmatch(name) or (name.startswith(".") and name.endswith(".tmp"))]


def _remove(registry: Registry, name: str) -> None:
    path = Path(registry.cache.inside("diffs", "diffs")) / name
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, f"diffs/{name}") from None


def _days(days: int) -> timedelta:
    return timedelta(days=min(days, 365_000))


def _moment(created_at: str) -> datetime:
    try:
        found = datetime.fromisoformat(created_at.replace("Z", "+00:00"))
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
