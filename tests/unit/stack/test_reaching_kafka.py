"""How a stack reaches a Kafka that is not ours, what Spark is told, and where secrets come from and do not go."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.client.surroundings import VARIABLE
from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.settings import CONF_VARIABLE, conf_around
from headrace.stack.errors import InvalidStack
from headrace.stack.kind import Member, Stack
from headrace.stack.kinds import pipelines
from headrace.stack.kinds.broker import connection_environment
from headrace.stack.loading import parse
from headrace.stack.plan import members_of

SAFE = """
[broker]
bootstrap = "kafka-1:9093"
[broker.connection]
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "shop"
"sasl.password" = "{password}"
"""


def read(text: str, folder: Path, **environment: str) -> Stack:
    return parse(text, folder / "headrace.toml", environment)


def refused(text: str, folder: Path) -> str:
    with pytest.raises(InvalidStack) as error:
        read(text, folder)
    return str(error.value)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with two files of jobs, and what `headrace pipeline list` would say of them."""
    listed = {
        "jobs.py": [{"job": "sums", "inputs": {"a": "orders"}}],
        "views.py": [{"job": "cities", "inputs": {"a": "orders", "b": "users"}}],
    }

    def answer(folder: Path, file: str) -> list[dict[str, Any]]:
        return listed[file]

    monkeypatch.setattr(pipelines, "list_jobs", answer)
    for file in listed:
        (tmp_path / file).write_text("")
    return tmp_path


def by_name(stack: Stack) -> dict[str, Member]:
    return {member.name: member for member in members_of(stack)}


def test_a_password_comes_from_a_file_or_the_environment(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    from_file = read(SAFE.replace("{password}", "${file:secret}"), tmp_path)
    from_environment = read(SAFE.replace("{password}", "${KAFKA_PASSWORD}"), tmp_path, KAFKA_PASSWORD="hunter2")
    assert connection_environment(from_file) == connection_environment(from_environment)
    told = json.loads(connection_environment(from_file)[VARIABLE])
    assert told["sasl.password"] == "hunter2"
    assert told["bootstrap.servers"] == "kafka-1:9093"


def test_a_secret_is_no_argument_of_any_process(tmp_path: Path) -> None:
    text = SAFE.replace("{password}", "hunter2") + "[cdc.shop]\nurl = 'sqlite:///shop.db'\n[dashboard]\n"
    for member in by_name(read(text, tmp_path)).values():
        assert "hunter2" not in " ".join(member.command("kafka-1:9093").arguments)


def test_a_file_that_is_not_there_is_told_with_its_line(tmp_path: Path) -> None:
    said = refused(SAFE.replace("{password}", "${file:secrets/kafka}"), tmp_path)
    assert "headrace.toml:8: broker.connection.sasl.password names the file secrets/kafka, which cannot be read" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[broker]\nconnection = { 'security.protocol' = 'SSL' }", ":2: [broker] connection is for a Kafka"),
        (SAFE.replace("SASL_SSL", "SASL_TLS"), ":5: [broker] connection: security.protocol is 'SASL_TLS': choose"),
        (SAFE.replace("sasl.mechanism", "sasl.mechanisn"), ":6: [broker] connection: there is no kafka option"),
        (SAFE.replace('"sasl.username"', "sasl.username"), ":7: [broker] connection: sasl must be in quotes"),
        (
            "[broker]\nbootstrap = 'k:1'\nconnection = 'hunter2'",
            ":3: [broker] connection is not shown here: it must be",
        ),
        ("[spark]\nconf = { 'driver.memory' = '2g' }", ":2: [spark] 'driver.memory' in conf is not a Spark setting"),
        ("[spark]\nconf = { spark.driver.memory = '2g' }", ":2: [spark] conf: spark is a table or a list"),
        ("[spark]\nconf = 2", ":2: [spark] conf is 2: it must be a table"),
    ],
)
def test_what_is_refused_is_told_with_its_line_and_without_secrets(text: str, said: str, tmp_path: Path) -> None:
    told = refused(text.replace("{password}", "hunter2"), tmp_path)
    assert said in told
    assert "hunter2" not in told


def test_spark_is_told_where_others_cannot_see_it(jobs: Path) -> None:
    text = '[spark]\nconf = { "spark.driver.memory" = "2g", "spark.ui.enabled" = true }\n'
    text += "[pipelines.shop]\nfile = 'jobs.py'\n[views]\nfile = 'views.py'\n"
    members = by_name(read(text, jobs))
    for name in ("pipelines.shop", "views.keep"):
        command = members[name].command("h:1")
        assert conf_around(command.environment) == {"spark.driver.memory": "2g", "spark.ui.enabled": "true"}
        assert "2g" not in " ".join(command.arguments)
    assert CONF_VARIABLE not in members["views.serve"].command("h:1").environment


def test_settings_of_spark_that_cannot_be_read_are_not_shown() -> None:
    for text in ('{"spark.hadoop.fs.s3a.secret.key": "hunter2"', '"hunter2"'):
        with pytest.raises(PipelineError, match="HEADRACE_SPARK_CONF is not a JSON object") as error:
            conf_around({CONF_VARIABLE: text})
        assert "hunter2" not in str(error.value)


def test_views_kept_by_a_pipeline_share_its_session(jobs: Path) -> None:
    text = "[pipelines.shop]\nfile = 'jobs.py'\njobs = ['sums']\n[views]\nfile = 'views.py'\nkept_by = 'shop'\n"
    members = by_name(read(text, jobs))
    assert set(members) == {"broker", "pipelines.shop", "views.serve"}
    said = " ".join(members["pipelines.shop"].command("h:1").arguments)
    assert "pipeline run jobs.py views.py --json" in said
    assert "--job sums --job cities" in said
    assert set(members["pipelines.shop"].topics) == {"orders", "users"}
    wrong = refused(text.replace("'shop'", "'shob'"), jobs)
    assert wrong.endswith(":6: [views] kept_by: there is no section [pipelines.shob]: did you mean 'shop'?")
