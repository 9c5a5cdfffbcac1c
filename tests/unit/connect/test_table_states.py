"""Two looks at a table in the catalog: what they tell about rows that changed without a word in the log."""

from dataclasses import replace
from typing import Any

import pytest

from headrace.connect.postgres.relation import RelationColumn
from headrace.connect.postgres.table_states import ChangedColumn, PartFile, TableState, new_parts, unseen_between

KEY = (RelationColumn("id", True, 23, -1),)
PLAIN = TableState(10, 3, "abc", KEY, "1:5:7", "public", "t", {10: PartFile(100, "5")})
KEYLESS = replace(PLAIN, key=())
PARTED = replace(PLAIN, parts={11: PartFile(110, "5"), 12: PartFile(120, "5")})
LINKED = replace(PARTED, parts={11: PartFile(110, "5", ":8")})


@pytest.mark.parametrize(
    ("before", "now", "changed", "said"),
    [
        (PLAIN, PLAIN, [], ""),
        (PLAIN, replace(PLAIN, id=20), [], "replaced by another"),
        (PLAIN, replace(PLAIN, entry="1:5:8"), [], "not sent for a while"),
        (PLAIN, replace(PLAIN, key=()), [], "its key became none"),
        (
            PLAIN,
            replace(PLAIN, parts={10: PartFile(101, "6")}),
            [],
            "",
        ),  # TRUNCATE is told, VACUUM FULL changes nothing
        (
            PLAIN,
            replace(PLAIN, parts={10: PartFile(101, "6")}),
            [(2, "v", False)],
            "column v was renamed, or its values",
        ),
        (PLAIN, replace(PLAIN, shape="abd"), [(2, "v", False)], "column v was renamed, or its values"),
        (PLAIN, replace(PLAIN, shape="abd"), [], ""),  # dropped
        (PLAIN, PLAIN, [(2, "v", False)], ""),  # SET DEFAULT, SET NOT NULL
        (KEYLESS, KEYLESS, [(2, "v", False)], "column v was altered, and its rows are known by their values"),
        (KEYLESS, KEYLESS, [(2, "", False, True)], "a column of it was dropped, and its rows are known by"),
        (KEYLESS, replace(KEYLESS, columns=4, shape="abd"), [(4, "c", False)], ""),
        (PLAIN, replace(PLAIN, columns=4, shape="abd"), [(4, "c", False)], ""),
        (PLAIN, replace(PLAIN, columns=4, shape="abd"), [(4, "c", True)], "column c was added with a value"),
        (
            PLAIN,
            replace(PLAIN, columns=4, parts={10: PartFile(101, "6")}),
            [(4, "c", False)],
            "column c was added with a value",
        ),
        (PARTED, replace(PARTED, parts={11: PartFile(110, "5")}), [], "detached or dropped"),
        (
            PARTED,
            replace(PARTED, parts={11: PartFile(110, "5"), 12: PartFile(121, "6")}),
            [],
            "truncated or written anew",
        ),
        (PARTED.after_truncate("6"), replace(PARTED, parts={11: PartFile(111, "6"), 12: PartFile(121, "6")}), [], ""),
        (PARTED, PARTED, [(0, "c", True)], "column c was added with a value"),
        (LINKED, LINKED, [], ""),
        (replace(LINKED, parts={11: PartFile(110, "5")}), LINKED, [], ""),  # stored when links were not kept
        (LINKED, replace(LINKED, parts={11: PartFile(110, "6", ":9")}), [], "detached for a while"),
        (PLAIN, replace(PLAIN, shape="abd"), [(2, "…", False, True)], ""),  # dropped
        (
            PLAIN,
            replace(PLAIN, columns=4),
            [(2, "…", False, True), (4, "c", False)],
            "column c was added and one was dropped",
        ),
    ],
)
def test_what_two_looks_tell(before: TableState, now: TableState, changed: list[tuple[Any, ...]], said: str) -> None:
    found = unseen_between(before, now, [ChangedColumn(*one) for one in changed])
    assert said in found
    assert bool(said) == bool(found)


def test_a_state_is_stored_and_partitions_that_came_are_found() -> None:
    now = replace(PARTED, parts={**PARTED.parts, 13: PartFile(130, "7")}, truncated="6")
    assert TableState.from_json(now.as_json()) == now
    assert new_parts(PARTED, now) == [13]
    assert unseen_between(PARTED, now, []) == ""
