"""What every store of views must do; see `headrace.stores.views.store`.

    class TestMyStore(ViewStoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return my_store(tmp_path / "views")

Batches are made from rows by hand (`batch`, `row`): what Spark would have spooled.
"""

import atexit
import functools
import json
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.stores.errors import BadView, ForeignQuery, NoSuchView
from headrace.stores.frames import Spool
from headrace.stores.views.question import everything, read_question
from headrace.stores.views.replica import answer
from headrace.stores.views.shape import key_text, shape_of, show_row
from headrace.stores.views.store import Label, Origin, Standing, ViewBatch

FLAGS = [
    T.StructField("headrace_count", T.LongType()),
    T.StructField("headrace_known", T.BooleanType()),
    T.StructField("headrace_deleted", T.BooleanType()),
    T.StructField("headrace_complete", T.BooleanType()),
    T.StructField("headrace_key", T.StringType()),
]
COLUMNS = T.StructType([
    T.StructField("user", T.LongType()),
    T.StructField("post", T.StringType()),
    T.StructField("likes", T.IntegerType()),
    T.StructField("score", T.DoubleType()),
    T.StructField("price", T.DecimalType(10, 2)),
    T.StructField("is_new", T.BooleanType()),
    T.StructField("day", T.DateType()),
    T.StructField("at", T.TimestampType()),
    T.StructField("tags", T.ArrayType(T.StringType())),
])  # fmt: skip
KEY = ("user", "post")


def row(user: int, post: str, **values: Any) -> dict[str, Any]:
    """A row with nothing in the columns that are not named."""
    return {**dict.fromkeys(COLUMNS.names), "user": user, "post": post, **values}


def batch(
    store: Any,
    number: int,
    put: Sequence[Mapping[str, Any]] = (),
    taken: Sequence[tuple[Any, ...]] = (),
    *,
    known: Sequence[tuple[Any, ...]] = (),
    query: str = "query-1",
    view: str = "feed",
    version: int | None = None,
    columns: T.StructType = COLUMNS,
    key: tuple[str, ...] = KEY,
    upserts: bool = False,
    on_new_query: Any = "refuse",
    offsets: Mapping[str, int] | None = None,
) -> ViewBatch:
    """A batch that puts rows and takes others away; `known` are keys of rows put that replace another."""
    shape = shape_of({field.name: field.dataType.simpleString() for field in columns.fields}, key)
    rows = []
    for one in put:
        place = tuple(one[name] for name in key)
        rows.append({
            **one, "headrace_count": 1, "headrace_known": place in known, "headrace_deleted": False,
            "headrace_complete": True, "headrace_key": key_text(shape, one),
        })  # fmt: skip
    for place in taken:
        named = dict(zip(key, place, strict=True))
        rows.append({
            **dict.fromkeys(columns.names), **named, "headrace_count": 0, "headrace_known": True,
            "headrace_deleted": True, "headrace_complete": True, "headrace_key": key_text(shape, named),
        })  # fmt: skip
    if store.kind in ("redis", "topic"):
        schema = T.StructType([*FLAGS, T.StructField("headrace_row", T.StringType())])
        rows = [
            {name: one[name] for name in (field.name for field in FLAGS)}
            | {"headrace_row": None if one["headrace_deleted"] else json.dumps(show_row(shape, one))}
            for one in rows
        ]
    else:
        schema = T.StructType([*(_stored(store.kind, field) for field in columns.fields), *FLAGS])
        if store.kind == "sqlite":
            rows = [{**one, "tags": None if one.get("tags") is None else json.dumps(one["tags"])} for one in rows]
            rows = [{name: one[name] for name in schema.names} for one in rows]
    return ViewBatch(
        Label(view, version),
        shape,
        _spool(schema, rows),
        schema,
        query,
        number,
        Origin(Standing(offsets or {"posts-0": number + 1}, 1_700_000_000_000)),
        1_800_000_000_000 + number,
        upserts,
        on_new_query,
    )


def _stored(kind: str, field: T.StructField) -> T.StructField:
    if kind == "sqlite" and isinstance(field.dataType, T.ArrayType):
        return T.StructField(field.name, T.StringType(), metadata={"headrace": "json"})
    return field


