"""Where a source begins, and when it refuses to."""

import pytest

from headrace.connect.change import Origin
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused
from headrace.connect.postgres.relation import Relation, RelationColumn
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.postgres.slot import Begin, SlotState, Start, check_slot, decide_start
from headrace.connect.postgres.types import TypeModes

HERE = {"lsn": "0/64"}


def slot(
    confirmed: int = 100,
    status: str = "reserved",
    plugin: str = "pgoutput",
    database: str = "shop",
    end: int | None = 100,
) -> SlotState:
    return SlotState("s", plugin, database, confirmed, status, 0, end)


def test_the_first_start() -> None:
    assert decide_start(None, None, "initial", "s") == Start(Begin.SNAPSHOT)
    assert decide_start(None, slot(), "initial", "s") == Start(Begin.SNAPSHOT, drop_slot=True)
    assert decide_start(None, None, "never", "s") == Start(Begin.NEW_SLOT)
    assert decide_start(None, slot(), "never", "s") == Start(Begin.STREAM, lsn=100)


def test_every_later_start() -> None:
    for mode in ("initial", "never", "when-needed"):
        assert decide_start(HERE, slot(), mode, "s") == Start(Begin.STREAM, lsn=100)
        assert decide_start(HERE, slot(90, end=None), mode, "s") == Start(Begin.STREAM, lsn=100)
    assert decide_start(HERE | {"ended": True}, None, "initial-only", "s") == Start(Begin.ENDED)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "is gone"),
        (slot(status="lost"), "is lost"),
        (slot(confirmed=101), "another reader"),
        (slot(confirmed=90, end=99), "ends before the stored position"),
    ],
)
def test_a_log_with_a_gap(state: SlotState | None, said: str) -> None:
    with pytest.raises(SourceRefused, match=said):
        decide_start(HERE, state, "initial", "s")
    assert decide_start(HERE, state, "when-needed", "s") == Start(Begin.SNAPSHOT, drop_slot=state is not None)


def test_slots_that_are_not_ours() -> None:
    with pytest.raises(SourceRefused, match="of plugin test_decoding"):
        check_slot(slot(plugin="test_decoding"), "shop")
    with pytest.raises(SourceRefused, match="belongs to database shop"):
        check_slot(slot(), "bakery")


def announced(*names: str) -> Relation:
    columns = tuple(RelationColumn(name, name == "id", 23, -1) for name in names)
    return Relation(1, "public", "t", "d", columns)


ORIGIN = Origin("1", 0)


def shapes(policy: str, known: dict[str, str] | None = None) -> Shapes:
    return Shapes(policy, TypeModes(), lambda _: None, lambda _: (), known or {})


def test_a_shape_that_stays_is_no_event() -> None:
    kept = shapes("evolve")
    first, events = kept.take(announced("id", "a"), ORIGIN, ())
    again, more = kept.take(announced("id", "a"), ORIGIN, ())
    assert first is again
    assert events == more == []


def test_evolve_goes_on_and_says_so() -> None:
    kept = shapes("evolve")
    kept.take(announced("id", "a"), ORIGIN, ())
    table, (event,) = kept.take(announced("id", "b"), ORIGIN, ())
    assert table is not None
    assert event.what == "column b was added; column a was dropped"
    assert kept.take(announced("id", "b"), ORIGIN, ()) == (table, [])


def test_block_stops_there() -> None:
    kept = shapes("block")
    kept.take(announced("id", "a"), ORIGIN, ())
    with pytest.raises(SchemaChangeBlocked, match="column b was added"):
        kept.take(announced("id", "a", "b"), ORIGIN, ())


def test_skip_leaves_the_table_out_also_after_a_restart() -> None:
    kept = shapes("skip")
    kept.take(announced("id", "a"), ORIGIN, ())
    table, (event,) = kept.take(announced("id", "a", "b"), ORIGIN, ())
    assert table is None
    assert "left out" in event.what
    restarted = shapes("skip", kept.known)
    table, (event,) = restarted.take(announced("id", "a", "b"), ORIGIN, ())
    assert table is None
    assert "before the restart" in event.what
    assert restarted.take(announced("id", "a"), ORIGIN, ())[0] is not None


def test_an_older_shape_that_comes_again_is_no_change() -> None:
    kept = shapes("block")
    kept.take(announced("id", "b"), ORIGIN, ())
    assert kept.recall(announced("id", "a")) is not None
    assert kept.take(announced("id", "b"), ORIGIN, ())[1] == []
    left_out = shapes("skip", kept.known)
    assert left_out.recall(announced("id", "a")) is None
