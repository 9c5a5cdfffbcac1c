"""Principals as texts."""

import pytest

from headrace.security.principal import ANONYMOUS, InvalidPrincipal, Principal


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("User:alice", "User", "alice"),
        ("User:CN=alice,O=Mill: Race", "User", "CN=alice,O=Mill: Race"),
        ("Role:admin", "Role", "admin"),
    ],
)
def test_a_principal_is_read_and_written_alike(text: str, kind: str, name: str) -> None:
    principal = Principal.parse(text)
    assert (principal.kind, principal.name) == (kind, name)
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", "User:", ":alice", ":"])
def test_a_text_without_a_kind_or_a_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidPrincipal, match="write for example User:alice"):
        Principal.parse(text)


def test_whoever_did_not_log_in_has_a_name_too() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
