"""What a keyed state was made with, kept in each of its partitions and held against what a query now says."""

import base64
import json
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.pipelines.keyed.errors import BadState
from headrace.pipelines.keyed.operator import Plan, Rows, Table, Values

VERSION: Final = 1
KINDS: Final[dict[str, type[Values] | type[Rows]]] = {"values": Values, "rows": Rows}
SETTINGS_BUCKET: Final = -1
"""The bucket that no key has: its record holds the settings."""


@dataclass(frozen=True)
class Settings:
    """Buckets, the key's columns and the tables."""

    buckets: int
    keys: pa.Schema
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, plan: Plan, keys: pa.Schema, buckets: int) -> "Settings":
        """The settings of a query."""
        return cls(buckets, keys, plan.tables)


def to_text(settings: Settings) -> str:
    """As JSON; columns as Arrow writes them, and their names for who reads."""
    tables = [
        {
            "name": table.name,
            "kind": "values" if isinstance(table, Values) else "rows",
            "time": table.time,
            "columns": table.schema.names,
            "schema": _text(table.schema),
        }
        for table in settings.tables
    ]
    keys = {"columns": settings.keys.names, "schema": _text(settings.keys)}
    return json.dumps({"layout": VERSION, "buckets": settings.buckets, "keys": keys, "tables": tables})


def from_text(text: str) -> Settings:
    """The way back."""
    stored: dict[str, Any] = json.loads(text)
    tables = [KINDS[each["kind"]](each["name"], _schema(each["schema"]), each["time"]) for each in stored["tables"]]
    return Settings(stored["buckets"], _schema(stored["keys"]["schema"]), tuple(tables))


def check_same(stored: Settings, now: Settings) -> None:
    """`BadState` if the stored state cannot serve the query."""
    if stored.buckets != now.buckets:
        raise BadState(
            f"the stored state has {stored.buckets} buckets and the query asks for {now.buckets}: a key would not find "
            f"what it has, so write buckets={stored.buckets}, or rebuild the job to change it"
        )
    if not stored.keys.equals(now.keys):
        raise BadState(
            f"the stored state is keyed by {_told(stored.keys)} and the query by {_told(now.keys)}: write the keys as "
            "they were, or rebuild the job"
        )


def _told(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
