"""`[sync.NAME]` in headrace.toml: what is read, and what is said about mistakes."""

from pathlib import Path

import pytest

from headrace.cli.sync import load_settings
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sync.registry import SINKS, make_sink
from headrace.connect.sync.settings import from_section
from headrace.stack.errors import StackError
from headrace.stores.derived import Place, key_text

GOOD = """
[sync.cache]
topic = "shop.public.orders"
sink = "redis"
url = "redis://127.0.0.1:1/0"
prefix = "orders:"
value = "plain"
batch_records = 10
longest_pause_s = 5

[sync.table]
topic = "shop.public.orders"
sink = "sqlite"
path = "a.sqlite"
table = "orders"
"""


def test_sections_are_read(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(GOOD)
    cache, table = load_settings(file)
    assert (cache.name, cache.topic, cache.sink) == ("cache", "shop.public.orders", "redis")
    assert (cache.form.value, cache.limits.records, cache.longest_pause_s) == ("plain", 10, 5.0)
    assert cache.options == {"url": "redis://127.0.0.1:1/0", "prefix": "orders:"}
    assert cache.dead_letters_topic == "shop.public.orders.dead-letters"
    assert [settings.name for settings in load_settings(file, ["table"])] == ["table"]
    make_sink(table, "127.0.0.1:1")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"has no section \[sync.NAME\]"),
        ("[sync", "is not valid TOML"),
        ("[sync.a]\nsink = 'redis'", r"section \[sync.a\] has no 'topic'"),
        ("[sync.a]\ntopic = 5\nsink = 'redis'", "sync.a.topic cannot be 5: it must be a text"),
        ("[sync.a]\ntopic = 'a b'\nsink = 'redis'", "is not legal"),
        ("[sync.a]\ntopic = 't'\nsink = 'redis'\nbatch_records = 0", "it must be at least 1"),
    ],
)
def test_mistakes_in_the_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(text)
    with pytest.raises(Exception, match=said):
        load_settings(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="is not there: write one"):
        load_settings(tmp_path / "none.toml")
    (tmp_path / "headrace.toml").write_text(GOOD)
    with pytest.raises(StackError, match=r"no section \[sync.cash\], only cache, table"):
        load_settings(tmp_path / "headrace.toml", ["cash"])


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("sink = 'reddis'", "choose among delta, duckdb"),
        ("sink = 'redis'\nurl = 'redis://x'", "sync.a.prefix cannot be None: sink 'redis' needs it"),
        ("sink = 'redis'\nurl = 'redis://x'\nprefix = 'p'\nttl = 5", "cannot be 'ttl': sink 'redis' takes form, mode"),
        ("sink = 'redis'\nurl = 'http://x'\nprefix = 'p'", "write redis://HOST"),
        ("sink = 'redis'\nurl = 'redis://x'\nprefix = 'p'\nform = 'xml'", "choose 'hash' or 'json'"),
        ("sink = 'postgres'\nurl = 'mysql://u:secret@h/d'\ntable = 't'", "write postgresql://"),
        ("sink = 'mariadb'\nurl = 'mariadb://h'\ntable = 't'", "write mariadb://"),
        ("sink = 'opensearch'\nurl = 'http://x'\nindex = 'Big'", "use small letters"),
        ("sink = 'webhook'\nurl = 'ftp://x'", "write http://"),
        ("sink = 'sqlite'\npath = 'x'\ntable = 't'\nnew_columns = 'drop'", "choose 'add', 'refuse' or 'ignore'"),
    ],
)
def test_mistakes_in_a_sinks_options(tmp_path: Path, lines: str, said: str) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(f"[sync.a]\ntopic = 't'\n{lines}\n")
    with pytest.raises(InvalidConnectSetting, match=said) as caught:
        make_sink(load_settings(file)[0], "127.0.0.1:1")
    assert "secret" not in str(caught.value)


def test_every_sink_can_be_found() -> None:
    import importlib

    for where in SINKS.values():
        module, _, function = where.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_places_survive_being_stored() -> None:
    place = Place("t", {1: 5, 0: 7})
    assert Place.from_json(place.to_json()) == place


def test_texts_of_keys() -> None:
    assert key_text({"id": 5}) == "5"
    assert key_text({"id": "5"}) == "5"
    assert key_text({"b": "x", "a": 1}) == key_text({"a": 1, "b": "x"}) == '[1,"x"]'


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"sink": "redis", "url": "redis://me:hunter2@cache:6379/0?a=hunter2", "prefix": "o:"}, "o:* in cache:6379/0"),
        ({"sink": "postgres", "url": "postgresql://me:hun%40ter2@db/shop", "table": "orders"}, "orders in db/shop"),
        ({"sink": "sqlite", "path": "data/a.sqlite", "table": "orders"}, "orders in data/a.sqlite"),
        ({"sink": "parquet", "path": "/lake/orders"}, "/lake/orders"),
        ({"sink": "opensearch", "url": "https://search:9200", "index": "orders"}, "orders in search:9200"),
        ({"sink": "webhook", "url": "https://hooks.example/services/hunter2"}, "hooks.example"),
    ],
)  # fmt: skip
def test_a_target_is_shown_without_its_secrets(options: dict[str, str], shown: str) -> None:
    settings = from_section("a", {"topic": "orders", **options})
    assert settings.target == shown
