"""`headrace pattern list|add|pause|resume|remove`: patterns of a topic."""

import json
from functools import partial

import pytest

from headrace import Broker
from tests.integration.cli_runs import run_cli

SMALL = 'Pattern.begin("small", "amount < 10").followed_by("big", "amount > 1000").within("1 minute")'


@pytest.fixture(scope="module")
def broker():
    with Broker(durability="os") as broker:
        yield broker


@pytest.fixture
def headrace(broker):
    return partial(run_cli, "pattern", bootstrap=broker.bootstrap_servers)


def listed(headrace, topic):
    return {one["name"]: (one["state"], one["pattern"]) for one in headrace("list", topic, "--json").json}


def test_patterns_are_added_paused_resumed_and_removed(headrace):
    assert headrace("add", "rules", "small then big", SMALL).out == "added small then big to rules\n"
    assert headrace("add", "rules", "later", SMALL, "--paused").code == 0
    assert listed(headrace, "rules") == {"small then big": ("running", SMALL), "later": ("paused", SMALL)}
    again = headrace("add", "rules", "later", SMALL)
    assert (again.code, again.err) == (
        1,
        "headrace: rules has a pattern 'later' already: give --replace, or another name\n",
    )
    other = SMALL.replace("1000", "2000")
    assert headrace("add", "rules", "later", other, "--replace").code == 0
    assert listed(headrace, "rules")["later"] == ("running", other)
    assert headrace("pause", "rules", "later").out == "paused later\n"
    assert listed(headrace, "rules")["later"] == ("paused", other)
    assert headrace("resume", "rules", "later").code == 0
    assert headrace("remove", "rules", "small then big").code == 0
    assert listed(headrace, "rules") == {"later": ("running", other)}
    assert "later" in headrace("list", "rules").out


def test_what_cannot_run_is_refused_and_what_others_wrote_is_listed_with_its_problem(headrace, broker):
    run = headrace("add", "more", "forever", SMALL.replace('.within("1 minute")', ""))
    assert run.code == 1
    assert "for ever" in run.err
    assert "amount > 1000\n  ^^^" in run.err
    assert "add `within`, of the whole" in headrace("add", "more", "strict", 'Pattern.begin("a").next("b")').err
    assert "unknown column 'amount'" in headrace("add", "more", "x", SMALL, "--columns", "card").err
    assert "cannot be a pattern's name" in headrace("add", "more", " ", SMALL).err
    assert headrace("add", "more", "good", SMALL).code == 0
    assert "did you mean 'good'?" in headrace("pause", "more", "goood").err
    bad = {"key": "bad", "value": {"pattern": "Pattern.begin(", "state": "running"}}
    worse = {"key": "worse", "value": "no JSON"}
    lines = "\n".join(map(json.dumps, [bad, worse]))
    run_cli("produce", "more", "--json-lines", stdin=lines, bootstrap=broker.bootstrap_servers)
    run = headrace("list", "more")
    assert run.code == 1
    assert "bad: this is not a pattern in Python" in run.err
    assert "worse: the record of the pattern 'worse' cannot be read" in run.err
    assert "cannot be read" in headrace("pause", "more", "worse").err
    assert headrace("remove", "more", "worse").code == 0
    assert set(json.loads(headrace("list", "more", "--json").out)[0]) == {
        "name", "state", "pattern", "problem", "version", "at_ms",
    }  # fmt: skip


def test_no_broker_and_no_topic(headrace):
    assert "does not exist" in headrace("list", "nothere").err
    run = run_cli("pattern", "list", "rules", bootstrap="127.0.0.1:1")
    assert "cannot reach a broker" in run.err
