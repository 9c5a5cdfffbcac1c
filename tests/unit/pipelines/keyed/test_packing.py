"""Rows on the way to their bucket: those for all keys before the others, and calls of no more rows than are wanted."""

import pyarrow as pa

from headrace.pipelines.keyed.layout import rows_to_bytes
from headrace.pipelines.keyed.packing import HASH, first_for_all, open_cells

SCHEMA = pa.schema([("all", pa.bool_()), ("place", pa.int64()), ("n", pa.int64()), (HASH, pa.int64())])


def cell(*rows: tuple[bool | None, int, int]) -> bytes:
    made = [{"all": flag, "place": place, "n": n, HASH: n * 10} for flag, place, n in rows]
    return rows_to_bytes(pa.RecordBatch.from_pylist(made, schema=SCHEMA)).to_pybytes()


def calls(cells: list[bytes], most: int | None = None) -> list[list[int]]:
    found = []
    for part in first_for_all(iter(cells), "all", ("place",)):
        for hashes, rows in [part] if isinstance(part, tuple) else open_cells(part, 100, most):
            assert rows.schema.names == ["all", "place", "n"]
            assert hashes.tolist() == [n * 10 for n in rows.column("n").to_pylist()]
            found.append(rows.column("n").to_pylist())
    return found


def test_rows_for_all_come_first_and_in_order() -> None:
    cells = [
        cell((False, 0, 1), (None, 0, 2)),
        cell((True, 9, 3), (True, 4, 4)),
        cell((False, 0, 5), (True, 1, 6), (False, 0, 7)),
    ]
    assert calls(cells) == [[6, 4, 3], [1, 2, 5, 7]]
    assert calls(cells[:1]) == [[1, 2]]
    assert calls(cells[1:2]) == [[4, 3]]
    assert calls([]) == []


def test_a_call_has_no_more_rows_than_the_plan_says() -> None:
    cells = [cell(*((False, 0, n) for n in range(begin, begin + 7))) for begin in (0, 7)]
    assert calls(cells, 5) == [[0, 1, 2, 3, 4], [5, 6], [7, 8, 9, 10, 11], [12, 13]]
    assert [rows.num_rows for _, rows in open_cells(cells, 100)] == [14]


def test_many_rows_wait_in_a_file() -> None:
    wide = pa.schema([*SCHEMA, ("text", pa.string())])
    cells = [
        rows_to_bytes(
            pa.RecordBatch.from_pylist(
                [{"all": False, "place": 0, "n": n, HASH: n, "text": "x" * 30_000_000}], schema=wide
            )
        ).to_pybytes()
        for n in range(4)
    ]
    found = []
    for part in first_for_all(iter(cells), "all", ("place",)):
        assert not isinstance(part, tuple)
        found += [rows.column("n").to_pylist() for _, rows in open_cells(part, 1)]
    assert found == [[0], [1], [2], [3]]
