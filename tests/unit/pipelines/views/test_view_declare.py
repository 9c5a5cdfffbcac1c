"""What is refused when a view is declared, and what a file of views says."""

from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.jobs.declare import BadJob, Job
from headrace.pipelines.jobs.versions import at_version
from headrace.pipelines.views import postgres, redis, sqlite, topic, view
from headrace.pipelines.views.declare import views_in
from headrace.pipelines.views.sink import ViewSink
from headrace.pipelines.views.topic_store import TopicStore
from headrace.stores.errors import BadView
from headrace.stores.views.shape import check_shape, shape_of

INPUTS = {"posts": topic("posts", bootstrap="127.0.0.1:9")}
STORE = sqlite("views.db")


def declared(**options: Any) -> Job:
    @view(**({"key": "id", "inputs": INPUTS, "store": STORE} | options))
    def newest_posts(posts: Any) -> Any:
        return posts

    return newest_posts


def test_a_view_is_a_job_with_its_store_as_output() -> None:
    made = declared()
    assert (made.name, made("frame")) == ("newest-posts", "frame")
    (sink,) = views_in([made]).values()
    assert (sink.key, sink.sources, sink.store) == (("id",), ("posts",), STORE)
    beside = at_version(made, 2, switched=False).outputs["out"]
    assert isinstance(beside, ViewSink)
    assert beside.version == 2
    assert declared(mode="update").outputs["out"].output_mode == "update"


def test_a_topic_is_a_store() -> None:
    store = declared(store=topic("newest", partitions=3)).outputs["out"].store
    assert store == TopicStore("newest", "127.0.0.1:9", 3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"key": []}, "has no key: name the columns that identify a row"),
        ({"key": ["id", "id"]}, "the key names a column twice"),
        ({"name": "a.b"}, "a view's name is letters, digits, dashes and underscores"),
        ({"mode": "complete"}, "mode is 'complete': choose one of append, update"),
        ({"on_new_query": "continue"}, "would add to a view what it has already"),
        ({"store": print}, "store is builtin_function_or_method: write sqlite"),
        ({"inputs": {"others": INPUTS["posts"]}}, "give both the same names"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_where_it_stands(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadJob, match=r"test_view_declare\.py:\d+") as refusal:
        declared(**options)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize(("make", "sentence"), [(postgres, "postgresql://user@"), (redis, "redis://host")])
def test_a_store_wants_a_url_that_it_can_read(make: Any, sentence: str) -> None:
    with pytest.raises(BadView, match=sentence):
        make("somewhere")


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"id": "double"}, "the key 'id' is double: a key is a number without a fraction"),
        ({"other": "int"}, "has the key 'id', and its rows have only other"),
        ({"id": "int", "headrace_key": "int"}, "names that begin with headrace_ are taken"),
    ],
)
def test_rows_that_no_store_can_keep_are_refused(columns: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadView) as refusal:
        check_shape("v", shape_of(columns, ("id",)))
    assert sentence in str(refusal.value)


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    for store in (postgres("postgresql://me:hush@there/db"), redis("redis://:hush@there/0")):
        assert "hush" not in repr(declared(store=store)) + str(store)
