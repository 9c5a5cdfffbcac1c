"""Listeners: names, protocols, advertised addresses, and what is refused because anybody could come in."""

import os

import pytest

from headrace.broker.config import Address, BrokerConfig, Listener, parse_listeners
from headrace.broker.settings.setting import InvalidSetting
from headrace.secret_files import ExposedSecret, check_private


def test_an_address_alone_is_plaintext():
    assert parse_listeners(["127.0.0.1:9092"]) == (Listener(Address("127.0.0.1", 9092)),)


def test_names_and_protocols():
    settings = {"listener.security.protocol.map": "INSIDE:PLAINTEXT, outside:sasl_ssl"}
    listeners = parse_listeners(["INSIDE://127.0.0.1:1", "outside://0.0.0.0:2", "SSL://[::1]:3"], (), settings)
    assert [(each.name, each.protocol, each.address.port) for each in listeners] == [
        ("INSIDE", "PLAINTEXT", 1),
        ("OUTSIDE", "SASL_SSL", 2),
        ("SSL", "SSL", 3),
    ]


def test_an_advertised_address_is_one_listeners_or_everybodys():
    both = ["SSL://127.0.0.1:1", "SASL_SSL://127.0.0.1:2"]
    named = parse_listeners(both, ["SSL://kafka.example:443"])
    assert [each.advertised for each in named] == [Address("kafka.example", 443), None]
    shared = parse_listeners(both, ["kafka.example:9", "SASL_SSL://inside:7"])
    assert [each.advertised for each in shared] == [Address("kafka.example", 9), Address("inside", 7)]


@pytest.mark.parametrize(
    ("listeners", "advertised", "settings", "said"),
    [
        (["TLS://127.0.0.1:1"], [], {}, "unknown protocol: begin with one of PLAINTEXT://"),
        (["SSL://127.0.0.1:1", "SSL://127.0.0.1:2"], [], {}, "two listeners are named SSL"),
        (["SSL://127.0.0.1:1"], ["SASL_SSL://a:1"], {}, "SASL_SSL is advertised, but there is no such listener"),
        (["A://127.0.0.1:1"], [], {"listener.security.protocol.map": "A:TLS"}, "'A:TLS' is not NAME:PROTOCOL"),
        (["127.0.0.1"], [], {}, "is not HOST:PORT"),
    ],
)
def test_what_cannot_be_a_listener(listeners, advertised, settings, said):
    with pytest.raises(InvalidSetting, match=said):
        parse_listeners(listeners, advertised, settings)


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092", "kafka.example:9092", "SSL://192.168.0.1:9092"])
def test_a_public_address_without_a_login_is_refused_unless_it_is_meant(listen):
    listeners = parse_listeners([listen])
    with pytest.raises(InvalidSetting, match=r"lets in anybody who can reach this machine: .* --insecure"):
        BrokerConfig("data", listeners)
    assert BrokerConfig("data", listeners, is_insecure=True).listeners == listeners


def test_a_public_address_with_a_login_is_allowed():
    BrokerConfig("data", parse_listeners(["SASL_SSL://0.0.0.0:1", "127.0.0.1:2", "localhost:3", "[::1]:4"]))
    mutual = {"ssl.client.auth": "required"}
    BrokerConfig("data", parse_listeners(["SSL://0.0.0.0:1"]), mutual)


def test_a_listener_has_settings_of_its_own():
    settings = {"ssl.client.auth": "requested", "listener.name.mutual.ssl.client.auth": "required"}
    config = BrokerConfig("data", settings=settings)
    here = Address("127.0.0.1", 1)
    assert config.client_auth(Listener(here, "MUTUAL", "SSL")) == "required"
    assert config.client_auth(Listener(here, "SSL", "SSL")) == "requested"
    # Where clients log in, a certificate besides is asked for only by the listener's own setting (KIP-684).
    assert config.client_auth(Listener(here, "SASL_SSL", "SASL_SSL")) == "none"
    with pytest.raises(InvalidSetting, match="unknown setting"):
        BrokerConfig("data", settings={"listener.name.mutual.num.partitions": "3"})


def test_no_secret_is_in_what_is_printed():
    assert "geheim" not in repr(BrokerConfig("data", settings={"ssl.key.password": "geheim"}))


def test_a_file_that_others_can_read_is_refused_with_how_to_mend_it(tmp_path):
    secret = tmp_path / "key.pem"
    secret.write_text("secret")
    for mode in (0o644, 0o604, 0o660, 0o601):
        secret.chmod(mode)
        with pytest.raises(ExposedSecret, match=f"can be read by others: chmod 600 {secret}"):
            check_private(secret, "the key")
    secret.chmod(0o600)
    check_private(secret, "the key")
    with pytest.raises(ExposedSecret, match="cannot be read"):
        check_private(tmp_path / "nothing", "the key")
    assert os.stat(secret).st_mode & 0o777 == 0o600
