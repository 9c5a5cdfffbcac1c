"""How a cluster is reached when the environment says so, and what is never said aloud."""

import json
from pathlib import Path

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import BadSecurity
from headrace.client.surroundings import VARIABLE, reached_as, settings_around

HERE = parse_bootstrap("kafka-1:9093")
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "shop",
    "sasl.password": "hunter2",
}


def around(**further: str) -> dict[str, str]:
    return {VARIABLE: json.dumps({**LOGIN, **further})}


def test_without_a_word_nothing_changes() -> None:
    given = ConnectionSettings(client_id="x")
    assert reached_as(HERE, given, {}) is given
    assert reached_as(HERE, given, {VARIABLE: " "}) is given
    assert settings_around(HERE, {}) == {}


def test_settings_of_the_environment_make_a_connection_safe_and_leave_the_rest() -> None:
    found = reached_as(HERE, ConnectionSettings(client_id="x", request_timeout_s=2), around())
    assert (found.client_id, found.request_timeout_s, found.security_protocol) == ("x", 2, "SASL_SSL")
    assert found.credentials is not None
    assert found.credentials.username == "shop"
    assert "hunter2" not in repr(found)


def test_what_a_program_says_itself_goes_before() -> None:
    given = ConnectionSettings(security_protocol="SSL")
    assert reached_as(HERE, given, around()) is given


def test_settings_for_one_cluster_are_not_shown_to_another() -> None:
    environment = around(**{"bootstrap.servers": "kafka-1:9093,kafka-2:9093"})
    elsewhere = parse_bootstrap("other:9092")
    assert reached_as(HERE, ConnectionSettings(), environment).security_protocol == "SASL_SSL"
    assert reached_as(elsewhere, ConnectionSettings(), environment).security_protocol == "PLAINTEXT"
    assert settings_around(elsewhere, environment) == {}
    assert settings_around(HERE, environment) == LOGIN


def test_a_file_of_properties_as_kafkas_tools_take_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\n\n" + "\n".join(f"{name} = {value}" for name, value in LOGIN.items()) + "\n")
    assert settings_around(HERE, {VARIABLE: str(file)}) == LOGIN
    file.write_text("security.protocol=SSL\nhunter2\n")
    with pytest.raises(BadSecurity, match=r"client.properties:2 is not NAME=VALUE") as refused:
        settings_around(HERE, {VARIABLE: str(file)})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(BadSecurity, match="cannot be read"):
        settings_around(HERE, {VARIABLE: str(tmp_path / "gone")})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"security.protocol": "SASL_SSL", "sasl.password": "hunter2"', "is none"),
        ('{"securty.protocol": "SSL"}', "did you mean 'security.protocol'"),
        ('{"security.protocol": "SASL_SSL", "sasl.password": "hunter2"}', "needs sasl.mechanism"),
    ],
)
def test_a_mistake_names_the_variable_and_shows_no_value(text: str, said: str) -> None:
    with pytest.raises(BadSecurity, match=said) as refused:
        reached_as(HERE, ConnectionSettings(), {VARIABLE: text})
    assert VARIABLE in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_every_cluster_of_a_process_is_reached_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, around()[VARIABLE])
    assert Cluster(HERE)._settings.security_protocol == "SASL_SSL"
