"""Logins by whoever knows no password: no sequence of requests and tokens lets anybody in, and none breaks anything."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.security.login import Login, OAuthBearer, Plain, Scram, State, Users
from headrace.security.scram import ScramCredential, ScramExchange
from headrace.security.tokens import TokenRules, verify_token

CREDENTIAL = ScramCredential.from_password("SCRAM-SHA-256", "geheim", b"s" * 24, 4096)
USERS = Users(lambda how, name: CREDENTIAL if (how, name) == ("SCRAM-SHA-256", "alice") else None, b"secret")
MECHANISMS = {
    "PLAIN": lambda: Plain(USERS),
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", USERS, "server"),
    "OAUTHBEARER": lambda: OAuthBearer(lambda token, now: verify_token(token, {"keys": []}, TokenRules(), now)),
}
GOOD = ScramExchange("SCRAM-SHA-256", "alice", "guess", "client")
FIRST = GOOD.first()
FINAL = GOOD.answer(b"r=clientserver,s=c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nz,i=4096")


@st.composite
def broken(draw, tokens):
    token = bytearray(draw(st.sampled_from(tokens)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(token)))
        token[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(token)


TOKENS = broken(
    [FIRST, FINAL, b"\0alice\0guess", b"n,,\x01auth=Bearer a.b.c\x01\x01", b"\x01", b"n,a=alice,n=alice,r=x", b""]
)
STEPS = st.lists(
    st.one_of(
        st.just(("versions",)),
        st.just(("again",)),
        st.tuples(st.just("choose"), st.sampled_from([*MECHANISMS, "GSSAPI", ""]), st.integers(0, 1)),
        st.tuples(st.just("token"), st.one_of(TOKENS, st.binary(max_size=40))),
    ),
    max_size=8,
)


@given(STEPS)
def test_nobody_gets_in(steps):
    login = Login(MECHANISMS, 0)
    for kind, *rest in steps:
        if kind == "versions":
            login.ask_versions()
        elif kind == "choose":
            login.choose(*rest)
        elif kind == "token" and login.state in (State.TOKENS, State.BARE_TOKENS, State.OTHER_MECHANISM):
            outcome = login.step(*rest, 0, 0.0)
            assert bool(outcome.refusal) == (login.state is State.REFUSED)
        assert not login.is_open
        assert login.principal is None
