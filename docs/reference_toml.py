"""The reference page of `headrace.toml`: every section and key, from the code that reads them."""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from headrace.connect.capture import settings as capture
from headrace.connect.capture.settings import LOG, TRIGGERS
from headrace.connect.capture.settings import kind_of as capture_kind_of
from headrace.connect.sync import settings as sync
from headrace.connect.sync.registry import SINKS
from headrace.gateways.section import KINDS as GATEWAY_KINDS
from headrace.gateways.section import SECTION as GATEWAYS
from headrace.gateways.section import kind_of
from headrace.section_keys import Key
from headrace.stack.registry import KINDS

# `[cdc.NAME]`: what every capture has, then what belongs to a kind of database.
CAPTURE: Mapping[str, str] = {
    "url": "`postgresql://…`, `mysql://…`, `mariadb://…` or `sqlite:///path`; `${NAME}` is read from the environment.",
    "method": "`log`, or for a PostgreSQL that allows no logical decoding `triggers`.",
    "prefix": "What topics begin with; by default the capture's name.",
    "topic": "How topics are called: `{prefix}.{schema}.{table}`; `{database}` may stand in it too.",
    "partitions": "Of a topic that is made.",
    "compression": "Of batches: `none`, `gzip`, `snappy`, `lz4` or `zstd`.",
    "types": "How types are written for which there are several ways: `decimal`, `time`, `binary`, `interval`.",
    "format": "What records are written as: `json` or `avro`.",
    "registry": "With Avro: the URL of a schema registry; without it schemas are kept in a topic.",
    "tables": "Regular expressions on `schema.table`: what is captured; all tables if it is left out.",
    "exclude_tables": "Instead: what is not.",
    "columns": "Regular expressions on `schema.table.column`: what is shown.",
    "exclude_columns": "Instead: what is not. The key's columns are always there.",
    "mask_columns": "Shown as asterisks.",
    "hash_columns": "Shown as a keyed hash, equal for equal values.",
    "hash_salt": "The key of that hash; needed with it.",
    "truncate_columns": "A table of patterns and lengths: texts are cut.",
    "personal": "A table of `schema.table` and `{ subject = …, columns = […] }`: columns that are sealed with the key "
    "of whom the row is about.",
    "key_columns": "A table of `schema.table` and columns: what its records are keyed by, instead of the primary key.",
    "schemas": "Connect's schema with every record.",
    "tombstones": "A record without a value behind every delete, so that compaction removes the key.",
    "unwrap": "`drop`: rows alone, deletes as tombstones; `rewrite`: rows with `__deleted`.",
    "skipped_operations": "Of `c`, `u`, `d`, `t`: what is left out.",
    "transaction_metadata": "Where a change stands in its transaction, and a topic of transactions.",
    "outbox_prefix": "Messages that an application writes into the log with this prefix become records of their own.",
}  # fmt: skip
SOURCE: Mapping[str, str] = {
    "batch_messages": "At most so many messages of the log at once.",
    "batch_rows": "At most so many rows at once.",
    "busy_timeout_s": "How long to wait for a lock of the file.",
    "capture": "What added tables and triggers begin with, and by what a signal means this capture alone; "
    "by default `headrace_` and the capture's name.",
    "chunk_rows": "So many rows at once are read by a snapshot beside the stream.",
    "failover": "The slot survives a change of the primary (PostgreSQL 17 and later).",
    "heartbeat_s": "How often the place in the log is told, and new tables are looked for, while nothing happens.",
    "lag_alarm_bytes": "Warn when the database keeps so much of its log for us.",
    "lag_cap_bytes": "Beyond it the slot is dropped, so that the server's disk is not filled.",
    "managed_publication": "Make the publication, and add tables to it.",
    "open_alarm_s": "Warn when a transaction is open for so long, because it holds everything up.",
    "poll_s": "How often changes are looked for.",
    "prune_rows": "What was passed on is deleted in such portions.",
    "publication": "Its name; by default the slot's.",
    "schema_changes": "`evolve` goes on, `block` stops, `skip` leaves the table out.",
    "server_id": "The replica's number; by default one that is made up.",
    "signal_table": "`schema.table` through which a snapshot can be asked for; of MariaDB and MySQL by default "
    "`headrace_signal` in the URL's database.",
    "slot": "The replication slot; by default `headrace_` and the capture's name.",
    "snapshot": "`initial`, `initial-only`, `never` or `when-needed`.",
    "snapshot_range_rows": "Of a larger table each so many rows are read by themselves.",
    "snapshot_workers": "How many read at once.",
    "streaming": "Take large transactions while they run.",
    "unseen_changes": "What may have changed rows and is not in the changes (a table that was replaced by another of "
    "its name): `reread` empties the table for its readers and reads it again, `stop` stops this table alone, and says "
    "why.",
    "unavailable": "A large value that was not sent again: `placeholder`, or `reselect` reads it, as is always done "
    "where the row moved to another key.",
}  # fmt: skip
FOLLOW: Mapping[str, str] = {
    "topic": "The topic to follow.",
    "sink": "The kind of target.",
    "format": "What keys and values are written in: `json` or `avro`.",
    "registry": "With Avro: the URL of the registry that the writer used; without it schemas are read from a topic.",
    "value": "`envelope` (Debezium's) or `plain` rows.",
    "key": "`json`, or `text` for a bare value.",
    "key_column": "The column of a key that is a bare value.",
    "value_column": "The column of a plain value that is no object.",
    "batch_records": "At most so many records at once.",
    "batch_bytes": "At most so many bytes at once.",
    "dead_letters": "Where records go that the target refuses; by default the topic with `.dead-letters` behind it.",
    "first_pause_s": "The pause after the first failure; it doubles.",
    "longest_pause_s": "The longest pause.",
    "open": "Whether sealed values are opened; rows of a forgotten person are then written again.",
}
SINK: Mapping[str, str] = {
    "url": "Where the target is.",
    "path": "The file or folder.",
    "table": "The table; it is made if it is not there.",
    "types": "Types of columns that are made: `{ price = \"DECIMAL(10, 2)\" }`.",
    "new_columns": "A column that the table lacks: `add` it, or `ignore` it.",
    "prefix": "What keys begin with.",
    "form": "`hash` or `json`.",
    "mode": "`write-through`, or `invalidate`: changed keys are only removed.",
    "ttl_s": "Keys go after so many seconds; 0 is never.",
    "index": "The alias that readers use.",
    "timeout_s": "How long to wait for an answer.",
    "buckets": "Into how many parts the folder is divided; rewriting touches only parts that changed.",
    "storage_options": "What the object store wants to know.",
    "text_fields": "Columns that are searched as text.",
    "secret": "Signs each request.",
    "headers": "Further headers.",
    "connections": "How many requests at once.",
    "allow_private": "Networks that the URL's name may lead to though they are not public: `10.1.0.0/16`, or `any`.",
}  # fmt: skip
MISSING_MEANING = "(nobody has said yet)"  # a test fails on it
_DATABASES = (
    ("PostgreSQL, by its log", "postgresql://localhost/shop", LOG),
    ("PostgreSQL, by triggers", "postgresql://localhost/shop", TRIGGERS),
    ("MariaDB and MySQL", "mysql://localhost/shop", LOG),
    ("SQLite", "sqlite:///shop.db", LOG),
)