@functools.cache
def _folder() -> Path:
    """One for the process, gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-view-batches-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _spool(schema: T.StructType, rows: list[dict[str, Any]]) -> Spool:
    arrow = to_arrow_schema(schema, timezone="UTC")
    file = _folder() / f"{uuid.uuid4().hex}.arrow"
    with pa.ipc.new_stream(str(file), arrow) as out:
        out.write_table(pa.Table.from_pylist(rows, schema=arrow))
    return Spool(arrow, (file,) if rows else ())


AT = datetime(2026, 3, 1, 12, 30, 0, 250000, tzinfo=UTC)
FULL = row(
    7, "ü/%\u001f'\"", likes=3, score=0.5, price=Decimal("12.50"), is_new=True, day=date(2026, 3, 1), at=AT,
    tags=["a", "b"],
)  # fmt: skip


class ViewStoreContract:
    """Subclasses bring a fixture `store`, and `restarts` (whether a view can begin anew in its place)."""

    restarts = True

    @pytest.fixture
    def reader(self, store: Any) -> Any:
        made = store.reader("feed")
        yield made
        made.close()

    def rows(self, reader: Any) -> dict[tuple[Any, ...], dict[str, Any]]:
        answer = reader.page(everything(reader.kept().shape))
        return {tuple(one[name] for name in KEY): one for one in answer.rows}

    def test_a_view_that_was_never_written_says_so(self, reader: Any) -> None:
        with pytest.raises(NoSuchView, match="never been written"):
            reader.kept()

    def test_rows_come_change_and_go_and_a_replay_changes_nothing(self, store: Any, reader: Any) -> None:
        plain = row(1, "a", likes=1)
        first = store.write(batch(store, 0, [FULL, plain]))
        assert (first.revision, first.batch, first.rows) == (1, 0, 2)
        assert self.rows(reader) == {(7, FULL["post"]): FULL, (1, "a"): plain}
        assert store.write(batch(store, 0, [FULL, plain])) is None
        changed = row(1, "a", likes=2)
        second = store.write(batch(store, 1, [changed], [(7, FULL["post"])], known=[(1, "a")]))
        assert (second.revision, second.rows) == (2, 1)
        assert self.rows(reader) == {(1, "a"): changed}
        kept = reader.kept()
        assert kept.freshness.rows == 1
        assert kept.freshness.standing.offsets == {"posts-0": 2}
        assert kept.freshness.standing.watermark_ms == 1_700_000_000_000
        assert reader.row([1, "a"]).rows == [changed]
        assert reader.row([7, FULL["post"]]).rows == []
        third = store.write(batch(store, 2))
        assert (third.revision, third.rows) == (3, 1)

    def test_the_row_of_a_key_is_found_with_every_value_as_it_was(self, store: Any, reader: Any) -> None:
        store.write(batch(store, 0, [FULL]))
        assert reader.row([7, FULL["post"]]).rows == [FULL]

    def test_changes_since_a_revision_are_told_once_and_in_their_last_state(self, store: Any, reader: Any) -> None:
        store.write(batch(store, 0, [row(1, "a"), row(2, "b")]))
        reader.kept()  # a reader that follows in memory begins here
        store.write(batch(store, 1, [row(1, "a", likes=1)], known=[(1, "a")]))
        reader.kept()
        store.write(batch(store, 2, [row(1, "a", likes=2)], [(2, "b")], known=[(1, "a")]))
        found = reader.changes(1)
        assert {tuple(one.key.values()): one.row for one in found.changes} == {
            (1, "a"): row(1, "a", likes=2), (2, "b"): None,
        }  # fmt: skip
        assert found.kept.freshness.revision == 3
        assert reader.changes(3).changes == []
        assert reader.changes(0).changes is None
        assert reader.changes(99).changes is None

    def test_questions_are_answered_as_in_memory(self, store: Any, reader: Any) -> None:
        rows = [
            row(user, f"p{post}", likes=(user * 7 + post * 3) % 5 or None, price=Decimal(f"{post * 9 % 11}.{user}5"),
                at=AT.replace(minute=post), is_new=post % 2 == 0, day=date(2026, 1, 1 + post), score=post / 4)
            for user in range(3) for post in range(8)
        ]  # fmt: skip
        store.write(batch(store, 0, rows))
        shape = reader.kept().shape
        for asked in (
            {"user": "1"},
            {"user": "1", "order": "-at", "limit": "3"},
            {"order": "likes,-post", "limit": "5"},
            {"order": "-likes", "limit": "5"},
            {"likes.null": "true", "order": "-price"},
            {"price.gt": "4.5", "price.le": "9.15", "order": "price"},
            {"price": "9.1500"},
            {"price": "9.151"},
            {"post.in": "p1,p3", "is_new": "false"},
            {"day.ge": "2026-01-05", "at.lt": "2026-03-01T12:07:00Z", "order": "-is_new,score"},
            {"likes.ne": "2", "order": "-post"},
        ):
            question = read_question(shape, asked.items())
            seen: list[Any] = []
            while True:
                page = reader.page(question).rows
                assert page == answer(rows, question), asked
                seen += page
                if len(page) < question.limit:
                    break
                question = read_question(shape, [*asked.items(), ("after", question.cursor(page[-1]))])
            assert len(seen) == len({(one["user"], one["post"]) for one in seen}), asked

    def test_what_does_not_fit_the_rows_is_refused_and_nothing_is_written(self, store: Any, reader: Any) -> None:
        store.write(batch(store, 0, [row(1, "a")]))
        narrower = T.StructType([field for field in COLUMNS.fields if field.name != "likes"])
        less = {name: value for name, value in row(3, "c").items() if name != "likes"}
        with pytest.raises(BadView, match="'likes' is int in the store and not there now"):
            store.write(batch(store, 1, [less], columns=narrower))
        with pytest.raises(ForeignQuery, match="another checkpoint"):
            store.write(batch(store, 0, [row(3, "c")], query="query-2"))
        assert self.rows(reader) == {(1, "a"): row(1, "a")}
        assert reader.kept().freshness.revision == 1

    def test_a_key_that_does_not_identify_rows_is_found_out(self, store: Any, reader: Any) -> None:
        if store.kind == "topic":
            pytest.skip("a topic cannot be asked for a key")
        store.write(batch(store, 0, [row(1, "a")]))
        with pytest.raises(BadView, match=r'two rows with the key {"user":1,"post":"a"}.*name more columns'):
            store.write(batch(store, 1, [row(2, "b"), row(1, "a", likes=5)]))
        with pytest.raises(BadView, match="is taken back and is not there"):
            store.write(batch(store, 1, [row(2, "b")], [(9, "z")]))
        assert self.rows(reader) == {(1, "a"): row(1, "a")}
        written = store.write(batch(store, 1, [row(1, "a", likes=5)], upserts=True))
        assert written.rows == 1

    def test_a_query_with_another_checkpoint_may_begin_anew(self, store: Any, reader: Any) -> None:
        if not self.restarts:
            pytest.skip("it is rebuilt beside instead")
        store.write(batch(store, 0, [row(1, "a"), row(2, "b")]))
        anew = store.write(batch(store, 0, [row(2, "b", likes=1)], query="query-2", on_new_query="replace"))
        assert (anew.revision, anew.rows) == (2, 1)
        assert self.rows(reader) == {(2, "b"): row(2, "b", likes=1)}
        assert reader.changes(1).changes is None  # who followed gets the whole view
        with pytest.raises(ForeignQuery, match="superseded"):
            store.write(batch(store, 1, [row(3, "c")], on_new_query="replace"))

    def test_a_new_version_is_built_beside_and_takes_over(self, store: Any, reader: Any) -> None:
        store.write(batch(store, 0, [row(1, "a")]))
        store.write(batch(store, 1, [row(2, "b")]))
        store.write(batch(store, 0, [row(1, "a", likes=9)], query="query-2", version=2))
        assert self.rows(reader) == {(1, "a"): row(1, "a"), (2, "b"): row(2, "b")}
        before = reader.kept().freshness.revision
        store.switch("feed", 2)
        assert self.rows(reader) == {(1, "a"): row(1, "a", likes=9)}
        assert reader.kept().freshness.revision > before
        assert reader.changes(before).changes is None
        store.switch("feed", 2)  # once more changes nothing
        went_on = store.write(batch(store, 1, [row(5, "e")], query="query-2"))
        assert went_on.rows == 2
        assert self.rows(reader).keys() == {(1, "a"), (5, "e")}
        with pytest.raises(ForeignQuery):
            store.write(batch(store, 2, [row(6, "f")]))

    def test_who_waits_is_woken_by_the_next_batch(self, store: Any, reader: Any) -> None:
        store.write(batch(store, 0, [row(1, "a")]))
        reader.wait(0, 10.0)  # there is one already
        began = time.monotonic()
        writing = threading.Timer(0.2, lambda: store.write(batch(store, 1, [row(2, "b")])))
        writing.start()
        reader.wait(1, 20.0)
        writing.join()
        assert time.monotonic() - began < 15
        assert reader.kept().freshness.revision == 2
        reader.wait(2, 0.1)
