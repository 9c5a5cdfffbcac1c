"""Messages of syslog as records: any bytes give one or a reason, and its JSON says what the reader reads."""

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.gateways.syslog.message import PROBLEM_HEADER, Keyed, Recording, Value
from headrace.log_formats import InvalidLine, SyslogLine, read_syslog
from tests.property.storage_model import count_examples

NOW_MS = 1_794_000_000_000
message = st.one_of(
    st.binary(max_size=80),
    st.lists(
        st.sampled_from([b"<13>", b"1 ", b"2003-10-11T22:14:15.003Z ", b"Oct 11 22:14:15 ", b"host ", b"app[7]: ",
                         b"- ", b'[a@1 b="c"]', b"text", b"\xff\xfe", b"<192>", b"\0"]),
        max_size=9,
    ).map(b"".join),
)  # fmt: skip


def recording(value: Value = Value.JSON, key: Keyed = Keyed.HOST, *, keeps: bool = False) -> Recording:
    return Recording(value, key, UTC, None, keeps_unreadable=keeps)


def read(data: bytes) -> tuple[SyslogLine | None, str]:
    try:
        return read_syslog(data, received_ms=NOW_MS), ""
    except InvalidLine as error:
        return None, str(error)


@settings(max_examples=count_examples(600))
@given(data=message, keeps=st.booleans())
def test_any_bytes_are_a_record_or_have_a_reason(data: bytes, keeps: bool) -> None:
    reasons: list[str] = []
    made = recording(keeps=keeps).entry(data, "::1", NOW_MS, lambda why, _: reasons.append(why))
    line, reason = read(data)
    if line is None:
        assert reasons == [reason]
        assert (made is not None) == keeps
        if made is not None:
            assert json.loads(made[1] or b"")["message"] == data.decode(errors="backslashreplace")
            assert made[3] == ((PROBLEM_HEADER, reason.encode()),)
        return
    assert not reasons
    assert made is not None
    found: dict[str, Any] = json.loads(made[1] or b"")
    time = found.pop("time")
    assert (None if time is None else datetime.fromisoformat(time)) == line.time
    assert found.pop("level") == line.level
    assert found == {name: getattr(line, name) for name in found}
    assert made[0] == (None if line.host is None else line.host.encode())


def test_the_fields_of_a_message() -> None:
    sent = b'<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog 8710 ID47 [exampleSDID@32473 iut="3"] Event'
    made = recording().entry(sent, "127.0.0.1", NOW_MS, lambda *_: None)
    assert made is not None
    assert made[0] == b"mymachine.example.com"
    assert made[2] == NOW_MS
    assert json.loads(made[1] or b"") == {
        "facility": 20, "severity": 5, "level": "notice", "time": "2003-10-11T22:14:15.003000Z",
        "host": "mymachine.example.com", "app": "evntslog", "process_id": "8710", "message_id": "ID47",
        "data": {"exampleSDID@32473": {"iut": "3"}}, "message": "Event",
    }  # fmt: skip


def test_raw_messages_are_not_looked_into_unless_their_key_is_in_them() -> None:
    raw = recording(Value.RAW, Keyed.CLIENT).entry(b"anything", "10.0.0.7", NOW_MS, lambda *_: None)
    assert raw is not None
    assert raw[:2] == (b"10.0.0.7", b"anything")
    by_app = recording(Value.RAW, Keyed.APP)
    assert by_app.entry(b"anything", "10.0.0.7", NOW_MS, lambda *_: None) is None
    sent = b"<34>Oct 11 22:14:15 mymachine su[123]: failed"
    found = by_app.entry(sent, "10.0.0.7", NOW_MS, lambda *_: None)
    assert found is not None
    assert found[:2] == (b"su", sent)
