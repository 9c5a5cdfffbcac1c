"""A file is checked whole: every mistake, each with its line and how to mend it."""

from pathlib import Path

import pytest

from headrace.stack.errors import InvalidStack, StackError
from headrace.stack.kind import Stack
from headrace.stack.loading import load, parse

FILE = Path("headrace.toml")


def read(text: str, **environment: str) -> Stack:
    return parse(text, FILE, environment)


def mistakes(text: str, **environment: str) -> list[str]:
    with pytest.raises(InvalidStack) as refused:
        read(text, **environment)
    return list(refused.value.mistakes)


def test_an_empty_file_is_a_stack_of_defaults() -> None:
    assert read("").sections == {}


def test_defaults_stand_beside_what_is_said() -> None:
    stack = read("[broker]\nport = 9192\n[topics.orders]")
    assert stack.one("broker") == {
        "port": 9192, "host": "127.0.0.1", "data_dir": ".headrace/broker", "durability": "fsync", "security": "off",
        "insecure": False,
    }  # fmt: skip
    assert stack.several("topics") == {"orders": {"partitions": 1}}


def test_all_mistakes_are_told_at_once_in_the_order_of_the_file() -> None:
    assert mistakes("""\
[broker]
prot = 9092
port = "nine"
settings = { "num.partitons" = 3, "log.retention.ms" = "long" }

[topics.orders]
partitions = 0
configs = { "cleanup.policy" = "shred" }

[topics."a/b"]

[dashbord]

[sync.cache]
topic = "orders"
sink = "rediss"

[pipelines.sums]
""") == [
        "headrace.toml:2: [broker] has no key 'prot': did you mean 'port'?",
        "headrace.toml:3: [broker] port is 'nine': it must be a whole number",
        "headrace.toml:4: [broker] settings: unknown setting 'num.partitons': did you mean 'num.partitions'?",
        "headrace.toml:4: [broker] settings: log.retention.ms='long' is not a number",
        "headrace.toml:7: [topics.orders] partitions is 0: it must be at least 1",
        "headrace.toml:8: [topics.orders] configs: cleanup.policy='shred' is unknown: choose of delete, compact",
        "headrace.toml:10: [topics.'a/b'] cannot be called so: use letters, digits, dots, dashes and underscores",
        "headrace.toml:12: there is no section [dashbord]: did you mean 'dashboard'?",
        "headrace.toml:16: [sync.cache] sink is 'rediss': did you mean 'redis'?",
        "headrace.toml:18: [pipelines.sums] has no 'file': add file = … (the Python file that declares the jobs)",
    ]


def test_a_capture_is_checked_key_by_key() -> None:
    found = mistakes("""\
[cdc.shop]
url = "postgresql://127.0.0.1/shop"
tabels = ["public.orders"]
slot = 3
partitions = "two"
""")
    assert [line.partition(": ")[0] for line in found] == [f"headrace.toml:{number}" for number in (3, 4, 5)]
    assert "did you mean 'tables'?" in found[0]
    assert "cdc.shop.slot cannot be 3" in found[1]


def test_a_capture_needs_a_database() -> None:
    assert mistakes("[cdc.shop]\nprefix = 'x'")[0].startswith("headrace.toml:1: [cdc.shop] has no 'url': add url = …")
    (wrong,) = mistakes("[cdc.shop]\n\nurl = 'oracle://127.0.0.1'")
    assert wrong.startswith("headrace.toml:3: [cdc.shop] url cannot be 'oracle:…'")


def test_a_derived_system_is_checked_with_the_keys_of_its_sink() -> None:
    found = mistakes("""\
[sync.cache]
topic = "orders"
sink = "redis"
url = "redis://127.0.0.1"
prefiks = "orders:"
batch_records = "many"
""")
    assert found[:2] == [
        "headrace.toml:1: [sync.cache] has no 'prefix': add prefix = …, sink 'redis' needs it",
        "headrace.toml:5: [sync.cache] has no key 'prefiks': did you mean 'prefix'?",
    ]
    assert found[2].startswith("headrace.toml:6: sync.cache.batch_records cannot be 'many'")
    (wrong,) = mistakes("[sync.t]\ntopic = 'orders'\nsink = 'sqlite'\npath = 'x.db'\ntable = ''\n")
    assert wrong.startswith("headrace.toml:5: ")


def test_a_section_is_a_table_and_a_kind_has_names() -> None:
    assert mistakes("broker = 3") == [
        "headrace.toml:1: broker is a section: write [broker], and its keys below it",
    ]
    (wrong,) = mistakes("[topics]\npartitions = 3")
    assert wrong == (
        "headrace.toml:2: 'partitions' stands in [topics], which has no keys of its own: "
        "put it into a section [topics.NAME]"
    )


