"""Tokens: they survive being text, and no other text is one."""

import base64
import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connect.changes.token import Base, Token
from headrace.connect.errors import BadToken

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON, max_size=4)


@given(OBJECTS, OBJECTS, st.lists(JSON, max_size=4), st.text(max_size=5))
def test_what_is_in_a_token_comes_out_again(
    of: dict[str, Any], at: dict[str, Any], tail: list[Any], secret: str
) -> None:
    text = Token(Base(of, at), tail).as_text(secret)
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
    found = Token.parsed(text, secret)
    assert (found.base.of, found.base.position, found.tail) == (of, at, tail)
    assert Token.parsed(text, secret).as_text(secret) == text


@given(
    st.text(max_size=200) | st.binary(max_size=200).map(lambda data: "hr1." + base64.urlsafe_b64encode(data).decode())
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadToken):
        Token.parsed(text)


@given(st.integers(0, 10_000), st.characters(codec="ascii"))
def test_one_letter_makes_another_token(place: int, letter: str) -> None:
    text = Token(Base({"source": "x"}, {"n": 1}), [1, 2]).as_text("secret")
    place %= len(text)
    altered = text[:place] + letter + text[place + 1 :]
    if altered == text:
        return
    with pytest.raises(BadToken):
        Token.parsed(altered, "secret")


def test_a_small_text_does_not_become_a_large_value() -> None:
    bomb = zlib.compress(b'{"of":{},"at":{"x":"' + b" " * (64 << 20) + b'"}}', 9)
    from headrace.connect.changes import token

    body = f"hr1.{base64.urlsafe_b64encode(bomb).rstrip(b'=').decode()}.W10"
    with pytest.raises(BadToken):
        Token.parsed(f"{body}.{token._sum(body, '')}")


def test_what_a_token_is_of_is_compared_name_by_name() -> None:
    token = Token(Base({"source": "mysql", "tables": ["a.t"]}, {}), [])
    token.check({"source": "mysql", "tables": ["a.t"]})
    with pytest.raises(BadToken, match=r"of tables a\.t, and this stream is of tables \(all\)"):
        token.check({"source": "mysql", "tables": []})
    with pytest.raises(BadToken, match="of source mysql, and this stream is of source topic"):
        token.check({"source": "topic", "topic": "t", "tables": ["a.t"]})


def test_numbers_of_any_size_and_odd_text_stay() -> None:
    position = {"n": 2**70, "text": "\ud800 é \0", "list": [None, True]}
    text = Token(Base({}, position), [2**70]).as_text()
    assert Token.parsed(text).base.position == position
    assert json.loads(json.dumps(text)) == text
