"""Event sourcing: the application's own events as its system of record.

`model.py` is what an event is, `store.py` the contract of a store, `event_types.py` how plain dataclasses become
events, `evolution.py` how their older forms become those of today, and `personal.py` which of their fields are sealed.
`aggregate.py` is how commands become events and events state, `repository.py` handles commands with all that;
`loading.py` with `snapshots.py` is how it has states, `travel.py` what they were.
A store is in memory (`memory.py`), in tables (`sql.py`) of SQLite or PostgreSQL, or in a topic (`broker_store.py`,
`kafka_store.py`); `opening.py` has each by its address. `hash_chain.py` and `verification.py` show what was tampered
with; `erasure.py` and `archives.py` take events out, and `traces.py` is what stays of that.

What follows from events: `subscription.py` reads them as they come, `competing.py` shares them among programs;
`projection.py` makes views of them, which are kept by `projection_runner.py` where `views.py` and `views_sql.py` say;
`process.py` leads from events to commands, kept going by `process_runner.py`, and `process_effects.py` to what is done
outside. `flow.py` has a store's events on a topic, and `followers.py` runs what a section of `headrace.toml` names.

What always holds: what was acknowledged is stored whole and durably, a decision that another writer overtook is a
`Conflict` and never lost, and a reader that goes on from its position misses nothing.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.eventsourcing.aggregate import Aggregate, refuse
    from headrace.eventsourcing.archives import Retention, archive, read_archive, retain
    from headrace.eventsourcing.competing import compete
    from headrace.eventsourcing.erasure import redact
    from headrace.eventsourcing.errors import (
        BoundaryConflict,
        Conflict,
        EventSourcingError,
        ProcessFailed,
        ProjectionChanged,
        ProjectionFailed,
        Refused,
        ViewBehind,
    )
    from headrace.eventsourcing.event_types import EventTypes, event, upcast, use_keys
    from headrace.eventsourcing.evolution import Form
    from headrace.eventsourcing.hash_chain import chain
    from headrace.eventsourcing.memory import MemoryStore
    from headrace.eventsourcing.model import (
        ALL,
        ANY,
        NEW,
        Appended,
        Condition,
        NewEvent,
        Query,
        StoredEvent,
        StreamAppend,
        where,
    )
    from headrace.eventsourcing.opening import open_store
    from headrace.eventsourcing.postgres_store import postgres
    from headrace.eventsourcing.process import Process, Todo
    from headrace.eventsourcing.process_effects import EffectRunner
    from headrace.eventsourcing.process_runner import ProcessRunner
    from headrace.eventsourcing.projection import Projection, View
    from headrace.eventsourcing.projection_runner import ProjectionRunner, project_inline
    from headrace.eventsourcing.repository import AsyncRepository, Repository
    from headrace.eventsourcing.snapshots import Snapshots
    from headrace.eventsourcing.sqlite_store import sqlite
    from headrace.eventsourcing.store import EventStore, SnapshotStore
    from headrace.eventsourcing.subscription import Subscription
    from headrace.eventsourcing.traces import ArchivalTrace, Redacted, RedactionTrace
    from headrace.eventsourcing.verification import verify
    from headrace.eventsourcing.views import MemoryViews

__all__ = [
    "ALL", "ANY", "NEW", "Aggregate", "Appended", "ArchivalTrace", "AsyncRepository", "BoundaryConflict", "Condition",
    "Conflict", "EffectRunner", "EventSourcingError", "EventStore", "EventTypes", "Form", "MemoryStore",
    "MemoryViews", "NewEvent", "Process", "ProcessFailed", "ProcessRunner", "Projection", "ProjectionChanged",
    "ProjectionFailed", "ProjectionRunner", "Query", "Redacted", "RedactionTrace", "Refused", "Repository",
    "Retention", "SnapshotStore", "Snapshots", "StoredEvent", "StreamAppend", "Subscription", "Todo", "View",
    "ViewBehind", "archive", "chain", "compete", "event", "open_store", "postgres", "project_inline", "read_archive",
    "redact", "refuse", "retain", "sqlite", "upcast", "use_keys", "verify", "where",
]  # fmt: skip

_HOMES = {
    "aggregate": ("Aggregate", "refuse"),
    "archives": ("Retention", "archive", "read_archive", "retain"),
    "erasure": ("redact",),
    "competing": ("compete",),
    "errors": (
        "BoundaryConflict",
        "Conflict",
        "EventSourcingError",
        "ProcessFailed",
        "ProjectionChanged",
        "ProjectionFailed",
        "Refused",
        "ViewBehind",
    ),
    "event_types": ("EventTypes", "event", "upcast", "use_keys"),
    "evolution": ("Form",),
    "hash_chain": ("chain",),
    "memory": ("MemoryStore",),
    "model": (
        "ALL",
        "ANY",
        "NEW",
        "Appended",
        "Condition",
        "NewEvent",
        "Query",
        "StoredEvent",
        "StreamAppend",
        "where",
    ),
    "opening": ("open_store",),
    "postgres_store": ("postgres",),
    "process": ("Process", "Todo"),
    "process_effects": ("EffectRunner",),
    "process_runner": ("ProcessRunner",),
    "projection": ("Projection", "View"),
    "projection_runner": ("ProjectionRunner", "project_inline"),
    "repository": ("AsyncRepository", "Repository"),
    "snapshots": ("Snapshots",),
    "sqlite_store": ("sqlite",),
    "store": ("EventStore", "SnapshotStore"),
    "traces": ("ArchivalTrace", "Redacted", "RedactionTrace"),
    "verification": ("verify",),
    "subscription": ("Subscription",),
    "views": ("MemoryViews",),
}

__getattr__, __dir__ = export_lazily(
    __name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
)
