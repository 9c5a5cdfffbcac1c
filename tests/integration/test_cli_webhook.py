"""`headrace webhook`: endpoints registered, tried, paused, looked at, sent to again; bad input is one sentence."""

import contextlib
import json
from functools import partial
from pathlib import Path

import pytest

from headrace import Broker
from headrace.testing.contracts.gateway import read_topic
from tests.integration.cli_runs import run_cli
from tests.integration.gateways.running import wait_for
from tests.integration.gateways.test_webhook_sender import Receiver, sending, write

FAST = ("--first-pause", "20 ms", "--longest-pause", "50 ms", "--give-up-after", "200 ms", "--from", "start")


@pytest.fixture(scope="module")
def bootstrap():
    with Broker(durability="os") as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def headrace(bootstrap, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return partial(run_cli, "webhook", bootstrap=bootstrap)


def test_from_a_secret_to_a_resend(headrace, bootstrap):
    write(bootstrap, "cli-orders", [(None, b"%d" % n) for n in range(4)])
    made = run_cli("webhook", "secret", "shop")
    assert made.out.startswith("whsec_")
    assert Path("secrets/shop").stat().st_mode & 0o077 == 0
    assert run_cli("webhook", "secret", "shop").err.count("give --add") == 1
    assert run_cli("webhook", "secret", "shop", "--add").code == 0
    assert len(Path("secrets/shop").read_text().split()) == 2
    with (
        Receiver() as receiver,
        sending(bootstrap, "cli", endpoints_topic="webhooks", log_topic="webhooks-log", secrets="secrets"),
    ):
        receiver.answer = lambda body: (500 if body == b"2" else 200, {})
        # A URL may be a secret: from the standard input nobody sees it among the arguments.
        added = headrace("add", "shop", "--topic", "cli-orders", "--url", "-", "--secret-name", "shop", *FAST,
                         stdin=f"{receiver.url}?token=hush\n")  # fmt: skip
        assert added.out == "registered shop\n", added
        assert "give --replace" in headrace("add", "shop", "--topic", "t", "--url", receiver.url, "--unsigned").err
        wait_for(lambda: b"3" in receiver.bodies, "all came or were given up")
        listed = headrace("list", "--json").json
        assert listed["endpoints"][0] | {"id": "shop", "host": "127.0.0.1", "paused": False} == listed["endpoints"][0]
        assert "hush" not in json.dumps(listed) + headrace("list").out
        wait_for(lambda: headrace("log", "shop", "--json").json[-1]["offset"] == 3, "it is logged")
        assert [each["outcome"] for each in headrace("log", "--failed", "--json").json][-1] == "given-up"
        assert "127.0.0.1 answered with status 500" in headrace("log").out.replace("\n", " ")
        # Tested, also while it is paused.
        assert headrace("pause", "shop").out == "paused shop\n"
        tested = headrace("test", "shop")
        assert (tested.code, "it was taken: status 200" in tested.out) == (0, True), tested
        receiver.answer = lambda _: (403, {})
        refused = headrace("test", "shop", "--json")
        assert (refused.code, refused.json["status"]) == (1, 403)
        receiver.answer = lambda _: (200, {})
        assert headrace("resume", "shop").out == "resumed shop\n"
        # Again: one, a range, and what was given up, which is no dead letter any more then.
        before = len(receiver.got)
        assert "1 record is" in headrace("resend", "shop", "--offset", "0").out
        wait_for(lambda: len(receiver.got) == before + 1, "it comes again")
        assert receiver.bodies[-1] == b"0"
        ids = {headers["webhook-id"] for headers, body in receiver.got if body == b"0"}
        assert len(ids) == 1
        assert "2 records are" in headrace("resend", "shop", "--offset", "0", "--to", "1").out
        wait_for(lambda: receiver.bodies[-2:] == [b"0", b"1"], "they come again")
        assert "1 record is" in headrace("resend", "shop", "--dead-letters").out
        wait_for(lambda: receiver.bodies[-1] == b"2", "it comes after all")
        wait_for(
            lambda: "0 records are" in headrace("resend", "shop", "--dead-letters").out, "it is no letter any more"
        )
        wait_for(lambda: headrace("list", "--json").json["requests"] == [], "what was wanted is done")
        assert headrace("remove", "shop").out == "removed shop\n"
        wait_for(lambda: "no endpoints yet" in headrace("list").out, "it is gone")
    assert any(json.loads(value).get("resent") for _, value in read_topic(bootstrap, "webhooks-log"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("add", "a b", "--topic", "t", "--url", "http://x/", "--unsigned"), "cannot be an endpoint's id"),
        (("add", "a", "--topic", "t", "--url", "http://x/"), "has no secret_name"),
        (("add", "a", "--topic", "t", "--url", "http://0x7f.1/", "--unsigned"), "four decimal numbers"),
        (("add", "a", "--topic", "t", "--url", "http://x/", "--unsigned", "--filter", "a ="), "filter"),
        (("add", "a", "--topic", "t", "--url", "http://x/", "--unsigned", "--header", "X"), "NAME=VALUE"),
        (("remove", "nobody"), "there is no endpoint 'nobody'"),
        (("resend", "nobody", "--offset", "1"), "there is no endpoint 'nobody'"),
        (("resend", "nobody"), "give --offset"),
        (("test", "nobody", "--timeout", "0.3"), "no gateway sent a test"),
    ],
)
def test_bad_input_is_one_sentence(headrace, arguments, sentence):
    run = headrace(*arguments)
    assert run.code in (1, 2)
    assert sentence in run.err.replace("\n", " ")
    assert "Traceback" not in run.err
    with contextlib.suppress(ValueError):
        assert headrace("list", "--json").json["endpoints"] == []
