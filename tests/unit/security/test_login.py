"""A client's login step by step: what may come when, what is answered, and what nobody learns."""

import math

import pytest

from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.security.login import Login, LoginRefused, OAuthBearer, Plain, Scram, State, TokenUser, Users
from headrace.security.principal import Principal
from headrace.security.scram import ScramCredential, ScramExchange

SALT = b"0123456789abcdefghijklmn"
PASSWORDS = {"alice": "geheim", "b=o,b": "Ⅸ"}
CREDENTIALS = {
    (how, name): ScramCredential.from_password(how, password, SALT, 4096)
    for how in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    for name, password in PASSWORDS.items()
}
USERS = Users(lambda how, name: CREDENTIALS.get((how, name)), b"secret")


class Refused(HeadraceError):
    pass


def verify(token, now_ms):
    if token != "good":
        raise Refused("a secret reason")
    return TokenUser("alice", 60_000)


MECHANISMS = {
    "PLAIN": lambda: Plain(USERS),
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", USERS, "server-nonce"),
    "SCRAM-SHA-512": lambda: Scram("SCRAM-SHA-512", USERS, "server-nonce"),
    "OAUTHBEARER": lambda: OAuthBearer(verify),
}


def begin(mechanism, *, max_session_ms=0):
    login = Login(MECHANISMS, max_session_ms)
    assert login.ask_versions()
    answer = login.choose(mechanism, 1)
    assert answer.error_code == 0
    assert answer.mechanisms == list(MECHANISMS)
    return login


def scram(login, mechanism, name, password, *, now_s=0.0):
    client = ScramExchange(mechanism, name, password, "client-nonce")
    first = login.step(client.first(), 0, now_s)
    if first.refusal:
        return first, client
    return login.step(client.answer(bytes(first.response.auth_bytes)), 0, now_s), client


@pytest.mark.parametrize("name", PASSWORDS)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram(mechanism, name):
    login = begin(mechanism)
    assert not login.is_slow
    outcome, client = scram(login, mechanism, name, PASSWORDS[name])
    client.finish(bytes(outcome.response.auth_bytes))  # the broker has shown that it knows the password too
    assert login.is_open
    assert login.principal == Principal(name)
    assert login.expires_s == math.inf


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_who_does_not_exist_looks_like_who_gave_a_wrong_password(name):
    login = begin("SCRAM-SHA-256")
    outcome, _ = scram(login, "SCRAM-SHA-256", name, "wrong")
    assert outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert outcome.response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    )
    assert login.state is State.REFUSED
    assert login.principal is None
    plain = begin("PLAIN").step(b"\0" + name.encode() + b"\0wrong", 0, 0)
    assert plain.response.error_message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize("known", [(), ("SCRAM-SHA-256",), ("SCRAM-SHA-512",), ("SCRAM-SHA-256", "SCRAM-SHA-512")])
