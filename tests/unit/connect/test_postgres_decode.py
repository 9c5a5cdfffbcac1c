"""pgoutput messages become events in commit order, and a position stands for exactly what is before it."""

import pytest

from headrace.connect.change import Change, Event, Message, TransactionEnd
from headrace.connect.postgres.relation import CorruptMessage, LogPosition, format_lsn, parse_lsn
from headrace.connect.table import UNCHANGED
from tests.unit.connect import pgoutput_messages as pg

COLUMNS = [("id", pg.INT4, True), ("name", pg.TEXT, False)]
RELATION = pg.relation(COLUMNS)


def told(events: list[Event]) -> list[object]:
    found: list[object] = []
    for event in events:
        if isinstance(event, Change):
            found.append((event.op, event.before, event.after))
        elif isinstance(event, TransactionEnd):
            found.append("end")
        elif isinstance(event, Message):
            found.append((event.prefix, event.content))
    return found


def test_a_transaction_of_each_change() -> None:
    decoder = pg.decoded(
        [
            pg.begin(100),
            RELATION,
            pg.insert(["1", "a"]),
            pg.update(["1", "b"]),
            pg.update(["2", "b"], key=["1", None]),
            pg.update(["2", "c"], old=["2", "b"]),
            pg.delete(["2", None]),
            pg.truncate(1),
            pg.message("note", b"hello"),
            pg.commit(100, 108),
        ]
    )
    assert told(decoder.events) == [
        ("c", None, ("1", "a")),
        ("u", None, ("1", "b")),
        ("u", ("1", None), ("2", "b")),
        ("u", ("2", "b"), ("2", "c")),
        ("d", ("2", None), None),
        ("t", None, None),
        ("note", b"hello"),
        "end",
    ]
    assert decoder.position == LogPosition(108)


def test_null_empty_and_unchanged_are_three_things() -> None:
    decoder = pg.decoded(
        [pg.begin(1), RELATION, pg.update(["1", UNCHANGED]), pg.update(["1", ""]), pg.update(["1", None])]
    )
    assert told(decoder.events) == [("u", None, ("1", UNCHANGED)), ("u", None, ("1", "")), ("u", None, ("1", None))]


def test_an_unchanged_value_is_taken_from_the_whole_old_row() -> None:
    decoder = pg.decoded([pg.begin(1), RELATION, pg.update(["1", UNCHANGED], old=["1", "stored"])])
    assert told(decoder.events) == [("u", ("1", "stored"), ("1", "stored"))]


def test_a_large_key_that_was_not_sent_again_is_taken_from_the_old_key() -> None:
    columns = [("id", pg.TEXT, True), ("name", pg.TEXT, False)]
    messages = [pg.begin(1), pg.relation(columns), pg.update([UNCHANGED, UNCHANGED], key=["long", None])]
    assert told(pg.decoded(messages).events) == [("u", None, ("long", UNCHANGED))]


def test_a_table_that_nobody_wants_is_counted_and_left_out() -> None:
    messages = [pg.begin(1), pg.relation(COLUMNS, id_=2, name="unwanted"), pg.insert(["1", "a"], id_=2)]
    decoder = pg.decoded(messages)
    assert decoder.events == []
    assert decoder.position == LogPosition(0, 1, 1)


@pytest.mark.parametrize("cut", range(6))
def test_from_any_position_on_comes_exactly_the_rest(cut: int) -> None:
    messages = [
        pg.begin(100),
        RELATION,
        *(pg.insert([str(number), "a"]) for number in range(4)),
        pg.commit(100, 108),
        pg.begin(200),
        pg.insert(["9", "z"]),
        pg.commit(200, 208),
    ]
    whole = told(pg.decoded(messages).events)
    before = pg.decoded(messages[: 2 + cut])
    after = pg.decoded(messages, before.position)
    assert told(before.events) + told(after.events) == whole
    assert after.position == LogPosition(208)


