"""The mistakes that a newcomer makes, made for real: one sentence, an exit code, no traceback, nothing changed.

Each sentence stands in docs/how-to/when-something-goes-wrong.md too, so that whoever looks it up finds it.
"""

import errno
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.broker.embedded import Broker
from headrace.cli.main import sentence_of
from headrace.pipelines.clusters import close_clusters
from tests.integration.cli_runs import run_cli

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "when-something-goes-wrong.md").read_text()
JOBS = """\
from headrace.pipelines import job, topic

@job(inputs={"orders": topic("orders", format="json", schema="cents long")}, outputs=topic("large"))
def large(orders):
    return orders.where("cents > 100").selectExpr("to_json(struct(*)) AS value")
"""


class Place(NamedTuple):
    """A folder of somebody's own, a broker, and a port that another program has."""

    folder: Path
    broker: Broker
    taken: int

    @property
    def known(self) -> dict[str, str]:
        """What differs from machine to machine, and how the page writes it."""
        return {
            f"127.0.0.1:{self.taken}": "127.0.0.1:9092",
            self.broker.bootstrap_servers: "127.0.0.1:9092",
            "127.0.0.1:1": "127.0.0.1:9092",
            str(self.folder): "/home/you/shop",
        }


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(durability="os") as made:
        run_cli("topic", "create", "orders", bootstrap=made.bootstrap_servers)
        yield made
        close_clusters()  # a pipeline's process would have ended with its connections


@pytest.fixture
def place(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap_servers)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield Place(tmp_path, broker, other.getsockname()[1])


def refused(place: Place, *arguments: object, code: int = 1, stdin: str = "") -> str:
    """Run it; answers its sentence as the page would write it, having looked that nothing was changed."""
    before = sorted(place.folder.rglob("*"))
    run = run_cli(*arguments, stdin=stdin)
    assert run.code == code, run
    assert run.out == ""
    assert "Traceback" not in run.err
    assert sorted(place.folder.rglob("*")) == before
    last = run.err.rstrip("\n").splitlines()[-1]
    assert code == 2 or run.err.count("\n") == 1, run.err
    for text, shown in place.known.items():
        last = re.sub(re.escape(text) + r"(?!\d)", shown, last)
    return last


def documented(sentence: str) -> str:
    """The sentence, which stands on the page as well."""
    assert sentence in PAGE, f"docs/how-to/when-something-goes-wrong.md does not have: {sentence}"
    return sentence


def test_no_broker_where_one_is_looked_for(place: Place) -> None:
    said = refused(place, "topic", "list", "--bootstrap", "127.0.0.1:1")
    assert said == documented(
        "headrace: cannot reach a broker at 127.0.0.1:9092 (Connection refused): start one there (headrace broker "
        "start), or give another bootstrap address"
    )


def test_a_port_that_is_taken(place: Place) -> None:
    said = refused(place, "broker", "start", "--data-dir", "data", "--listen", f"127.0.0.1:{place.taken}")
    assert said == documented(
        "headrace: cannot listen on 127.0.0.1:9092: Address already in use; choose another port with --listen, or 0 "
        "for a free one"
    )
    (place.folder / "headrace.toml").write_text(f"[broker]\nport = {place.taken}\n")
    (place.folder / ".headrace" / "stack").mkdir(parents=True)
    (place.folder / ".headrace" / "stack" / "lock").touch()
    assert refused(place, "up") == documented(
        "headrace: 127.0.0.1:9092 is taken by another program: choose another port for [broker], or end that program"
    )


def test_a_port_given_as_other_programs_take_it(place: Place) -> None:
    run = run_cli("broker", "start", "--data-dir", "data", "--port", "9192")
    assert (run.code, run.out) == (2, "")
    assert run.err.splitlines()[-1] == "Error: there is no --port or --host: write --listen 127.0.0.1:9192"
    assert not (place.folder / "data").exists()
    run = run_cli("topic", "list", "--port", "9192")
    assert (run.code, run.out) == (2, "")
    assert run.err.splitlines()[-1] == "Error: there is no --port: write --bootstrap HOST:PORT"


def test_a_topic_that_is_not_there(place: Place) -> None:
    for command in (["tail", "ordres"], ["produce", "ordres", "x"], ["topic", "describe", "ordres"]):
        assert refused(place, *command) == documented(
            "headrace: topic 'ordres' does not exist at 127.0.0.1:9092: did you mean 'orders'?"
        )
    assert refused(place, "topic", "create", "orders") == documented(
        "headrace: topic 'orders' already exists at 127.0.0.1:9092: choose another name, or change this one with "
        "headrace topic alter orders"
    )


def test_a_file_that_is_missing_misspelt_or_wrong(place: Place) -> None:
    file = place.folder / "headrace.toml"
    assert refused(place, "up") == documented(
        "headrace: headrace.toml is not there: write one with headrace init, or name another with --config"
    )
    for text, sentence in (
        ("[broker]\nprot = 9092\n", "headrace: headrace.toml:2: [broker] has no key 'prot': did you mean 'port'?"),
        ('[broker]\nport = "9092"\n', "headrace: headrace.toml:2: [broker] port is '9092': it must be a whole number"),
        ("[brokr]\n", "headrace: headrace.toml:1: there is no section [brokr]: did you mean 'broker'?"),
        (
            "[pipelines.sums]\nfile = 'sums.py'\n",
            "headrace: headrace.toml:2: [pipelines.sums] file: sums.py is not there (looked in /home/you/shop)",
        ),
    ):
        file.write_text(text)
        assert refused(place, "up") == documented(sentence)


