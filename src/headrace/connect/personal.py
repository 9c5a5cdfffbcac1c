"""Personal columns of captured tables: sealed before a row is on a topic, with the key of whom the row is about.

    [cdc.shop.personal]
    "public.customers" = { subject = "id", columns = ["name", "email"] }

A sealed column is a text on the topic, whatever its type in the database; null stays null. The record's key is not
sealed, so no column of it can be. A row of somebody who was forgotten is written all the same, with empty sealed
values: one person does not hold up the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from json import loads
from typing import Any, Final, TypeAlias

from headrace.connect.errors import InvalidConnectSetting, SourceRefused
from headrace.connect.table import UNCHANGED, Codec, Column, Raw, Table, from_wire

Seal: TypeAlias = Callable[..., str]  # of a value, and of a subject and a field by name
_WANTED: Final = 'write { subject = "id", columns = ["name"] }'


@dataclass(frozen=True, slots=True)
class PersonalColumns:
    """Which columns of a table are sealed, and in which one stands whose they are."""

    subject: str
    columns: tuple[str, ...]


def read_personal(where: str, given: Mapping[str, Any], form: str) -> dict[str, PersonalColumns]:
    """The setting `personal` of a capture, checked as far as it can be without the database."""
    if given and form != "json":
        raise InvalidConnectSetting(f"{where}.format", form, "personal columns are sealed in JSON only: leave it out")
    found = {}
    for table, value in given.items():
        name = f"{where}.personal of {table}"
        if not isinstance(value, Mapping) or set(value) != {"subject", "columns"}:
            raise InvalidConnectSetting(name, value, _WANTED)
        subject, columns = value["subject"], value["columns"]
        is_listed = isinstance(columns, list) and columns and all(isinstance(one, str) for one in columns)
        if not isinstance(subject, str) or not subject or not is_listed:
            raise InvalidConnectSetting(name, value, _WANTED)
        if subject in columns:
            raise InvalidConnectSetting(name, value, "the subject's own column cannot be sealed: use an id")
        found[table] = PersonalColumns(subject, tuple(columns))
    return found


def sealed_columns(table: Table, personal: PersonalColumns | None, seal: Seal | None) -> dict[int, Column]:
    """The sealed columns of a table, by their places in its rows."""
    if personal is None:
        return {}
    if seal is None:
        raise SourceRefused(
            f"table {table.full_name} has personal columns, and there are no keys to seal them",
            "add a section [forgetting]",
        )
    places = {column.name: index for index, column in enumerate(table.columns)}
    for name in (personal.subject, *personal.columns):
        if name not in places:
            raise SourceRefused(
                f"personal names column {name} of {table.full_name}, which has only {', '.join(places)}",
                "correct the name",
            )
        if name != personal.subject and places[name] in table.key:
            raise SourceRefused(
                f"personal names column {name} of {table.full_name}, which is in its key, and keys are not sealed",
                "choose another key with key_columns",
            )
    whose = places[personal.subject]
    subject = partial(_subject_of, table.columns[whose].codec, f"{personal.subject} of {table.full_name}")
    return {places[name]: _sealed(table.columns[places[name]], whose, subject, seal) for name in personal.columns}


def _sealed(column: Column, whose: int, subject_of: Callable[[Raw], str], seal: Seal) -> Column:
    write = column.codec.to_json

    def to_json(raw: Raw, whose: Raw) -> str:
        return f'"{seal(loads(from_wire(write(raw))), subject=subject_of(whose), field=column.name)}"'

    # The code that writes a row has it as `row`: a sealed value needs another column beside its own.
    form = f"{{f}}({{v}}, row[{whose}])"
    codec = Codec(form, to_json, column.codec.to_python, {"type": "string"})  # type: ignore[arg-type]
    return replace(column, codec=codec)


def _subject_of(codec: Codec, where: str, raw: Raw) -> str:
    if raw is None or raw is UNCHANGED:
        raise SourceRefused(
            f"a row has no value in {where}, which says whose its personal columns are",
            "make the column NOT NULL, or choose another",
        )
    return str(loads(from_wire(codec.to_json(raw))))
