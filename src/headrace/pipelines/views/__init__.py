"""Materialized views: declared over change streams, kept exactly once, asked for from outside.

    from headrace.pipelines.views import sqlite, topic, view

`declare` is what a user writes; `sink` turns a batch of weighted rows into what it does to the view; the stores keep
rows, batch and freshness as one (`headrace.stores`, and `topic_store` for a topic of our own); `serving/` is HTTP.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.pipelines.jobs.declare import topic
    from headrace.pipelines.views.declare import view
    from headrace.stores.duckdb.view import duckdb
    from headrace.stores.postgres.view import postgres
    from headrace.stores.redis.view import redis
    from headrace.stores.sqlite.view import sqlite

_HOMES = {
    "topic": "headrace.pipelines.jobs.declare",
    "view": "headrace.pipelines.views.declare",
    **{name: f"headrace.stores.{name}.view" for name in ("duckdb", "postgres", "redis", "sqlite")},
}

__all__ = ["duckdb", "postgres", "redis", "sqlite", "topic", "view"]

__getattr__, __dir__ = export_lazily(__name__, _HOMES)
