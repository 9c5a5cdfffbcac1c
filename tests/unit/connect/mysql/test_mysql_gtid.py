"""Transactions that were seen, in the words of either database."""

import pytest

from headrace.connect.mysql.events import Header, Kind, read_header, read_mysql_gtid
from headrace.connect.mysql.gtid import BadGtid, MariaDbState, MysqlState

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_mariadb_keeps_the_last_of_each_domain() -> None:
    state = MariaDbState.parse("1-7-3, 0-1-5")
    assert str(state) == "0-1-5,1-7-3"
    assert str(state.with_gtid("0-2-6").with_gtid("2-1-1")) == "0-2-6,1-7-3,2-1-1"
    assert MariaDbState.parse("") == MariaDbState()


def test_mysql_joins_ranges() -> None:
    state = MysqlState.parse(f"{UUID}:1-3:5-7")
    assert str(state.with_gtid(f"{UUID}:4")) == f"{UUID}:1-7"
    assert str(state.with_gtid(f"{UUID}:8")) == f"{UUID}:1-3:5-8"
    assert str(state.with_gtid(f"{UUID}:20")) == f"{UUID}:1-3:5-7:20"
    assert str(MysqlState.parse(f"{UUID.upper()}:5,{UUID}:1-4")) == f"{UUID}:1-5"


def test_mysql_is_encoded_as_the_dump_command_wants_it() -> None:
    """One server, one range; the end of a range is the first number that is not in it."""
    encoded = MysqlState.parse(f"{UUID}:1-5").encoded()
    number = bytes([1, 0, 0, 0, 0, 0, 0, 0])
    assert encoded == number + bytes.fromhex(UUID.replace("-", "")) + number + number + bytes([6, 0, 0, 0, 0, 0, 0, 0])


@pytest.mark.parametrize("text", ["0-1", "a-b-c", "0-1-2-3"])
def test_what_is_no_mariadb_gtid_is_told(text: str) -> None:
    with pytest.raises(BadGtid, match="is not a supported GTID"):
        MariaDbState.parse(text)


@pytest.mark.parametrize("text", [UUID, f"{UUID}:tag:1-3", "short:1", f"{UUID}:1-x"])
def test_what_is_no_mysql_gtid_is_told(text: str) -> None:
    with pytest.raises(BadGtid, match="is not a supported GTID"):
        MysqlState.parse(text)


def test_an_event_of_mysql_has_its_commit_time_in_microseconds() -> None:
    """The layout of Gtid_log_event since 8.0: flags, uuid, number, a type byte, two clocks, seven bytes of time."""
    ts_us = 1_700_000_000_123_456
    body = b"\x01" + bytes.fromhex(UUID.replace("-", "")) + (42).to_bytes(8, "little") + b"\x02" + bytes(16)
    body += ts_us.to_bytes(7, "little")
    header = Header(1_700_000_000, Kind.MYSQL_GTID, 1, 0, 0, 0)
    begin = read_mysql_gtid(header, body)
    assert (begin.gtid, begin.ts_us) == (f"{UUID}:42", ts_us)
    assert read_mysql_gtid(header, body[:25]).ts_us == 1_700_000_000_000_000


def test_a_header_is_nineteen_bytes() -> None:
    data = bytes.fromhex("9f86f96a0f01000000fc000000000100000000") + b"rest"
    assert read_header(data) == Header(0x6AF9869F, Kind.FORMAT, 1, 252, 256, 0)