def test_a_streamed_transaction_comes_at_its_commit_without_what_was_rolled_back() -> None:
    decoder = pg.decoded(
        [
            pg.stream_start(50),
            pg.relation(COLUMNS, xid=50),
            pg.insert(["1", "kept"], xid=50),
            pg.insert(["2", "undone"], xid=51),
            pg.STREAM_STOP,
            pg.begin(300, xid=60),
            RELATION,
            pg.insert(["3", "between"]),
            pg.commit(300, 308),
            pg.stream_start(50, first=False),
            pg.insert(["4", "kept"], xid=52),
            pg.STREAM_STOP,
            pg.stream_abort(50, 51),
            pg.stream_start(70),
            pg.insert(["5", "never"], xid=70),
            pg.STREAM_STOP,
            pg.stream_abort(70, 70),
            pg.stream_commit(50, 400, 408),
        ]
    )
    assert told(decoder.events) == [
        ("c", None, ("3", "between")),
        "end",
        ("c", None, ("1", "kept")),
        ("c", None, ("4", "kept")),
        "end",
    ]
    assert decoder.position == LogPosition(408)
    assert [event.origin.transaction_id for event in decoder.events if isinstance(event, Change)] == ["60", "50", "50"]


def test_a_prepared_transaction_comes_when_it_is_committed_and_holds_the_log_until_then() -> None:
    messages = [
        pg.begin_prepare(100, 5, "one"),
        RELATION,
        pg.insert(["1", "a"]),
        pg.prepare(100, 5, "one"),
        pg.begin(200),
        RELATION,
        pg.insert(["2", "b"]),
        pg.commit(200, 208),
    ]
    waiting = pg.decoded(messages)
    assert told(waiting.events) == [("c", None, ("2", "b")), "end"]
    assert waiting.held_lsn == 100
    done = pg.decoded([*messages, pg.commit_prepared(300, 308, 5, "one")])
    assert told(done.events)[2:] == [("c", None, ("1", "a")), "end"]
    assert done.held_lsn is None
    undone = pg.decoded([*messages, pg.rollback_prepared(100, 5, "one")])
    assert told(undone.events)[2:] == []
    assert undone.held_lsn is None


def test_a_message_outside_of_transactions_comes_once() -> None:
    messages = [pg.message("now", b"x", lsn=150, transactional=False)]
    first = pg.decoded(messages)
    assert told(first.events) == [("now", b"x")]
    assert told(pg.decoded(messages, first.position).events) == []
    assert told(pg.decoded(messages, LogPosition(100, 200, 3)).events) == []  # it stood before that transaction's end


def test_a_quiet_log_moves_the_position_only_between_transactions() -> None:
    decoder = pg.decoded([])
    decoder.move_on(500)
    assert decoder.position == LogPosition(500)
    inside = pg.decoded([pg.begin(600), RELATION, pg.insert(["1", "a"])])
    inside.move_on(700)
    assert inside.position == LogPosition(0, 600, 1)


def test_a_position_inside_a_transaction_is_kept_until_the_transaction_comes_again() -> None:
    start = LogPosition(100, 200, 3)
    decoder = pg.decoded([], start)
    decoder.move_on(150)
    assert decoder.position == start


def test_a_position_never_goes_back_while_what_is_known_comes_again() -> None:
    start = LogPosition(108, 200, 2)
    messages = [
        pg.begin(100),
        RELATION,
        pg.insert(["0", "a"]),
        pg.commit(100, 108),
        pg.begin(200),
        pg.insert(["1", "a"]),
        pg.insert(["2", "a"]),
    ]
    for end in range(len(messages) + 1):
        decoder = pg.decoded(messages[:end], start)
        assert (decoder.position, decoder.events) == (start, [])


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="unknown kind 'z'"):
        pg.decoded([b"z"])
    with pytest.raises(CorruptMessage, match="has 1 columns and not 2"):
        pg.decoded([pg.begin(1), RELATION, pg.insert(["1"])])
    with pytest.raises(CorruptMessage, match="unknown kind 0x62"):
        pg.decoded([pg.begin(1), RELATION, pg.insert(["1", "a"]).replace(b"t\0\0\0\1a", b"b\0\0\0\1a")])


def test_places_in_the_log_are_written_as_the_server_writes_them() -> None:
    assert format_lsn(0x16_B374D848) == "16/B374D848"
    assert parse_lsn("16/B374D848") == 0x16_B374D848
    for position in (LogPosition(5), LogPosition(5, 9, 3)):
        assert LogPosition.from_json(position.as_json()) == position
