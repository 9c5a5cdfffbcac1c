"""Tokens in a file, and which ways to start a server are refused."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from headrace.secret_files import ExposedSecret
from headrace.serving.access import (
    Access,
    InvalidTokens,
    NotSafe,
    Token,
    TokensFile,
    add_token,
    digest_of,
    parse_tokens,
    read_tokens,
    remove_token,
)
from headrace.serving.sessions import Role

LONG = "a-token-that-is-long-enough"


class Nobody:
    def role_of(self, name, password):
        raise AssertionError


def test_tokens_that_are_added_and_removed_at_once_are_all_added_and_removed(tmp_path):
    path = tmp_path / "new" / "tokens"
    gone = [f"gone-{number}" for number in range(20)]
    for name in gone:
        add_token(path, name, Role.ADMIN)

    def add(writer):
        for number in range(20):
            add_token(path, f"{writer}-{number}", Role.READ_ONLY)

    with ThreadPoolExecutor() as threads:
        removing = [partial(remove_token, path, name) for name in gone]
        list(threads.map(lambda work: work(), [partial(add, 1), partial(add, 2), *removing]))
    kept = {token.name for token in read_tokens(path)}
    assert kept == {f"{writer}-{number}" for writer in (1, 2) for number in range(20)}


def test_a_token_is_kept_as_its_hash_in_a_private_file(tmp_path):
    path = tmp_path / "security" / "tokens"
    token = add_token(path, "reports", Role.READ_ONLY)
    assert token not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_tokens(path) == (Token("reports", Role.READ_ONLY, digest_of(token)),)
    assert TokensFile(path).find(token) == read_tokens(path)[0]
    assert TokensFile(path).find(digest_of(token)) is None
    assert TokensFile(path).find("") is None


def test_a_change_of_the_file_holds_at_once(tmp_path):
    path = tmp_path / "tokens"
    first = add_token(path, "reports", Role.READ_ONLY)
    file = TokensFile(path)
    other = add_token(path, "loader", Role.ADMIN)
    assert file.find(other).role is Role.ADMIN
    second = add_token(path, "reports", Role.ADMIN)
    assert file.find(first) is None
    assert file.find(second).role is Role.ADMIN
    remove_token(path, "reports")
    assert file.find(second) is None
    assert file.find(other) is not None
    with pytest.raises(InvalidTokens, match="has no token 'reports'"):
        remove_token(path, "reports")


@pytest.mark.parametrize(
    "harm", [lambda path: path.write_text("nonsense\n"), os.unlink, lambda path: path.chmod(0o644)]
)
def test_a_file_that_cannot_be_used_any_more_lets_in_nobody(tmp_path, harm):
    path = tmp_path / "tokens"
    token = add_token(path, "reports", Role.READ_ONLY)
    file = TokensFile(path)
    assert file.find(token)
    harm(path)
    assert file.find(token) is None


def test_a_bad_file_is_refused_at_the_start(tmp_path):
    path = tmp_path / "tokens"
    with pytest.raises(ExposedSecret, match="cannot be read"):
        TokensFile(path)
    add_token(path, "reports", Role.ADMIN)
    path.chmod(0o640)
    with pytest.raises(ExposedSecret, match="chmod 600"):
        TokensFile(path)


@pytest.mark.parametrize("line", ["a", "a admin", "a root " + "0" * 64, "a admin 1234", "a admin " + "0" * 64 + " b"])
def test_a_line_that_is_not_a_token_is_named(line):
    with pytest.raises(InvalidTokens, match="tokens:2 is not NAME ROLE SHA-256"):
        parse_tokens(f"# programs\n{line}\n", "tokens")


@pytest.mark.parametrize("name", ["", "a b", "#a", "a\nb", "x" * 256])
def test_a_name_that_would_break_the_file_is_refused(tmp_path, name):
    with pytest.raises(InvalidTokens, match="cannot be a token's name"):
        add_token(tmp_path / "tokens", name, Role.ADMIN)
    assert not (tmp_path / "tokens").exists()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "board.example", "10.0.0.7"])
def test_a_public_address_asks_who_comes(host):
    with pytest.raises(NotSafe, match="nobody has to log in"):
        Access(host)
    with pytest.raises(NotSafe, match="passwords need TLS"):
        Access(host, users=Nobody())
    for fine in ({"is_insecure": True}, {"token": LONG}, {"users": Nobody(), "certificate": "server.pem"}):
        Access(host, **fine)
    Access(host, users=Nobody(), is_insecure=True)


def test_this_machine_alone_need_not_ask():
    assert not Access().asks
    assert Access(users=Nobody()).asks
    assert Access("::1", certificate="c").url(80) == "https://[::1]:80"
    assert LONG not in repr(Access(token=LONG))