def capture_keys() -> list[str]:
    """The keys that every capture has."""
    return [*capture._OWN, *capture._FILTERS, *capture._WRITING]  # noqa: SLF001 - the tables that the reader goes by


def source_keys() -> dict[str, dict[str, Any]]:
    """The keys of each kind of database, with their defaults."""
    found = {}
    for title, url, method in _DATABASES:
        kind = capture_kind_of(url, method)
        # What a capture is called in the database is made of its name, unless it is said.
        found[title] = {
            each.name: MISSING if each.name in ("slot", "capture") else each.default
            for each in fields(kind.settings)
            if each.name in kind.options
        }
    return found


def follow_keys() -> list[str]:
    """The keys that every derived system has."""
    return list(sync.OWN_KEYS)


def sink_keys() -> dict[str, dict[str, Any]]:
    """The keys of each kind of target, with their defaults; `bootstrap` is filled in by whoever runs it."""
    found = {}
    for name, place in SINKS.items():
        module, _, function = place.partition(":")
        parameters = inspect.signature(getattr(importlib.import_module(module), function)).parameters
        found[name] = {
            word: parameters[word].default for word in parameters if word not in ("name", "topic", "bootstrap")
        }
    return found


def page(note: str) -> str:
    """The page."""
    lines = ["# headrace.toml\n", note, "One file describes a whole stack; `headrace init` writes one with comments."]
    lines += ["A section is left out if it is not wanted, and a key if its default will do.\n"]
    for kind in KINDS:
        lines += [f"## `[{kind.name}{'.NAME' if kind.is_named else ''}]`\n", f"{kind.summary}\n"]
        if kind.name == "cdc":
            lines += _captures()
        elif kind.name == "sync":
            lines += _targets()
        elif kind.keys:
            lines += [*_head(), *map(_of_stack, kind.keys), ""]
        lines += _gateways() if kind.name == GATEWAYS else []
    return "\n".join(lines)


def _captures() -> list[str]:
    lines = [*_head(), *(_line(key, MISSING, CAPTURE.get(key, MISSING_MEANING)) for key in capture_keys()), ""]
    for title, keys in source_keys().items():
        lines += [
            f"### {title}\n",
            *_head(),
            *(_line(key, default, SOURCE.get(key, MISSING_MEANING)) for key, default in keys.items()),
            "",
        ]
    return lines


def _targets() -> list[str]:
    lines = [*_head(), *(_line(key, MISSING, FOLLOW.get(key, MISSING_MEANING)) for key in follow_keys()), ""]
    for name, keys in sink_keys().items():
        lines += [f'### With `sink = "{name}"`\n', *_head()]
        lines += [*(_line(key, default, SINK.get(key, MISSING_MEANING)) for key, default in keys.items()), ""]
    return lines


def _gateways() -> list[str]:
    lines = []
    for kind in map(kind_of, GATEWAY_KINDS):
        lines += [f'### `kind = "{kind.name}"`', "", kind.summary, "", *_head(), *map(_of_stack, kind.keys), ""]
    return lines


def _head() -> list[str]:
    return ["| key | default | meaning |", "|---|---|---|"]


def _of_stack(key: Key) -> str:
    choices = f" One of {', '.join(f'`{each}`' for each in key.choices)}." if key.choices else ""
    return _line(key.name, key.default, f"{'Needed. ' if key.is_needed else ''}{key.meaning}{choices}")


def _line(key: str, default: Any, meaning: str) -> str:
    is_told = default not in (MISSING, inspect.Parameter.empty, None, "", ())
    told = str(default).lower() if isinstance(default, bool) else default
    return f"| `{key}` | {f'`{told}`' if is_told else ''} | {meaning} |"
