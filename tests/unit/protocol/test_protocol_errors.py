"""The table of error codes, and the errors of the package."""

from kio.schema.errors import ErrorCode as KioErrorCode

from headrace.errors import HeadraceError
from headrace.protocol.errors import (
    ErrorCode,
    FrameTooLarge,
    MalformedMessage,
    NotRepresentable,
    ProtocolError,
    UnsupportedVersion,
)


def test_the_table_has_no_holes():
    assert sorted(ErrorCode) == list(range(-1, 134))


def test_a_row_has_its_facts():
    row = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert row == 6
    assert row.retriable
    assert "does not lead" in row.meaning
    assert not ErrorCode.PRODUCER_FENCED.retriable
    assert ErrorCode(35) is ErrorCode.UNSUPPORTED_VERSION


def test_meanings_are_there_and_differ():
    meanings = [code.meaning for code in ErrorCode]
    assert all(meanings)
    assert len(set(meanings)) == len(meanings)


def test_kio_knows_the_same_codes_by_the_same_names():
    assert {code.value: code.name.upper() for code in KioErrorCode} == {int(code): code.name for code in ErrorCode}


def test_a_code_from_the_future_is_an_unknown_server_error():
    assert ErrorCode.of(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.of(12345) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_errors_have_facts_besides_their_text():
    malformed = MalformedMessage("it ends", 5)
    assert (malformed.what, malformed.position, str(malformed)) == ("it ends", 5, "it ends, at byte 5")
    assert str(UnsupportedVersion(1, 99)) == "API 1 is not known in version 99"
    assert "socket.request.max.bytes" in str(FrameTooLarge(11, 10))
    for error in (malformed, NotRepresentable("no"), UnsupportedVersion(1, 2), FrameTooLarge(11, 10)):
        assert isinstance(error, ProtocolError)
        assert isinstance(error, HeadraceError)
