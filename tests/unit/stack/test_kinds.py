"""Each kind of section: the processes it asks for, how they are called, and what their lines mean."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from headrace.stack.errors import InvalidStack, NoSuchMember
from headrace.stack.kind import CONFIG, Member, Stack
from headrace.stack.kinds import broker, pipelines
from headrace.stack.lines import Said, read_condition, read_server
from headrace.stack.loading import parse
from headrace.stack.plan import choose_members, members_of, posts_of
from headrace.stack.processes import toml_text
from headrace.stack.registry import KINDS, sample

AT = "127.0.0.1:9092"
FILE = Path("headrace.toml")
TEXT = """
[broker]
port = 0
advertise = "here:9092"
settings = { "num.partitions" = 4, "auto.create.topics.enable" = false }
[topics.orders]
partitions = 2
configs = { "retention.ms" = 5000 }
[cdc.shop]
url = "sqlite:///shop.db"
[sync.copy]
topic = "orders"
sink = "sqlite"
path = "copy.db"
table = "orders"
[dashboard]
allow_writes = true
"""


def stack(text: str = TEXT) -> Stack:
    return parse(text, FILE, {})


def member(name: str, text: str = TEXT) -> Member:
    return next(one for one in members_of(stack(text)) if one.name == name)


def arguments(one: Member, bootstrap: str = AT) -> str:
    return " ".join(one.command(bootstrap).arguments)


def test_members_come_in_the_order_of_their_start() -> None:
    members = members_of(stack())
    assert [one.name for one in members] == ["broker", "topics", "cdc.shop", "sync.copy", "dashboard"]
    ranks = [post.rank for post in posts_of(members)]
    assert ranks == sorted(ranks)


def test_the_broker_keeps_a_free_port_that_it_was_given() -> None:
    said = arguments(member("broker"), "")
    assert said.startswith("headrace.cli.main --log-json broker start --json --data-dir .headrace/broker ")
    assert "--listen 127.0.0.1:0 --durability fsync --advertise here:9092" in said
    assert "--set num.partitions=4 --set auto.create.topics.enable=false" in said
    assert "--listen 127.0.0.1:34567 " in arguments(member("broker"), "127.0.0.1:34567")
    ready = broker.read(json.dumps({"listeners": ["0.0.0.0:9092"], "pid": 1, "data_dir": "d"}))
    assert ready.is_ready
    assert ready.facts == {"bootstrap": AT}


def test_a_kafka_that_is_there_needs_no_broker() -> None:
    members = members_of(stack(TEXT.replace("port = 0", "bootstrap = 'k1:9092,k2:9092'")))
    assert [one.name for one in members] == ["topics", "cdc.shop", "sync.copy", "dashboard"]
    assert [one.needs for one in members] == [(), ("topics",), ("topics",), ()]


def test_secrets_are_not_arguments() -> None:
    command = member("cdc.shop", TEXT.replace("sqlite:///shop.db", "postgresql://u:secret@h/d")).command(AT)
    assert "secret" not in " ".join(command.arguments)
    assert "secret" not in repr(command)
    assert command.config == {"cdc": {"shop": {"url": "postgresql://u:secret@h/d"}}}
    assert CONFIG in command.arguments
    page = member("dashboard").command(AT)
    token = page.environment["HEADRACE_DASHBOARD_TOKEN"]
    assert len(token) >= 16
    assert token not in " ".join(page.arguments)


def test_a_store_of_events_flows_if_it_has_a_topic_and_is_shown_anyway() -> None:
    text = "[events.bank]\nurl = 'postgresql://u:secret@h/d'\ntopic = 'bank.events'\naggregates = ['bank:account']\n"
    text = f"{TEXT}\n{text}[events.own]\nurl = 'kafka://127.0.0.1:9092/own'\n"
    names = [one.name for one in members_of(stack(text)) if one.name.startswith("events.")]
    assert names == ["events.bank"]
    flow, page = member("events.bank", text).command(AT), member("dashboard", text).command(AT)
    assert " ".join(flow.arguments).endswith(f"events flow bank --config {CONFIG} --bootstrap {AT} --json")
    assert "secret" not in " ".join((*flow.arguments, *page.arguments))
    assert page.config is not None
    assert page.config["events"].keys() == {"bank", "own"}
    assert page.arguments[-2:] == ("--config", CONFIG)
    more = text.replace("topic = 'bank.events'", "projections = ['bank:statements']")
    assert [one.name for one in members_of(stack(more)) if one.name.startswith("events.")] == ["events.bank.run"]
    assert "events run bank --config" in arguments(member("events.bank.run", more), AT)
    with pytest.raises(InvalidStack, match=r"\[events.bank\] url: 'mysql:…' is not the address") as caught:
        stack(text.replace("postgresql://", "mysql://"))
    assert "secret" not in str(caught.value)


def test_who_is_let_in_is_handed_over() -> None:
    text = TEXT + "host = '0.0.0.0'\nhost_names = ['a.example', 'b.example']\ntokens = 't'\ncertificate = 'c.pem'\n"
    arguments = member("dashboard", text).command(AT).arguments
    given = ("--host", "0.0.0.0", "--host-name", "a.example", "--host-name", "b.example", "--tokens", "t")
    assert " ".join((*given, "--certificate", "c.pem")) in " ".join(arguments)
    assert "--insecure" not in arguments
    assert not member("dashboard", text).command(AT).environment, "who has a token of the file is asked for that"


def test_topics_are_handed_over_as_kafka_writes_them() -> None:
    command = member("topics").command(AT)
    assert command.arguments == ("headrace.stack.topics_task", AT, CONFIG)
    assert command.config == {"topics": {"orders": {"partitions": 2, "configs": {"retention.ms": "5000"}}}}
    assert tomllib.loads(toml_text(command.config)) == command.config


def test_a_capture_tells_how_it_stands() -> None:
    line = {"name": "shop", "state": "waiting", "records": 3, "per_s": 1.5, "problem": "away"}
    said = read_condition(json.dumps(line))
    assert (said.sentence, said.level, said.is_ready, said.problem) == ("is waiting: away", "warning", False, "away")
    said = read_condition(json.dumps(line | {"state": "running", "problem": ""}))
    assert (said.sentence, said.is_ready, said.problem) == ("is running", True, "")
    assert said.facts == {"records": 3, "per_s": 1.5, "state": "running", "waiting": ""}
    said = read_condition(
        json.dumps(line | {"waiting": "for topic t", "dead_letters": 2, "dead_letter_reasons": {"no": 2}})
    )
    assert said.sentence == "is waiting: for topic t: away; 2 records were set aside as dead letters (no)"
    assert said.facts["dead_letters"] == 2
    waiting = line | {"waiting": "for the lock on a file"}
    again, other = (read_condition(json.dumps(waiting | {"problem": f"held by {pid}"})).repeats for pid in (1, 2))
    assert again == other  # what is waited for is the news, and not how the error is called
    assert read_condition(json.dumps(waiting | {"dead_letters": 1})).repeats != again


def test_a_pipeline_tells_of_jobs_and_batches() -> None:
    assert pipelines.read('{"event": "is ready after 3 s", "job": "spark"}').is_ready
    assert not pipelines.read('{"event": "starts on local", "job": "spark"}').is_ready
    assert pipelines.read("Starting Streaming TransformWithStateInPandas Python worker.") == Said()
    report = {"job": "sums", "output": "out", "batch": 4, "input_rate": 10.0, "lag_records": 7, "lag_ms": None}
    said = pipelines.read(json.dumps(report))
    assert said.is_ready
    assert not said.sentence
    assert said.facts == {"job sums.out": {"batch": 4, "lag_records": 7, "per_s": 10.0}}


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a file of jobs, and what `headrace pipeline list` would say of it."""
    listed = [{"job": "sums", "inputs": {"a": "orders"}}, {"job": "joined", "inputs": {"a": "orders", "b": "users"}}]

    def answer(folder: Path, file: str) -> list[dict[str, Any]]:
        return listed

    monkeypatch.setattr(pipelines, "list_jobs", answer)
    (tmp_path / "jobs.py").write_text("")
    return tmp_path


