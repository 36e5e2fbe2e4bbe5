"""A table of a pipeline with the snapshots that were found for it: names and locations that its stages share."""

from __future__ import annotations

from dataclasses import dataclass, field

from driftline.core import JsonObject, Location
from driftline.lake import Lake, LoadHistory, load_history, registered
from driftline.pipeline._declare.declaration import Pipeline, TableFlow
from driftline.pipeline._declare.snapshots import Shape, Snapshot, fill, shapes_of
from driftline.sources import header_of
from driftline.tables import TableOptions, check_options

CHANGES = "changes"  # the label of stages that follow change events

_OF_WHOLE_SNAPSHOTS = frozenset(
    {
        *("mode", "key_columns", "ignore_row_order", "delimiter", "encoding"),
        *("duplicate_columns", "ragged", "skip_blank_lines", "duplicates"),
    }
)


@dataclass(frozen=True, slots=True)
class TableStages:
    """A table with the snapshots that were found for it."""

    pipeline: Pipeline
    flow: TableFlow
    snapshots: tuple[Snapshot, ...]
    state: Location
    _shapes: dict[str, Shape] = field(default_factory=dict, compare=False, repr=False)

    def pairs(self) -> list[tuple[Snapshot, Snapshot]]:
        """Each snapshot with the one before it."""
        return list(zip(self.snapshots, self.snapshots[1:], strict=False))

    def name(self, label: str, step: str) -> str:
        """The name of a stage."""
        return f"{self.flow.name}/{label}/{step}"

    @property
    def last_load(self) -> str:
        """The stage after which the lake holds all that there is."""
        return self.name(CHANGES if self.flow.changes else self.snapshots[-1].label, "deltas")

    def changes_address(self) -> str:
        """Where the files of change events lie."""
        assert self.flow.changes is not None
        given = self.flow.changes.address
        return given if "://" in given else str(self.pipeline.place(given))

    def target(self, path: str, before: Snapshot, after: Snapshot) -> Location:
        """The location of a target of one comparison."""
        return self.pipeline.place(fill(path, table=self.flow.name, before=before.label, after=after.label))

    def ledger(self) -> LoadHistory:
        """What the lake holds of this table."""
        return load_history(self.lake(), self.flow.name)

    def shape(self, snapshot: Snapshot) -> Shape | None:
        """The columns that a snapshot has for this pipeline; None where all must have the same ones."""
        policy = self.flow.schema_policy
        if not policy.is_active:
            return None
        if not self._shapes:
            reading = self.diff_options().reading("B")
            labels = [each.label for each in self.snapshots]
            headers = [header_of(each.given, reading) for each in self.snapshots]
            self._shapes.update(zip(labels, shapes_of(labels, headers, policy, self._known_columns()), strict=True))
        return self._shapes[snapshot.label]

    def shape_inputs(self, *snapshots: Snapshot) -> JsonObject:
        """The shapes that a stage rests on, for its key."""
        shapes = [(snapshot.label, self.shape(snapshot)) for snapshot in snapshots]
        return {f"columns of {label}": [*shape.columns, *shape.notes()] for label, shape in shapes if shape}

    def _known_columns(self) -> tuple[str, ...]:
        known = registered(self.lake(), self.flow.name) if self.flow.deltas else None
        return known.names if known else ()

    def lake(self) -> Lake:
        """The lake of the pipeline."""
        assert self.pipeline.lake is not None
        path = self.pipeline.lake.path
        return Lake(path if "://" in path else str(self.pipeline.place(path)))

    def lake_options(self) -> JsonObject:
        """What is declared about the lake, for the keys of stages."""
        assert self.pipeline.lake is not None
        return {"path": self.pipeline.lake.path, "client_id": self.pipeline.lake.client_id}

    def whole_options(self) -> TableOptions:
        """How a snapshot is read as a whole: its key and what its reader must know, no rule about equal cells."""
        given = self.flow.rules()
        return check_options(**{name: value for name, value in given.items() if name in _OF_WHOLE_SNAPSHOTS})

    @property
    def is_exact(self) -> bool:
        """Whether events contain every difference of two snapshots; else a load compares the snapshot with the lake."""
        options = self.flow.options
        return options.get("header_mode") != "common" and options.keys() - {"header_mode"} <= _OF_WHOLE_SNAPSHOTS

    def diff_options(self) -> TableOptions:
        """The rules of its comparisons, checked."""
        return check_options(**self.flow.rules())
