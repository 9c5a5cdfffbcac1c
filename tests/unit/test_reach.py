"""Where requests may go: published lists of special addresses, every way to write one, and anything at all."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.reach import EVERYWHERE, PUBLIC, InvalidHost, InvalidNetwork, Reach, check_host

PRIVATE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1",
    "239.1.1.1", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:a00:1", "::7f00:1", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001::1", "2001:db8::1", "fc00::1",
    "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "100::1", "3fff::1", "5f00::1",
]  # fmt: skip
PUBLIC_ONES = [
    "1.1.1.1", "8.8.8.8", "93.184.215.14", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111", "2a00:1450:4001::5e",
    "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_refused(address: str) -> None:
    assert not PUBLIC.allows(address)
    assert EVERYWHERE.allows(address)


@pytest.mark.parametrize("address", PUBLIC_ONES)
def test_what_is_public_is_allowed(address: str) -> None:
    assert PUBLIC.allows(address)


@pytest.mark.parametrize("text", ["", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "1.1.1", "8.8.8.8 ", "x"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    assert not PUBLIC.allows(text)


def test_networks_that_are_named_are_allowed_and_nothing_besides() -> None:
    reach = Reach.parse(["10.1.0.0/16", "::1"])
    assert reach.allows("10.1.255.9")
    assert reach.allows("::ffff:10.1.0.1"), "it is the same host"
    assert reach.allows("::1")
    assert not reach.allows("10.2.0.1")
    assert not reach.allows("127.0.0.1")
    assert Reach.parse(["any"]).allows("169.254.169.254")
    with pytest.raises(InvalidNetwork, match=r"'10\.1\.0\.5/16' is not a network: write"):
        Reach.parse(["10.1.0.5/16"])


def test_an_address_that_is_written_out_is_meant() -> None:
    assert PUBLIC.and_host("127.0.0.1").allows("127.0.0.1")
    assert not PUBLIC.and_host("127.0.0.1").allows("127.0.0.2")
    assert PUBLIC.and_host("localhost").allows("::1")
    assert PUBLIC.and_host("[::1]").allows("::1")
    assert not PUBLIC.and_host("hooks.example.com").allows("10.0.0.1")


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0x7f.1", "017700000001", "0177.0.0.1", "127.1", "1.2.3.4.5", "127.0.0.1."]
)
def test_figures_that_can_be_misread_are_named_early(host: str) -> None:
    if host == "127.0.0.1.":
        check_host(host)
        return
    with pytest.raises(InvalidHost, match="four decimal numbers"):
        check_host(host)


@pytest.mark.parametrize("host", ["", "a b", "a\\b", "a@b", "a\x00b", "ex%61mple.com", "a/b"])
def test_hosts_that_are_none(host: str) -> None:
    with pytest.raises(InvalidHost):
        check_host(host)


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "[::1]", "a-1.b2", "example.com.", "xn--bcher.example"])
def test_hosts_that_can_be(host: str) -> None:
    check_host(host)


@given(st.integers(0, 2**32 - 1))
def test_an_address_is_the_same_however_it_is_wrapped(number: int) -> None:
    inside = ipaddress.IPv4Address(number)
    expected = PUBLIC.allows(str(inside))
    assert PUBLIC.allows(str(ipaddress.IPv6Address(0xFFFF << 32 | number))) is expected
    assert PUBLIC.allows(str(ipaddress.IPv6Address((0x64FF9B << 96) | number))) is expected
    assert PUBLIC.allows(str(ipaddress.IPv6Address((0x2002 << 112) | (number << 80) | 1))) is expected
    if expected:
        assert inside.is_global, "we are never more generous than the library"


@given(st.integers(0, 2**128 - 1))
def test_of_the_sixth_kind_only_unicast_is_public(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    if PUBLIC.allows(str(address)) and address.ipv4_mapped is None and number >> 32 != 0x64FF9B << 64:
        assert address.is_global
        assert number >> 125 == 1


@given(st.text(max_size=60))
def test_any_text_is_answered(text: str) -> None:
    PUBLIC.allows(text)
    PUBLIC.and_host(text)
    try:
        check_host(text)
    except InvalidHost:
        return
    try:  # what passes and is read as an address at all is read as it was written
        packed = socket.inet_aton(text.rstrip("."))
    except (OSError, UnicodeEncodeError, ValueError):
        return
    assert socket.inet_ntoa(packed) == text.rstrip(".")
