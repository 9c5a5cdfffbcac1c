"""From a section `[cdc.NAME]` to a capture's settings, and what is said to mistakes."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connect.capture.settings import SECTION, from_section
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sections import InvalidSettingsFile
from headrace.stack.document import read_sections
from headrace.stack.errors import StackError
from headrace.status import FAILED, RUNNING, Status

URL = "postgresql://me:secret@127.0.0.1/shop"


def test_what_is_not_said_has_a_default_of_the_captures_own() -> None:
    found = from_section("shop-1", {"url": URL, "tables": ["public.orders"], "snapshot": "never"})
    assert (found.source.slot, found.source.snapshot, found.names.prefix) == ("headrace_shop_1", "never", "shop-1")
    assert found.filters.captures("public.orders")
    assert not found.filters.captures("public.customers")
    assert found.kind.connector == "postgresql"
    assert "secret" not in repr(found)


def test_each_database_has_its_kind() -> None:
    assert from_section("a", {"url": URL, "method": "triggers"}).source.capture == "headrace_a"
    assert from_section("a", {"url": "sqlite:///data/shop.db"}).source.path == Path("data/shop.db")
    assert from_section("a", {"url": "sqlite:////data/shop.db"}).source.path == Path("/data/shop.db")
    assert from_section("a", {"url": "mariadb://me@127.0.0.1/shop", "server_id": 7}).source.server_id == 7


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "section [cdc.a] has no url"),
        ({"url": URL, "tabels": []}, "[cdc.a] has no key 'tabels': did you mean 'tables'?"),
        ({"url": URL, "tables": "public.orders"}, "cdc.a.tables cannot be 'public.orders': it must be a list"),
        ({"url": URL, "snapshot": "sometimes"}, "snapshot cannot be 'sometimes': choose among initial"),
        ({"url": URL, "method": "guess"}, "method cannot be 'guess': choose log or triggers"),
        ({"url": "oracle://me:secret@x"}, "url cannot be 'oracle:…': write postgresql://"),
        ({"url": URL, "types": {"decimal": "roman"}}, "decimal cannot be 'roman'"),
        ({"url": "sqlite://relative.db"}, "write sqlite:///relative.db or"),
    ],
)
def test_mistakes_are_told_in_one_sentence(section: dict[str, object], said: str) -> None:
    with pytest.raises((InvalidConnectSetting, InvalidSettingsFile)) as raised:
        from_section("a", section)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_is_read_whole_or_by_name(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(f'[cdc.one]\nurl = "{URL}"\n[cdc.two]\nurl = "sqlite:///x.db"\n')
    assert list(read_sections(file, SECTION)) == ["one", "two"]
    assert list(read_sections(file, SECTION, ("two",))) == ["two"]
    with pytest.raises(StackError, match=r"no section \[cdc.three\], only one, two"):
        read_sections(file, SECTION, ("three",))
    file.write_text("[cdc.one\n")
    with pytest.raises(StackError, match="is not valid TOML"):
        read_sections(file, SECTION)
    with pytest.raises(StackError, match="is not there"):
        read_sections(tmp_path / "none.toml", SECTION)


def test_who_is_silent_is_not_believed_to_run() -> None:
    told = replace(Status.of("shop", "postgresql", RUNNING, records=5, slot="s", snapshot_done=3), at_ms=1000)
    again = Status.from_json("shop", told.as_json(), 1000)
    assert again is not None
    assert again == told
    assert again.snapshot == "3 rows"
    assert again.seen_at(50_000).state == RUNNING
    assert again.seen_at(200_000).state == "silent"
    before = b'{"slot": "s", "name": "shop", "kind": "postgresql", "state": "running", "records": 5, "per_s": 0.0, '
    before += b'"problem": "", "position": {"lsn": "0/1"}, "updated_ms": 1000, "waiting": ""}'
    kept = Status.from_json("shop", before, 1000)
    assert kept is not None, "as versions before this one wrote it"
    assert (kept.state, kept.number("records"), kept.facts["position"]) == (RUNNING, 5, {"lsn": "0/1"})
    failed = replace(Status.of("shop", "postgresql", FAILED), at_ms=1000)
    assert failed.seen_at(200_000).state == FAILED


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@db:5433/shop?sslmode=require", "db:5433/shop"),
        ("mysql://me:hunter2@db/shop", "db/shop"),
        ("sqlite:///data/shop.db", "data/shop.db"),
        ("sqlite:////data/shop.db", "/data/shop.db"),
    ],
)
def test_a_database_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert from_section("a", {"url": url}).database == shown
