"""SCRAM's messages, by the RFCs' own examples, and what a broker must not get away with."""

import pytest

from headrace.security.scram import MOST_ROUNDS, ScramExchange, ScramFailure

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture
def exchange():
    return ScramExchange("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_example_of_rfc_7677(exchange):
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.answer(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    exchange.finish(SERVER_FINAL)


def test_a_name_with_marks_in_it():
    first = ScramExchange("SCRAM-SHA-512", "a=b,c", "p", "n").first()
    assert first == b"n,,n=a=3Db=2Cc,r=n"


def test_sha_512_has_a_longer_proof():
    exchange = ScramExchange("SCRAM-SHA-512", "user", "pencil", NONCE)
    assert len(exchange.answer(SERVER_FIRST).rpartition(b"p=")[2]) == 88


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"r=another,s=W22Z,i=4096", "nonce"),
        (b"r=" + NONCE.encode() + b",s=W22Z,i=4096", "nonce"),  # nothing of the broker's own
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), "4095 rounds"),
        (SERVER_FIRST.replace(b"i=4096", b"i=%d" % (MOST_ROUNDS + 1)), "rounds"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), "rounds that makes no sense"),
        (SERVER_FIRST.replace(b"i=4096", b"i=-1"), "rounds that makes no sense"),
        (SERVER_FIRST.replace(b",i=4096", b""), "no 'i'"),
        (SERVER_FIRST.replace(b"s=W22", b"s=*22"), "base64"),
        (b"m=ext," + SERVER_FIRST, "extension"),
        (b"", "not SCRAM"),
        (b"\xff\xfe", "not SCRAM"),
        (b"hello, world", "not SCRAM"),
    ],
)
def test_a_first_message_that_will_not_do(exchange, message, why):
    exchange.first()
    with pytest.raises(ScramFailure, match=why):
        exchange.answer(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"v=" + b"A" * 43 + b"=", "could not show that it knows the password"),
        (b"v=", "could not show"),
        (b"e=invalid-proof", "the broker says invalid-proof"),
        (b"x=1", "no 'v'"),
    ],
)
def test_a_broker_that_does_not_know_the_password(exchange, message, why):
    exchange.answer(SERVER_FIRST)
    with pytest.raises(ScramFailure, match=why):
        exchange.finish(message)


def test_the_end_before_the_beginning(exchange):
    with pytest.raises(ScramFailure, match="could not show"):
        exchange.finish(b"v=")
