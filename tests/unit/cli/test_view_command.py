"""`headrace view`, without Spark and without a broker."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.errors import HeadraceError
from headrace.pipelines.views import sqlite
from headrace.testing.contracts.view import batch, row

FILE = """
from headrace.pipelines.views import sqlite, topic, view

@view(key=["user", "post"], inputs={"posts": topic("posts")}, store=sqlite("DATABASE"))
def feed(posts):
    return posts

@view(key="user", inputs={"posts": topic("posts")}, store=sqlite("DATABASE"))
def later(posts):
    return posts
"""
NOWHERE = ["--bootstrap", "127.0.0.1:1"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    database = tmp_path / "views.db"
    store = sqlite(database)
    store.write(batch(store, 0, [row(7, "a", likes=3)]))
    found = tmp_path / "some_views.py"
    found.write_text(FILE.replace("DATABASE", str(database)))
    return found


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["view", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_views_of_a_file_are_listed(file: Path) -> None:
    found = json.loads(run("list", str(file), "--json"))
    assert [(one["view"], one["key"], one["sources"]) for one in found] == [
        ("feed", ["user", "post"], ["posts"]), ("later", ["user"], ["posts"]),
    ]  # fmt: skip
    assert "SQLite" in run("list", str(file))


def test_status_tells_how_fresh_views_are_without_their_broker(file: Path) -> None:
    feed, later = json.loads(run("status", str(file), *NOWHERE, "--json"))
    assert (feed["rows"], feed["batch"], feed["offsets"]) == (1, 0, {"posts-0": 1})
    assert "never been written" in later["problem"]
    assert "never been written" in run("status", str(file), *NOWHERE)


def test_a_row_is_printed_with_its_freshness(file: Path) -> None:
    found = json.loads(run("get", "feed", "7", "a", "--file", str(file), "--json"))
    assert (found["row"]["likes"], found["freshness"]["batch"]) == (3, 0)
    assert "as of batch 0" in run("get", "feed", "7", "a", "--file", str(file))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["get", "feed", "7", "zzz"], "view 'feed' has no row with the key 7 zzz"),
        (["get", "feed", "7"], "the key has 2 columns, and 1 in the path"),
        (["get", "other", "7"], "declares no view 'other': it has feed, later"),
        (["get", "later", "7"], "view 'later' has never been written"),
    ],
)
def test_what_cannot_be_answered_is_a_sentence(file: Path, arguments: list[str], sentence: str) -> None:
    with pytest.raises(HeadraceError) as refusal:
        CliRunner().invoke(cli, ["view", *arguments, "--file", str(file)], catch_exceptions=False)
    assert sentence in str(refusal.value)


def test_a_file_without_views_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(
        "from headrace.pipelines import job, topic\n"
        "@job(inputs={'a': topic('a')}, outputs=topic('b'))\n"
        "def copy(a):\n    return a\n"
    )
    with pytest.raises(HeadraceError, match=r"declares no view: put @view"):
        CliRunner().invoke(cli, ["view", "list", str(file)], catch_exceptions=False)
