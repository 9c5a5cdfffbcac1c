"""The output of a view, for `foreachBatch`: weighted rows become puts and deletes, and go to the store.

With them goes up to where the batch has read, which `foreachBatch` is not given: Spark writes a batch's offsets and
watermark to the query's checkpoint before it runs the batch, and they are read there.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.tables.consolidate import consolidate, first_doubled, first_without
from headrace.pipelines.options import connection_in
from headrace.pipelines.spark.checkpoint import Planned, read_planned
from headrace.pipelines.spark.internals import read_note, running_execution
from headrace.stores.errors import BadView
from headrace.stores.views.shape import Shape, check_shape, shape_of
from headrace.stores.views.store import FLAGS, Label, Origin, Standing, Store, ViewBatch, doubled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.stores.batch import OnNewQuery
    from headrace.stores.frames import Spool


@dataclass(frozen=True)
class ViewSink:
    """Keeps one view in its store; `version` is set for one that is built beside that in use.

    Its rows come as changes, or with `upserts` each as its key's row from now on; where the user has not chosen
    (`is_fixed`), `fit` does.
    """

    name: str
    key: tuple[str, ...]
    store: Store
    sources: tuple[str, ...] = ()
    upserts: bool = False
    is_fixed: bool = True
    on_new_query: "OnNewQuery" = "refuse"
    version: int | None = None
    kind: ClassVar[str] = "view"

    def __str__(self) -> str:
        return f"view {self.name} in {self.store}"

    def __call__(self, df: "DataFrame", batch_id: int) -> None:
        from headrace.pipelines.views.status import report
        from headrace.stores.frames import read_query_id, spool_rows

        label = Label(self.name, self.version)
        found = self.changed(df)
        shape = self.shape_of(found)
        prepared = self.store.prepare(found)
        origin = origin_of(df, batch_id)
        with spool_rows(prepared) as spool:
            self._check(spool)
            freshness = self.store.write(
                ViewBatch(
                    label,
                    shape,
                    spool,
                    prepared.schema,
                    read_query_id(df),
                    batch_id,
                    origin,
                    int(time.time() * 1000),
                    self.upserts,
                    self.on_new_query,
                )
            )
        if freshness is not None and self.version is None:
            report(self, freshness, origin)

    def fit(self, frame: "DataFrame") -> "tuple[DataFrame, ViewSink]":
        """The rows as changes, or as upserts if those do: a row of the view is then a group, and nothing comes behind.

        The sink that is returned takes the rows that are returned.
        """
        from headrace.pipelines.operators.tables.groups.native import Upserts

        note = read_note(frame) if frame.isStreaming and not self.is_fixed else None
        if not isinstance(note, Upserts) or set(note.by) != set(self.key):
            return frame, self
        return note.make(), replace(self, upserts=True)

    @property
    def output_mode(self) -> str:
        return "update" if self.upserts else "append"

    def changed(self, df: "DataFrame") -> "DataFrame":
        try:
            return consolidate(df, self.key)
        except BadField as error:
            raise BadView(f"view {self.name!r}: {error}") from error

    def shape_of(self, found: "DataFrame") -> Shape:
        columns = {
            field.name: field.dataType.simpleString() for field in found.schema.fields if field.name not in FLAGS
        }
        shape = shape_of(columns, self.key)
        check_shape(self.name, shape)
        return shape

    def _check(self, spool: "Spool") -> None:
        label = Label(self.name, self.version)
        for part in spool.batches():
            found = first_doubled(part)
            if found is not None:
                raise doubled(label, self.key, found)
            found = first_without(part)
            if found is not None:
                raise BadView(
                    f"view {self.name!r}: a row has the key {found}, with nothing in one of its columns: filter such "
                    "rows out, or give them a value with coalesce"
                )

    def beside(self, version: int) -> "ViewSink":
        """The same view for a version that is built beside the one in use."""
        return replace(self, version=version)

    def switch(self, version: int) -> None:
        """Let that version take the view's place."""
        self.store.switch(self.name, version)


def origin_of(df: "DataFrame", batch_id: int) -> Origin:
    """Of the query that the calling thread runs a batch of; empty outside of one, in a test by hand."""
    execution = running_execution(df)
    if execution is None:
        return Origin()
    # A checkpoint on another file system is not looked into: the view then reports its batch and time alone.
    checkpoint = execution.checkpoint
    standing = Standing() if checkpoint is None else standing_at(read_planned(checkpoint, batch_id))
    return Origin(standing, *_reached(execution.source_options()), is_running=lambda: execution.is_active)


def _reached(sources: Iterable[Mapping[str, str]]) -> tuple[str | None, dict[str, str]]:
    for options in sources:
        bootstrap = options.get("bootstrap") or options.get("kafka.bootstrap.servers")
        if bootstrap:
            return bootstrap, connection_in(options, ("bootstrap.servers",))
    return None, {}


def standing_at(planned: Planned) -> Standing:
    """Up to where a batch reads, and the watermark in force; that begins at 0, which means that there is none."""
    return Standing({str(where): offset for where, offset in planned.offsets.items()}, planned.watermark_ms or None)
