"""`headrace doctor`: what it finds, and what it says about it."""

import json
import socket

import pytest
from click.testing import CliRunner

from headrace.cli import doctor
from headrace.cli.doctor import Verdict, check_disk, check_java, check_packages, check_port, check_sync, release
from headrace.cli.main import cli
from headrace.client.address import Address

FITTING = {
    "pyspark": "4.2.0",
    "pyarrow": "20.0.0",
    "pandas": "2.3.1",
    "numpy": "2.2.0",
    "numba": "0.61.2",
    "protobuf": "6.30.0",
}


@pytest.mark.parametrize(
    ("version", "numbers"), [("4.2.0", (4, 2, 0)), ("2.2.3rc1", (2, 2, 3)), ("3.dev0", (3,)), ("", ())]
)
def test_the_numbers_of_a_version(version, numbers):
    assert release(version) == numbers


def test_packages_that_fit():
    assert check_packages(FITTING.get).verdict is Verdict.FINE


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("pandas", "3.0.0", "pandas 3.0.0"),
        ("pyspark", "4.3.0", "pyspark 4.3.0"),
        ("pyarrow", None, "pyarrow is missing"),
    ],
)
def test_packages_that_do_not_fit_are_named(package, version, said):
    finding = check_packages((FITTING | {package: version}).get)
    assert (finding.verdict, finding.found) == (Verdict.BROKEN, said)
    assert "pip install" in finding.mend


def test_without_the_extra_spark_is_only_a_note():
    assert check_packages(lambda _: None).verdict is Verdict.NOTE


def test_a_missing_java_is_broken_only_for_whom_needs_it(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert [check_java(needed=needed).verdict for needed in (True, False)] == [Verdict.BROKEN, Verdict.NOTE]
    assert "install a Java 17" in check_java(needed=True).mend


def test_who_answers_at_the_port(headrace_broker):
    finding = check_port(Address.parse(headrace_broker.bootstrap_servers))
    assert finding.verdict is Verdict.FINE
    assert "a Kafka broker answers" in finding.found


def test_a_free_port_and_one_that_something_else_has():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address("127.0.0.1", other.getsockname()[1])
        taken = check_port(address)
    assert (taken.verdict, check_port(address).found) == (Verdict.NOTE, f"{address} is free")
    assert "--listen" in taken.mend


def test_the_disk_of_a_folder_that_is_not_there_yet_is_that_of_the_one_above(tmp_path):
    assert str(tmp_path) in check_disk(tmp_path / "a" / "b").found
    assert check_sync(tmp_path / "a").verdict in (Verdict.FINE, Verdict.NOTE)
    assert list(tmp_path.iterdir()) == []


def test_something_broken_is_the_exit_code(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "installed_version", FITTING.get)
    done = CliRunner().invoke(cli, ["doctor", "--json"])
    findings = {finding["check"]: finding for finding in json.loads(done.output)}
    assert (done.exit_code, findings["java"]["verdict"]) == (1, "broken")
    shown = CliRunner().invoke(cli, ["doctor"])
    assert shown.exit_code == 1
    assert "java: install a Java 17 or newer" in shown.output
