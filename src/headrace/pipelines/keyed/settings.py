"""What a keyed state was made with, kept in each of its partitions and held against what a query now says.

Buckets and keys decide where a key's rows are, the operator's parameters what they mean: with other ones panes of a
minute would be read as panes of an hour. So a query that has others is refused before it reads a row. State from before
parameters were written down is taken as it is, and has them from then on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.pipelines.keyed.operator import BadState, Plan, Rows, Table, Values
from headrace.stores.arrow_rows import schema_from_text, schema_to_text

VERSION: Final = 1
KINDS: Final[dict[str, type[Values] | type[Rows]]] = {"values": Values, "rows": Rows}
LATER: Final = {"later": True}
SETTINGS_BUCKET: Final = -1
"""The bucket that no key has: its record holds the settings."""


@dataclass(frozen=True)
class Settings:
    """Buckets, the key's columns, the tables, and the operator's parameters as text."""

    buckets: int
    keys: pa.Schema
    tables: tuple[Table, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan, keys: pa.Schema, buckets: int) -> "Settings":
        """The settings of a query."""
        tables = (*plan.tables, *plan.common)
        return cls(buckets, keys, tables, {name: describe(value) for name, value in plan.parameters.items()})


def to_text(settings: Settings) -> str:
    """As JSON; columns as Arrow writes them, and their names for who reads."""
    tables = [
        {
            "name": table.name,
            "kind": "values" if isinstance(table, Values) else "rows",
            "time": table.time,
            "columns": table.schema.names,
            "schema": schema_to_text(table.schema),
        }
        for table in settings.tables
    ]
    keys = {"columns": settings.keys.names, "schema": schema_to_text(settings.keys)}
    head = {"layout": VERSION, "buckets": settings.buckets, "keys": keys}
    return json.dumps({**head, "parameters": dict(settings.parameters), "tables": tables})


def from_text(text: str) -> Settings:
    """The way back; what was written before there were parameters has none."""
    stored: dict[str, Any] = json.loads(text)
    tables = [
        KINDS[each["kind"]](each["name"], schema_from_text(each["schema"]), each["time"]) for each in stored["tables"]
    ]
    parameters = stored.get("parameters", {})
    return Settings(stored["buckets"], schema_from_text(stored["keys"]["schema"]), tuple(tables), parameters)


def check_same(stored: Settings, now: Settings) -> None:
    """`BadState` if the stored state cannot serve the query."""
    if stored.buckets != now.buckets:
        raise BadState(
            f"the stored state has {stored.buckets} buckets and the query asks for {now.buckets}: a key would not find "
            f"what it has, so write buckets={stored.buckets}, or rebuild the job to change it"
        )
    if not stored.keys.equals(now.keys):
        raise BadState(
            f"the stored state is keyed by {_shown(stored.keys)} and the query by {_shown(now.keys)}: write the keys "
            "as they were, or rebuild the job"
        )
    for name, value in now.parameters.items():
        if (was := stored.parameters.get(name, value)) != value:
            raise BadState(
                f"the stored state was made with {name} = {was}, and the query has {name} = {value}, which would read "
                "it as something else: write it as it was, or rebuild the job to change it"
            )


def describe(value: object) -> str:
    """A parameter as text, the same in every process: functions are left out, and fields that are not for `repr`.

    A field that a class got only later has metadata `LATER`: as long as it has its default, texts are as before.
    """
    if is_dataclass(value) and not isinstance(value, type):
        shown = {each.name: getattr(value, each.name) for each in fields(value) if each.repr}
        for each in fields(value):
            if each.metadata == LATER and shown[each.name] == each.default:
                del shown[each.name]
        parts = [f"{name}={describe(each)}" for name, each in shown.items() if not callable(each)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, pa.Schema):
        return _shown(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(describe, value))}]"
    return str(value)


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
