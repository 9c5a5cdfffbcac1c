"""What values look like, and what a change record changed."""

import json

import pytest

from headrace.dashboard.values import difference_of, shape_of


def no_schema(schema_id: int) -> str:
    raise AssertionError(f"nobody asked for schema {schema_id}")


def encoded(*values):
    return [None if value is None else json.dumps(value).encode() for value in values]


def fields(shape):
    return {field.path: (field.types, field.count) for field in shape.fields}


def test_fields_are_inferred_with_their_types_and_how_often_they_are_there():
    found = shape_of(encoded({"id": 1, "at": {"city": "Graz"}}, {"id": "x", "note": None}, None), no_schema)
    assert (found.origin, found.values) == ("inferred", 2)
    assert fields(found) == {
        "id": ("integer or string", 2), "at": ("object", 1), "at.city": ("string", 1), "note": ("null", 1),
    }  # fmt: skip
    assert next(field.example for field in found.fields if field.path == "at.city") == "Graz"


def test_of_change_records_the_row_is_shown():
    insert = {"op": "c", "before": None, "after": {"id": 1, "cents": 5}, "source": {"lsn": 7}}
    delete = {"schema": {}, "payload": {"op": "d", "before": {"id": 1}, "after": None}}
    found = shape_of(encoded(insert, delete), no_schema)
    assert found.origin == "changes"
    assert fields(found) == {"id": ("integer", 2), "cents": ("integer", 1)}


def test_a_schema_that_records_name_is_looked_up():
    schema = {
        "type": "record", "name": "Order", "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
            {"name": "to", "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]}},
        ],
    }  # fmt: skip
    found = shape_of([b"\0\0\0\0\7rest", b"\0\0\0\0\5rest"], {5: "{}", 7: json.dumps(schema)}.__getitem__)
    assert (found.origin, sorted(found.schemas)) == ("schema", [5, 7])
    assert [(field.path, field.types) for field in found.fields] == [
        ("id", "long"), ("at", "null or long (timestamp-micros)"), ("to", "Place"), ("to.city", "string"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "origin"),
    [([], "nothing"), ([None], "nothing"), ([b"hello", b"{}"], "text"), ([b"\xff\xfe"], "binary"), ([b"5"], "text")],
)
def test_what_has_no_fields(values, origin):
    assert shape_of(values, no_schema).origin == origin


def test_a_difference_names_the_columns_that_changed():
    (value,) = encoded({"op": "u", "before": {"id": 1, "state": "open"}, "after": {"id": 1, "state": "paid", "by": 2}})
    found = difference_of(value)
    assert (found.operation, [column.name for column in found.changed]) == ("update", ["state", "by"])
    assert [(column.before, column.after) for column in found.columns] == [("1", "1"), ("open", "paid"), (None, "2")]


def test_an_insert_a_delete_and_a_truncate():
    found = difference_of(*encoded({"op": "c", "before": None, "after": {"id": 1}}))
    assert (found.operation, found.columns[0].before, found.columns[0].after) == ("insert", None, "1")
    assert difference_of(*encoded({"op": "d", "before": {"id": 1}, "after": None})).columns[0].after is None
    assert difference_of(*encoded({"op": "t", "before": None, "after": None})).columns == ()


@pytest.mark.parametrize("value", [None, b"", b"{", b"[1]", b'{"op": "u"}', b'{"op": "u", "before": 5, "after": 6}'])
def test_what_is_not_a_change_has_no_difference(value):
    assert difference_of(value) is None
