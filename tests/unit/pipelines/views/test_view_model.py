"""A view in SQLite against a dictionary: any batches, any replays, restarts, and readers that come back."""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812 - Spark's own habit

from headrace.pipelines.views import sqlite
from headrace.stores.views.question import everything, read_question
from headrace.stores.views.replica import answer
from headrace.testing.contracts.view import COLUMNS, batch, row
from tests.property.storage_model import examples

_NARROW = T.StructType([COLUMNS["user"], COLUMNS["likes"], COLUMNS["score"], COLUMNS["post"]])
_STEP = st.dictionaries(st.integers(0, 6), st.none() | st.integers(0, 3), max_size=5)
_ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(-2, 2), st.none() | st.floats(-1, 1, width=16), st.none() | st.sampled_from("aAbéz")
    ),
    max_size=12,
)  # fmt: skip
_ASKED = st.fixed_dictionaries(
    {},
    optional={
        "likes.ge": st.sampled_from(["-1", "0", "1"]),
        "likes.ne": st.just("0"),
        "post.gt": st.sampled_from(["A", "a", "b"]),
        "score.lt": st.sampled_from(["0", "0.5"]),
        "post.null": st.sampled_from(["true", "false"]),
        "order": st.sampled_from(["likes", "-likes", "post,-score", "-score,likes", "-user"]),
    },
)


@examples(25)
@given(steps=st.lists(st.tuples(_STEP, st.booleans()), max_size=6), back=st.integers(0, 6))
def test_a_view_is_what_its_batches_made_of_it(steps: list[tuple[dict[int, int | None], bool]], back: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite(Path(folder) / "v.db")
        model: dict[int, dict[str, Any]] = {}
        states = []
        reader = store.reader("feed")
        for number, (step, is_replayed) in enumerate(steps):
            put = [row(user, "p", likes=likes) for user, likes in step.items() if likes is not None]
            taken = [(user, "p") for user, likes in step.items() if likes is None and user in model]
            known = [(user, "p") for user in step if user in model]
            for _ in range(2 if is_replayed else 1):
                store.write(batch(store, number, put, taken, known=known))
            model |= {one["user"]: one for one in put}
            for user, _ in taken:
                del model[user]
            states.append(dict(model))
            kept = reader.kept()
            assert (kept.freshness.revision, kept.freshness.rows) == (number + 1, len(model))
            found = {one["user"]: one for one in reader.page(everything(kept.shape)).rows}
            assert found == model
        if 1 <= back <= len(states):
            mirror = dict(states[back - 1])
            for change in reader.changes(back).changes:
                mirror.pop(change.key["user"], None)
                if change.row is not None:
                    mirror[change.key["user"]] = change.row
            assert mirror == model
        reader.close()


@examples(40)
@given(values=_ROWS, asked=_ASKED, limit=st.integers(1, 4))
def test_sql_and_memory_answer_alike_page_by_page(values: list[Any], asked: dict[str, str], limit: int) -> None:
    rows = [
        {"user": user, "likes": likes, "score": score, "post": post} for user, (likes, score, post) in enumerate(values)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite(Path(folder) / "v.db")
        store.write(batch(store, 0, rows, columns=_NARROW, key=("user",)))
        reader = store.reader("feed")
        shape = reader.kept().shape
        whole = answer(rows, read_question(shape, [*asked.items(), ("limit", "1000")]))
        seen: list[Any] = []
        cursor = None
        while cursor is not None or not seen:
            more = [("after", cursor)] if cursor else []
            question = read_question(shape, [*asked.items(), ("limit", str(limit)), *more])
            page = reader.page(question).rows
            assert page == answer(rows, question)
            seen += page
            if len(page) < limit:
                break
            cursor = question.cursor(page[-1])
        assert seen == whole
        reader.close()
