"""Addresses, as users write them."""

import pytest

from headrace.client.address import Address, InvalidAddress, parse_bootstrap


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("127.0.0.1:9092", [("127.0.0.1", 9092)]),
        ("kafka", [("kafka", 9092)]),
        ("one:1, two:2,", [("one", 1), ("two", 2)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses(text, addresses):
    assert parse_bootstrap(text) == tuple(Address(*address) for address in addresses)


@pytest.mark.parametrize(
    "text", ["", ",", ":9092", "host:", "host:x", "host:0", "host:65536", "host:-1", "::1", "[::1"]
)
def test_no_address(text):
    with pytest.raises(InvalidAddress, match=r"write for example 127\.0\.0\.1:9092"):
        parse_bootstrap(text)


def test_an_address_is_shown_as_it_is_written():
    assert [str(address) for address in parse_bootstrap("a:1,[::1]:2")] == ["a:1", "[::1]:2"]
