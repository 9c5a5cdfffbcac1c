"""What a user writes: `@view` over a function from tables as changes to a table as changes.

    from headrace.pipelines.views import sqlite, topic, view

    @view(key=["customer"], inputs={"orders": topic("shop.orders", …)}, store=sqlite("views.db"))
    def spent(orders):
        return orders.transform(table_changes(key=["id"])).transform(group_changes(by=["customer"], …))

A view is a job with a special output: `headrace pipeline run`, `status`, `reset` and `rebuild` know it as one.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.pipelines.jobs.declare import BadJob, Job, Topic, job
from headrace.pipelines.options import connection_in
from headrace.pipelines.views.sink import ViewSink
from headrace.stores.batch import words
from headrace.stores.views.shape import NAME
from headrace.stores.views.store import Store

if TYPE_CHECKING:
    from headrace.stores.batch import OnNewQuery

_MODES = ("append", "update")


def view(
    *,
    key: str | Sequence[str],
    inputs: Mapping[str, Topic],
    store: "Store | Topic",
    name: str | None = None,
    trigger: str = "500 ms",
    checkpoint: str | None = None,
    mode: str | None = None,
    on_new_query: "OnNewQuery" = "refuse",
    conf: Mapping[str, object] = MappingProxyType({}),
    drain: bool = False,
) -> Callable[[Callable[..., Any]], Job]:
    """Make a view of a function that takes a DataFrame for each input and returns weighted rows (`_weight`).

    `key` are the columns that identify a row of the view. `store` is sqlite(…), postgres(…), duckdb(…), redis(…) or
    topic(…). `on_new_query="replace"` empties the view when its checkpoint was deleted.

    Where `group_changes` by the view's key is the last step, and can be left to Spark's own aggregation, it is, and the
    query runs in Spark's output mode "update": a row replaces the one before it without taking it back. `mode="append"`
    keeps to changes, and `mode="update"` says that the function returns such rows itself.
    """

    def declared(function: Callable[..., Any]) -> Job:
        chosen = name or function.__name__.replace("_", "-")
        sink = ViewSink(
            chosen,
            words(key),
            _store(store, inputs),
            tuple(given.name for given in inputs.values() if isinstance(given, Topic)),
            upserts=mode == "update",
            is_fixed=mode is not None,
            on_new_query=on_new_query,
        )
        made = job(
            inputs=inputs,
            outputs=sink,
            name=chosen,
            trigger=trigger,
            checkpoint=checkpoint,
            mode=mode or "append",
            conf=conf,
            drain=drain,
        )(_checked(function, sink))
        _check(made, sink, mode)
        return made

    return declared


def _checked(function: Callable[..., Any], sink: ViewSink) -> Callable[..., Any]:
    """The function, and a look at what it returns: columns that make no view are refused before a query starts."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if hasattr(found, "schema"):
            sink.shape_of(sink.changed(found))
        return found

    return checked


def _check(made: Job, sink: ViewSink, mode: str | None) -> None:
    where = f"{made.place}: view {made.name!r}"
    if not NAME.fullmatch(made.name):
        raise BadJob(f"{where}: a view's name is letters, digits, dashes and underscores")
    if not sink.key:
        raise BadJob(f"{where} has no key: name the columns that identify a row, key=['…']")
    if len(set(sink.key)) < len(sink.key):
        raise BadJob(f"{where}: the key names a column twice")
    if mode is not None and mode not in _MODES:
        raise BadJob(f"{where}: mode is {mode!r}: choose one of {', '.join(_MODES)}")
    if sink.on_new_query not in ("refuse", "replace"):
        raise BadJob(
            f"{where}: on_new_query is {sink.on_new_query!r}: choose 'refuse', or 'replace' to begin anew; to go on "
            "from other offsets would add to a view what it has already"
        )
    if not hasattr(sink.store, "reader"):
        raise BadJob(
            f"{where}: store is {type(sink.store).__name__}: write sqlite(…), postgres(…), duckdb(…), redis(…) or "
            "topic(…) from headrace.pipelines.views"
        )


def _store(store: "Store | Topic", inputs: Mapping[str, Topic]) -> Store:
    if not isinstance(store, Topic):
        return store
    from headrace.pipelines.views.topic_store import TopicStore

    first = next((given.bootstrap for given in inputs.values() if isinstance(given, Topic)), None)
    return TopicStore(
        store.name, store.bootstrap or first, int(store.options.get("partitions", "1")), connection_in(store.options)
    )


def views_in(jobs: Sequence[Job]) -> dict[str, ViewSink]:
    return {output.name: output for made in jobs for output in made.outputs.values() if isinstance(output, ViewSink)}