def test_a_pipeline_waits_for_the_topics_that_its_jobs_read(jobs: Path) -> None:
    text = (
        "[spark]\nmaster = 'spark://h:7077'\n[pipelines.a]\nfile = 'jobs.py'\njobs = ['sums']\ntrigger = '1 second'\n"
    )
    text += "[pipelines.b]\nfile = 'jobs.py'\nmetrics_port = 9100\n[views]\nfile = 'jobs.py'\n"
    members = {one.name: one for one in members_of(parse(text, jobs / "headrace.toml", {}))}
    first, second = arguments(members["pipelines.a"]), arguments(members["pipelines.b"])
    assert (
        "pipeline run jobs.py --json --bootstrap 127.0.0.1:9092 --master spark://h:7077 --state-dir .headrace" in first
    )
    assert "--wait-for-topics 30" in first
    assert members["pipelines.a"].topics == ("orders",)
    assert members["pipelines.b"].topics == ("orders", "users")
    assert "--job sums --trigger 1 second" in first
    assert "--metrics-port 9100" in second
    assert "view serve jobs.py" in arguments(members["views.serve"])
    assert read_server('{"url": "http://127.0.0.1:8300/"}').is_ready


def test_a_job_that_is_not_there_is_told_with_its_line(jobs: Path) -> None:
    with pytest.raises(Exception, match=r":3: \[pipelines.a\] jobs: there is no job 'sum': did you mean 'sums'\?"):
        parse("[pipelines.a]\nfile = 'jobs.py'\njobs = ['sum']\n", jobs / "headrace.toml", {}, explore=True)