def test_a_pipeline_that_cannot_be_read(place: Place) -> None:
    file = place.folder / "jobs.py"
    assert refused(place, "pipeline", "run", "jobs.py") == documented(
        "headrace: jobs.py is not a file: name the Python file that declares jobs or views"
    )
    for text, sentence in (
        ("import pandsa\n", "headrace: jobs.py:1: ModuleNotFoundError: No module named 'pandsa': install it"),
        (JOBS.replace("format=", "fromat="), "the source format(\"headrace\") has no option 'fromat': did you mean"),
        (JOBS.replace('"orders", f', '"ordres", f'), "job 'large': topic 'ordres' does not exist at 127.0.0.1:9092"),
        (JOBS.replace("@job", "#"), "headrace: jobs.py declares no job: put @job(…) over a function"),
    ):
        file.write_text(text)
        run_before = set(place.folder.iterdir())
        assert documented(sentence) in refused(place, "pipeline", "run", "jobs.py")
        assert set(place.folder.iterdir()) == run_before


def test_no_java_and_no_spark(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    run_cli("topic", "create", "large", bootstrap=place.broker.bootstrap_servers)
    (place.folder / "jobs.py").write_text(JOBS)
    (place.folder / ".headrace").mkdir()
    with monkeypatch.context() as without:
        without.setenv("PATH", str(place.folder))
        without.delenv("JAVA_HOME", raising=False)
        run = run_cli("pipeline", "run", "jobs.py")
    assert run.code == 1
    assert documented("headrace: Spark needs Java, and there is none") in run.err.splitlines()[-1]
    assert "Traceback" not in run.err
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyspark", None)
        run = run_cli("pipeline", "run", "jobs.py")
    assert run.code == 1
    assert run.err.splitlines()[-1] == documented(
        "headrace: a pipeline needs the package pyspark, which is not installed: pip install 'headrace[spark]'"
    )


def test_a_database_that_is_none(place: Place) -> None:
    (place.folder / "headrace.toml").write_text('[cdc.shop]\nurl = "postgre://me@db/shop"\n')
    assert "write postgresql://…, mysql://…, mariadb://… or sqlite:///path" in refused(place, "cdc", "start", "shop")
    (place.folder / "headrace.toml").write_text('[cdc.shop]\nurl = "postgresql://me:${SHOP_PASSWORD}@db/shop"\n')
    assert refused(place, "up") == documented(
        "headrace: headrace.toml:2: cdc.shop.url names the environment variable SHOP_PASSWORD, which is not set: set "
        "it, or write the value"
    )


def test_values_that_are_no_json(place: Place) -> None:
    said = refused(place, "produce", "orders", '{"cents": 1}', '{"cents": ', "--check-json")
    assert said.startswith(documented("headrace: '{\"cents\": ' is not valid JSON ("))
    said = refused(place, "produce", "orders", "--check-json", stdin='{"cents": 1}\n{"cents": \n')
    assert "line 2 of the input: '{\"cents\": ' is not valid JSON" in said
    said = refused(place, "produce", "orders", "--json-lines", stdin="{\n")
    assert "line 1 of the input: it is not JSON" in said
    held = run_cli("topic", "describe", "orders", "--json", bootstrap=place.broker.bootstrap_servers)
    assert held.json["records"] <= 1  # of the three that were right, at most the line before the wrong one


def test_a_folder_that_another_broker_has_and_one_that_cannot_be_used(place: Place, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", durability="os"):
        said = refused(place, "broker", "start", "--listen", "127.0.0.1:0", "--data-dir", "data")
    assert said == documented(
        "headrace: data directory data is in use by another process: stop that one or name another directory"
    )
    said = refused(place, "broker", "start", "--listen", "127.0.0.1:0", "--data-dir", "/proc/headrace")
    assert documented("no such file or directory: check the name, and whether its folder is there") in said
    for number, words in (
        (errno.ENOSPC, "no space left on device: free some space, or name a folder on another disk"),
        (errno.EROFS, "read-only file system: name a folder on a disk that can be written"),
        (errno.EACCES, "permission denied: name a place that you may use, or change who may"),
    ):
        assert sentence_of(OSError(number, os.strerror(number), "data")) == f"data: {documented(words)}"


def test_words_that_are_no_command_no_time_and_no_condition(place: Place) -> None:
    assert "Did you mean 'list'?" in refused(place, "topic", "lst", code=2)
    assert "is not a place to start: write earliest, latest" in refused(
        place, "tail", "orders", "--from", "yesterdy", code=2
    )
    run = run_cli("tail", "orders", "--where", ".cents = 5", bootstrap=place.broker.bootstrap_servers)
    assert run.code == 2
    assert documented("write == to compare") in run.err
