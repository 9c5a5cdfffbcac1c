"""Any log, cut anywhere: what came before the position and what comes from it on are together the whole, once."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.change import Change, Event, TransactionEnd
from headrace.connect.postgres.decode import Decoder
from headrace.connect.postgres.relation import LogPosition
from tests.unit.connect import pgoutput_messages as pg

COLUMNS = [("id", pg.INT4, True), ("name", pg.TEXT, False)]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[tuple[int, list[bytes]]], list[str]]:
    """Transactions, whole or streamed in pieces between others, with where each ends; and the names in commit order."""
    plans = draw(
        st.lists(
            st.tuples(st.integers(0, 5), st.booleans(), st.sets(st.integers(0, 4)), st.booleans()),
            min_size=1,
            max_size=6,
        )
    )
    groups: list[tuple[int, list[bytes]]] = []
    expected: list[str] = []
    waiting: list[bytes] = []
    for number, (size, is_streamed, undone, is_aborted) in enumerate(plans):
        commit_lsn = 100 * (number + 1)
        names = [f"{number}.{index}" for index in range(size)]
        if is_streamed:
            xid = 1000 * (number + 1)
            messages = [pg.stream_start(xid), pg.relation(COLUMNS, xid=xid)]
            for index, name in enumerate(names):
                sub = xid + 1 + index if index in undone else xid
                messages.append(pg.insert([str(index), name], xid=sub))
            messages.append(pg.STREAM_STOP)
            messages += [pg.stream_abort(xid, xid + 1 + index) for index in sorted(undone) if index < size]
            if is_aborted:
                messages.append(pg.stream_abort(xid, xid))
                waiting += messages
                continue
            messages.append(pg.stream_commit(xid, commit_lsn, commit_lsn + 8))
            expected += [name for index, name in enumerate(names) if index not in undone]
        else:
            inserts = [pg.insert([str(index), name]) for index, name in enumerate(names)]
            messages = [pg.begin(commit_lsn, xid=number), pg.relation(COLUMNS), *inserts]
            messages.append(pg.commit(commit_lsn, commit_lsn + 8))
            expected += names
        groups.append((commit_lsn + 8, waiting + messages))
        waiting = []
    return groups, expected


def names_of(events: list[Event]) -> list[str]:
    return [event.after[1] for event in events if isinstance(event, Change) and event.after is not None]


def read(groups: list[tuple[int, list[bytes]]], start: LogPosition, steps: int) -> tuple[list[Event], LogPosition]:
    """Everything from a position on, up to so many steps of decoding."""
    decoder = Decoder(pg.resolve, start)
    for number, data in enumerate(message for _, messages in groups for message in messages):
        if steps == 0:
            break
        steps -= 1
        if decoder.feed(data, 0, number):
            while steps and not decoder.advance(1):
                steps -= 1
            if decoder.is_replaying:
                break
    return decoder.events, decoder.position


@given(logs(), st.lists(st.integers(0, 30), max_size=4), st.booleans())
def test_a_log_cut_anywhere(
    log: tuple[list[tuple[int, list[bytes]]], list[str]], cuts: list[int], forgets: bool
) -> None:
    groups, expected = log
    position = LogPosition(0)
    found: list[str] = []
    ends = 0
    for steps in [*cuts, 10**6]:
        # The server may send again what ended long ago, and need not.
        sent = [group for group in groups if not forgets or group[0] > position.lsn]
        events, position = read(sent, position, steps)
        found += names_of(events)
        ends += sum(isinstance(event, TransactionEnd) for event in events)
    assert found == expected
    assert ends == len(groups)
    if groups:
        assert position == LogPosition(groups[-1][0])