def test_the_dashboard_tells_its_address_without_the_token() -> None:
    said = read_server('{"url": "http://127.0.0.1:8088/?token=abc", "port": 8088, "pid": 1}')
    assert said.is_ready
    assert said.facts == {"url": "http://127.0.0.1:8088/"}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["shop"], ["broker", "topics", "cdc.shop"]),
        (["cdc.shop", "dashboard"], ["broker", "topics", "cdc.shop", "dashboard"]),
        (["sync"], ["broker", "topics", "sync.copy"]),
        ([], ["broker", "topics", "cdc.shop", "sync.copy", "dashboard"]),
    ],
)
def test_some_are_chosen_with_what_they_need(names: list[str], found: list[str]) -> None:
    assert [one.name for one in choose_members(members_of(stack()), names)] == found


def test_a_name_that_is_none_or_two_is_told() -> None:
    with pytest.raises(NoSuchMember, match=r"no 'dashbord' in the stack: did you mean 'dashboard'\?"):
        choose_members(members_of(stack()), ["dashbord"])
    both = TEXT.replace("[sync.copy]", "[sync.shop]")
    with pytest.raises(NoSuchMember, match=r"'shop' may mean cdc.shop and sync.shop: give the whole name"):
        choose_members(members_of(stack(both)), ["shop"])


def test_the_sample_is_in_order_and_has_every_kind() -> None:
    text = sample()
    assert [one.name for one in members_of(stack(text))] == ["broker", "topics", "dashboard"]
    for kind in KINDS:
        assert f"[{kind.name}" in text


def test_what_the_sample_comments_out_is_in_order_too(jobs: Path) -> None:
    lines = [
        line.removeprefix("# ") if line.startswith("# [") or " = " in line.partition("#")[2][:16] else line
        for line in sample().splitlines()
    ]
    for name in ("revenue.py", "views.py"):
        (jobs / name).write_text("")
    found = parse("\n".join(lines), jobs / "headrace.toml", {"SHOP_PASSWORD": "x"})
    assert set(found.sections) == {kind.name for kind in KINDS}


def test_every_key_says_what_it_means() -> None:
    for kind in KINDS:
        assert kind.summary.endswith(".")
        assert all(key.meaning.endswith(".") for key in kind.keys)


def test_a_pipeline_file_may_have_the_name_of_a_module_of_pythons(tmp_path: Path) -> None:
    lines = ["from headrace.pipelines import job, topic", "", "@job(inputs={'n': topic('n')}, outputs=topic('m'))"]
    (tmp_path / "numbers.py").write_text("\n".join([*lines, "def doubled(n):", "    return n", ""]))
    assert [job["job"] for job in pipelines.list_jobs(tmp_path, "numbers.py")] == ["doubled"]