def test_plain_does_the_same_work_whoever_asks(known, monkeypatch):
    held = {name: ScramCredential.from_password(name, "right", b"salt", 4096) for name in known}
    users = Users(lambda mechanism, _: held.get(mechanism), b"secret")
    work = []
    fits = ScramCredential.fits
    monkeypatch.setattr(
        ScramCredential, "fits", lambda self, how, text: work.append((how, self.rounds)) or fits(self, how, text)
    )
    with pytest.raises(LoginRefused):
        Plain(users).step(b"\0alice\0wrong", 0)
    assert work == [("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 4096)]
    if known:
        assert Plain(users).step(b"\0alice\0right", 0).user == "alice"


def test_the_salt_of_who_does_not_exist_is_always_the_same():
    def salt_of(name):
        first = ScramExchange("SCRAM-SHA-256", name, "x", "nonce").first()
        return begin("SCRAM-SHA-256").step(first, 0, 0).response.auth_bytes

    assert salt_of("nobody") == salt_of("nobody")
    assert salt_of("nobody") != salt_of("another")
    assert len(salt_of("nobody")) == len(salt_of("alice"))


@pytest.mark.parametrize("name", PASSWORDS)
def test_plain(name):
    login = begin("PLAIN")
    assert login.is_slow
    assert not login.step(b"\0%s\0%s" % (name.encode(), PASSWORDS[name].encode()), 0, 0).refusal
    assert login.principal == Principal(name)


@pytest.mark.parametrize(
    "token",
    [b"", b"alice", b"\0alice\0", b"\0\0geheim", b"\0alice\0geheim\0", b"bob\0alice\0geheim", b"\0\xff\0geheim"],
)
def test_plain_that_is_none(token):
    login = begin("PLAIN")
    outcome = login.step(token, 0, 0)
    assert outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "geheim" not in outcome.response.error_message + outcome.refusal
    assert login.state is State.REFUSED


def test_a_proof_does_not_hold_for_another_exchange():
    """What was overheard once is of no use: the broker's half of the nonce is new each time."""
    client = ScramExchange("SCRAM-SHA-256", "alice", "geheim", "client-nonce")
    login = begin("SCRAM-SHA-256")
    overheard = client.answer(bytes(login.step(client.first(), 0, 0).response.auth_bytes))
    other = Login({"SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", USERS, "another-nonce")}, 0)
    other.choose("SCRAM-SHA-256", 1)
    other.step(client.first(), 0, 0)
    assert other.step(overheard, 0, 0).refusal


# --- tokens of others


def test_a_token_lasts_as_long_as_it_says():
    login = begin("OAUTHBEARER", max_session_ms=100_000)
    outcome = login.step(b"n,,\x01auth=Bearer good\x01\x01", 10_000, 5.0)
    assert outcome.response.session_lifetime_ms == 50_000
    assert login.expires_s == 55.0
    assert login.principal == Principal("alice")


def test_a_refused_token_has_a_last_word():
    login = begin("OAUTHBEARER")
    outcome = login.step(b"n,,\x01auth=Bearer bad\x01\x01", 0, 0)
    assert (outcome.refusal, outcome.response.auth_bytes) == ("", b'{"status":"invalid_token"}')
    assert not login.is_open
    outcome = login.step(b"\x01", 0, 0)
    assert outcome.response.error_message == '{"status":"invalid_token"}'
    assert login.state is State.REFUSED


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
    ],
)
def test_a_token_that_is_none(token):
    login = begin("OAUTHBEARER")
    assert login.step(token, 0, 0).response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not login.is_open


# --- what may come when


def test_versions_are_told_once_and_first():
    login = Login(MECHANISMS, 0)
    assert login.ask_versions()
    assert not login.ask_versions()
    login.choose("PLAIN", 1)
    assert not login.ask_versions()


def test_an_unknown_mechanism_is_refused_with_those_there_are():
    login = Login(MECHANISMS, 0)
    answer = login.choose("GSSAPI", 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == list(MECHANISMS)
    assert login.state is State.REFUSED
    assert login.choose("PLAIN", 1) is None


def test_a_handshake_of_version_0_is_followed_by_bare_tokens():
    login = Login(MECHANISMS, 0)
    login.choose("PLAIN", 0)
    assert login.state is State.BARE_TOKENS
    login.step(b"\0alice\0geheim", 0, 0)
    assert login.is_open


def test_a_second_handshake_before_the_first_is_over_is_not_answered():
    assert begin("PLAIN").choose("SCRAM-SHA-256", 1) is None


# --- again, on the same connection


def renewed(mechanism="PLAIN"):
    login = begin("PLAIN", max_session_ms=5000)
    login.step(b"\0alice\0geheim", 0, 100.0)
    assert login.expires_s == 105.0
    assert login.begin_again(103.0)
    login.choose(mechanism, 1)
    return login


def test_a_login_is_renewed():
    login = renewed()
    assert not login.is_open
    outcome = login.step(b"\0alice\0geheim", 0, 103.0)
    assert outcome.response.session_lifetime_ms == 5000
    assert login.expires_s == 108.0
    assert not login.begin_again(103.5)  # too soon: it is a request like any other
    assert login.begin_again(104.5)


def test_nobody_becomes_somebody_else():
    login = renewed()
    outcome = login.step("\0b=o,b\0Ⅸ".encode(), 0, 103.0)
    assert outcome.response.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.b=o,b"
    )
    assert login.state is State.REFUSED


def test_nor_logs_in_again_by_other_means():
    login = renewed("SCRAM-SHA-256")
    outcome = login.step(b"whatever", 0, 103.0)
    assert "requested by client is not supported for re-authentication of mechanism 'PLAIN'" in (
        outcome.response.error_message
    )
    assert login.state is State.REFUSED


def test_a_wrong_password_the_second_time_refuses():
    login = renewed()
    assert login.step(b"\0alice\0wrong", 0, 103.0).refusal
    assert login.state is State.REFUSED