def test_variables_are_put_in_and_missed_where_they_stand() -> None:
    text = "[broker]\nhost = '127.0.0.1'\ndata_dir = '${PLACE}/log'\n[dashboard]\ntoken = '${TOKEN}'"
    assert (read(text, PLACE="/data", TOKEN="0123456789abcdef").one("broker") or {})["data_dir"] == "/data/log"
    (missed,) = mistakes(text, PLACE="x")
    assert missed == (
        "headrace.toml:5: dashboard.token names the environment variable TOKEN, which is not set: "
        "set it, or write the value"
    )


def test_a_port_is_taken_once() -> None:
    assert mistakes("[broker]\nport = 8088\n[dashboard]\n") == [
        "headrace.toml:3: [dashboard] port 8088 is taken by [broker]: choose another",
    ]


def test_ports_of_tcp_and_udp_are_two() -> None:
    both = "[gateways.logs]\nkind = 'syslog'\nudp_port = 5514\nport = 5514\n"
    assert read(both)
    assert read("[broker]\nport = 8125\n[gateways.metrics]\nkind = 'statsd'\n")
    assert mistakes("[broker]\nport = 8125\n[gateways.metrics]\nkind = 'statsd'\ntcp = true") == [
        "headrace.toml:3: [gateways.metrics] port 8125 is taken by [broker]: choose another",
    ]
    assert mistakes(f"{both}[gateways.metrics]\nkind = 'statsd'\nport = 5514") == [
        "headrace.toml:7: [gateways.metrics] port 5514 is taken by [gateways.logs]: choose another",
    ]


def test_a_dashboard_for_others_needs_a_token() -> None:
    (wrong,) = mistakes("[dashboard]\nhost = '0.0.0.0'")
    assert wrong.startswith("headrace.toml:2: [dashboard] 0.0.0.0 can be reached from other machines, and nobody")


def test_what_is_no_toml_is_told_with_its_line() -> None:
    (wrong,) = mistakes("[broker\nport = 1")
    assert wrong.startswith("headrace.toml is not valid TOML: ")
    assert "line 1" in wrong


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"is not there: write one with headrace init"):
        load(tmp_path / "headrace.toml")


def test_a_pipeline_file_is_looked_at_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef broken(:\n")
    text = "[pipelines.a]\nfile = 'gone.py'\n[pipelines.b]\nfile = 'bad.py'\n"
    with pytest.raises(InvalidStack) as refused:
        parse(text, tmp_path / "headrace.toml", {})
    first, second = refused.value.mistakes
    assert "headrace.toml:2: [pipelines.a] file: gone.py is not there" in first
    assert "headrace.toml:4: [pipelines.b] file: bad.py:2: " in second


def test_the_environment_is_over_the_file_and_blamed_for_what_it_says() -> None:
    text = "[broker]\nport = 9092\n"
    assert (read(text, HEADRACE__BROKER__PORT="9192").one("broker") or {})["port"] == 9192
    assert (read(text, HEADRACE__SPARK__MASTER="spark://h:7077").one("spark") or {})["master"] == "spark://h:7077"
    assert mistakes(text, HEADRACE__BROKER__PORT="x", HEADRACE__BROKR__PORT="1") == [
        "HEADRACE__BROKR__PORT: there is no section [brokr]: did you mean 'broker'?",
        "HEADRACE__BROKER__PORT: [broker] port is 'x': it must be a whole number",
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("host = '0.0.0.0'", "lets in anybody who can reach this machine: set security"),
        ("host = '0.0.0.0'\nsecurity = 'on'", "logins need TLS: set 'ssl.keystore.location' in settings"),
        ("bootstrap = 'kafka:9092'\nsecurity = 'on'", "security is for a broker of our own"),
        ("security = 'yes'", "security is 'yes'"),
        (
            "security = 'on'\nsettings = { 'users.file' = 'users' }",
            "users.file is the stack's own with security on: add users with headrace user add",
        ),
    ],
)
def test_a_broker_for_everybody_is_refused(lines, said):
    (wrong,) = mistakes(f"[broker]\n{lines}")
    assert said in wrong


@pytest.mark.parametrize(
    "lines",
    [
        "security = 'on'",
        "host = '0.0.0.0'\ninsecure = true",
        "host = '0.0.0.0'\nsecurity = 'on'\nsettings = { 'ssl.keystore.location' = 'broker.pem' }",
    ],
)
def test_a_broker_for_some_is_not(lines):
    assert read(f"[broker]\n{lines}").one("broker")
