"""Stored state is read again, also what an older layout wrote."""

import base64
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipelines.keyed import layout, manifest, settings
from headrace.pipelines.keyed.bucket import Bucket, RunCache
from headrace.pipelines.keyed.keys import decode, encode
from headrace.pipelines.keyed.layout import DECODERS, VERSION, decode_run, encode_run
from headrace.pipelines.keyed.levels import Extent
from headrace.pipelines.keyed.manifest import Manifest, Woken
from headrace.pipelines.keyed.operator import (
    BadState,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Plan,
    Rows,
    State,
    Times,
    Values,
)
from headrace.pipelines.keyed.run import Run

KEYS = pa.schema([("name", pa.string())])
CELL = pa.schema([("n", pa.int64()), ("text", pa.string())])
NAMES = ["a", None, "ccc"]
OLD = base64.b64decode((Path(__file__).parent / "run_layout_1.b64").read_bytes())
OLD_MANIFEST = (
    '{"layout":1,"buckets":4,"alarm_ms":null,"bounds":{"cells":3},"woken":{"event":[5,false],"wall":[0,true]},'
    '"tables":{"cells":[["old",3,4,200,true,0,0]]}}'
)


def sample() -> Run:
    """The run that the stored sample holds."""
    keys = encode(pa.RecordBatch.from_arrays([pa.array(NAMES)], schema=KEYS), np.array([-5, 0, 9]))
    rows = pa.RecordBatch.from_arrays([pa.array([1, 2, 3, 4]), pa.array(["x", None, "", "yy"])], schema=CELL)
    return Run(keys, np.array([True, False, True]), np.array([2, 4, 4]), rows)


def assert_same(found: Run, expected: Run) -> None:
    assert decode(found.keys, KEYS) == decode(expected.keys, KEYS)
    assert found.keys.hashes.tolist() == expected.keys.hashes.tolist()
    assert found.replaces.tolist() == expected.replaces.tolist()
    assert found.row_ends.tolist() == expected.row_ends.tolist()
    assert found.rows == expected.rows


def test_a_run_of_the_first_layout_is_read() -> None:
    assert OLD[0] == 1
    assert_same(decode_run(OLD), sample())


def test_rows_are_compressed_and_those_that_are_not_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = encode(pa.RecordBatch.from_arrays([pa.array(["k"])], schema=KEYS), np.array([1]))
    rows = pa.RecordBatch.from_arrays([pa.array(range(1000)), pa.array(["the same text"] * 1000)], schema=CELL)
    run = Run(keys, np.array([True]), np.array([1000]), rows)
    small = encode_run(run)
    assert len(small) < rows.nbytes / 2
    assert_same(decode_run(small), run)
    monkeypatch.setattr(layout, "_KEPT", None)  # as runs were written before
    plain = encode_run(run)
    assert len(plain) > rows.nbytes
    assert_same(decode_run(plain), run)


def test_every_layout_up_to_the_newest_is_read() -> None:
    assert sorted(DECODERS) == list(range(1, VERSION + 1))
    assert encode_run(sample())[0] == VERSION


@pytest.mark.parametrize("uniform", [True, False, None])
@pytest.mark.parametrize("one_row", [True, False])
@pytest.mark.parametrize("width", [True, False])
def test_a_run_comes_back(uniform: bool | None, one_row: bool, width: bool) -> None:
    names = ["a", "b", "c"] if width else NAMES
    keys = encode(pa.RecordBatch.from_arrays([pa.array(names)], schema=KEYS), np.array([-5, 0, 9]))
    replaces = np.array([True, False, True]) if uniform is None else np.full(3, uniform)
    rows = sample().rows.slice(0, 3) if one_row else sample().rows
    run = Run(keys, replaces, np.array([1, 2, 3] if one_row else [2, 4, 4]), rows)
    assert_same(decode_run(encode_run(run)), run)


def test_a_layout_of_the_future_is_refused() -> None:
    with pytest.raises(BadState, match="stored state has layout 9, and this version of headrace reads 1 to 2: run it"):
        decode_run(b"\x09abc")
    with pytest.raises(BadState, match="stored state has layout 9"):
        manifest.from_text('{"layout":9}')


def test_a_manifest_comes_back_and_an_old_one_is_read() -> None:
    made = Manifest(
        4,
        {"cells": (Extent("a", 1, 2, 3, True, 4, 5), Extent("b", 1, 0, 3, False))},
        {"cells": -7},
        {"late": 3},
        {Clock.EVENT: Woken(5, True), Clock.WALL: Woken()},
        12,
    )
    assert manifest.from_text(manifest.to_text(made)) == made
    assert manifest.from_text(OLD_MANIFEST).counts == {}


class Shows:
    """Emits what it has, and replaces it by one row."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(CELL, (Values("cells", CELL),))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        one = pa.RecordBatch.from_arrays([pa.array([7]), pa.array(["new"])], schema=CELL)
        return Changes(emit=state.read("cells"), put={"cells": Keyed(np.zeros(1, np.int64), one)})

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        raise AssertionError


class Dictionary(dict[str, bytes]):
    """A store."""

    def put(self, identity: str, data: bytes) -> None:
        self[identity] = data

    def remove(self, identity: str) -> None:
        del self[identity]

    def get(self, identity: str) -> bytes:  # type: ignore[override]
        return self[identity]


def test_a_bucket_goes_on_from_an_old_layout_and_writes_the_new_one() -> None:
    store = Dictionary(old=OLD)
    operator = Shows()
    plan = operator.plan(KEYS, KEYS)
    bucket = Bucket(
        operator, plan, KEYS, manifest=manifest.from_text(OLD_MANIFEST), store=store, cache=RunCache(1 << 20)
    )
    rows = pa.RecordBatch.from_arrays([pa.array(["a"])], schema=KEYS)
    out = bucket.rows(np.array([-5]), rows, Times())
    assert out is not None
    assert out.to_pylist() == [{"name": "a", "n": 1, "text": "x"}, {"name": "a", "n": 2, "text": None}]
    bucket.flush()
    assert {data[0] for identity, data in store.items() if identity != "old"} == {VERSION}


def test_stored_rows_of_other_columns_are_refused() -> None:
    changed = Values("cells", pa.schema([("n", pa.int32()), ("text", pa.string())]))
    bucket = Bucket(
        Shows(),
        Plan(CELL, (changed,)),
        KEYS,
        manifest=manifest.from_text(OLD_MANIFEST),
        store=Dictionary(old=OLD),
        cache=RunCache(1 << 20),
    )
    with pytest.raises(BadState, match="stored rows of table 'cells' have columns"):
        bucket.runs(changed)


def test_settings_come_back_and_are_held_against_a_query() -> None:
    made = settings.Settings(16, KEYS, (Values("a", CELL), Rows("b", CELL, "n")))
    assert settings.from_text(settings.to_text(made)) == made
    with pytest.raises(
        BadState, match=r"has 16 buckets and the query asks for 8: .* write buckets=16, or rebuild the job"
    ):
        settings.check_same(made, settings.Settings(8, KEYS, made.tables))
    other = settings.Settings(16, pa.schema([("id", pa.int64())]), made.tables)
    with pytest.raises(BadState, match="keyed by name string and the query by id int64"):
        settings.check_same(made, other)
