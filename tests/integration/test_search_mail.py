"""Hits by mail, to a real SMTP server: one digest an interval, refusals, a server that is away, and kill -9."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer
from headrace.errors import HeadraceError
from headrace.searches.hits import Piece, SearchHit, write_hit
from headrace.searches.mail import MailRunner
from headrace.searches.mail_settings import from_section
from headrace.stores.compacted_topic import CompactedTopic
from tests.integration.waiting import wait_until
from tests.servers.mailbox import PASSWORD, Mailbox, free_port, mail_server


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


def hit(owner: str, offset: int, query: str = "bikes") -> SearchHit:
    pieces = (Piece("title", "a racing bike", ((2, 8), (9, 13))),)
    return SearchHit(query, 1, owner, (), 1.0, pieces, "listings", 0, offset, 1_790_000_000_000, str(offset), 5)


def write(cluster: Cluster, topic: str, *hits: SearchHit) -> None:
    ensure_topic(cluster, topic, partitions=2)
    writer = Writer(cluster, topic)
    for each in hits:
        key, value, _ = write_hit(each)
        writer.add(NewRecord(key, value, int(time.time() * 1000), partition=each.offset % 2))
    writer.flush()


@contextmanager
def running(
    cluster: Cluster, name: str, port: int, folder: Path, raised: list[HeadraceError] | None = None, **section: Any
) -> Iterator[MailRunner]:
    given = {
        "hits": f"{name}.hits", "server": "127.0.0.1", "port": port, "security": "none", "sender": "s@example.org",
        "gather": "300 ms", "from": "start", "outbox": f"sqlite:///{folder}/mail.db",
        "addresses": {"ann": "ann@example.org", "bob": "bob@example.org", "cid": "gone@example.org"},
    }  # fmt: skip
    runner = MailRunner(from_section(name, {**given, **section}), parse_bootstrap(str(cluster)))

    def run() -> None:
        try:
            runner.run()
        except HeadraceError as error:
            if raised is None:
                raise
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield runner
    finally:
        runner.stopping.set()
        thread.join()


def test_each_owner_gets_one_digest_an_interval(cluster: Cluster, tmp_path: Path) -> None:
    mailbox = Mailbox()
    mailbox.answers = ["451 later, please"]
    CompactedTopic(cluster, "addresses").write("dan", b"dan@example.org")
    hits = [*(hit("ann", number) for number in range(5)), hit("bob", 5), hit("cid", 6), hit("eve", 7), hit("dan", 8)]
    write(cluster, "listings.hits", *hits)
    with mail_server(mailbox) as port:
        with running(cluster, "listings", port, tmp_path, most_hits=3, addresses_topic="addresses") as runner:
            wait_until(lambda: len(mailbox.mails) == 3, "three owners have a mailbox")
            wait_until(lambda: runner.progress.given_up == 1, "one has none any more")
            write(cluster, "listings.hits", *(hit("ann", number) for number in range(10, 14)))
            wait_until(lambda: runner.progress.hits == 12, "they are gathered")
            assert runner.progress.without_address == 1
        assert len(mailbox.mails) == 3, "the hour is not over"
        assert (tmp_path / "mail.db").stat().st_mode & 0o077 == 0, "nobody else reads it"
        to = {rcpt[0]: mail for rcpt, mail in mailbox.mails}
        assert set(to) == {"ann@example.org", "bob@example.org", "dan@example.org"}
        assert to["ann@example.org"]["Subject"] == "5 new hits: bikes"
        plain = to["ann@example.org"].get_body(("plain",)).get_content()
        assert plain.count("a [racing] [bike]") == 3
        assert "and 2 more that are not shown" in plain
        mailbox.mails.clear()
        # The interval is shorter now: what was gathered before is told, and nothing twice.
        with running(cluster, "listings", port, tmp_path, every="1 ms", addresses_topic="addresses"):
            wait_until(lambda: len(mailbox.mails) == 1, "what waited over the restart")
        ((_, mail),) = mailbox.mails
        assert mail["Subject"] == "4 new hits: bikes"


def test_addresses_in_several_partitions_are_refused_before_a_hit_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    ensure_topic(cluster, "spread", partitions=2)
    write(cluster, "spread-mail.hits", hit("dan", 0))
    with mail_server(Mailbox()) as port:
        raised: list[HeadraceError] = []
        with running(cluster, "spread-mail", port, tmp_path, raised, addresses_topic="spread") as runner:
            wait_until(lambda: bool(raised), "it is refused")
            assert "topic spread has several partitions" in str(raised[0])
            assert runner.progress.without_address == 0


def test_hits_of_another_topic_under_one_name_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    write(cluster, "first.hits", hit("ann", 0))
    write(cluster, "second.hits", hit("ann", 1))
    with mail_server(Mailbox()) as port:
        with running(cluster, "moved", port, tmp_path, hits="first.hits", every="1 hour") as runner:
            wait_until(lambda: runner.progress.hits == 1, "it has come so far")
        raised: list[HeadraceError] = []
        with running(cluster, "moved", port, tmp_path, raised, hits="second.hits", every="1 hour"):
            wait_until(lambda: bool(raised), "it is refused")
    assert "gathers the hits of topic first.hits: give [mail.NAME] another name" in str(raised[0])


def test_a_server_that_is_away_is_waited_for_and_the_password_is_nowhere(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    mailbox, port = Mailbox(), free_port()
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD + "\n")
    secret.chmod(0o600)
    write(cluster, "away.hits", hit("ann", 1))
    login = {"user": "headrace", "password_file": str(secret)}
    with running(cluster, "away", port, tmp_path, **login) as runner:
        wait_until(lambda: "cannot be reached" in runner.postman.problem, "nobody listens")
        with mail_server(mailbox, port, authenticator=mailbox.login, auth_require_tls=False):
            wait_until(lambda: len(mailbox.mails) == 1, "it is back")
        assert mailbox.logins == [PASSWORD.encode()]
        assert PASSWORD not in repr(runner)
    assert PASSWORD not in caplog.text + "".join(capfd.readouterr())
    write(cluster, "wrong.hits", hit("ann", 1))
    with (
        mail_server(mailbox, authenticator=mailbox.login, auth_require_tls=False) as port,
        running(cluster, "wrong", port, tmp_path, user="headrace", password="wrong") as runner,
    ):
        wait_until(lambda: "does not let user headrace in (status 535)" in runner.postman.problem, "it is told")


def test_after_kill_9_no_mail_is_missing_and_one_in_doubt_has_the_same_id(cluster: Cluster, tmp_path: Path) -> None:
    """Killed before the server's answer arrives: SMTP cannot tell, so the mail is sent again under the same id."""
    mailbox = Mailbox()
    process: list[subprocess.Popen[bytes]] = []

    def kill() -> None:
        if process:
            os.kill(process.pop().pid, signal.SIGKILL)

    with mail_server(mailbox) as port:
        command = [sys.executable, "-m", "tests.integration.mail_worker", str(cluster), str(port), f"{tmp_path}/m.db"]
        mailbox.before_answer = kill
        for turn in range(3):
            write(cluster, "kill.hits", hit("ann", 2 * turn), hit("bob", 2 * turn + 1))
            worker = subprocess.Popen(command)
            process.append(worker)
            assert worker.wait(90) == -signal.SIGKILL
        mailbox.before_answer = None
        write(cluster, "kill.hits", hit("ann", 100))
        worker = subprocess.Popen(command)
        try:
            wait_until(lambda: any("offset 100" in body(mail) for _, mail in mailbox.mails), "it goes on")
            wait_until(lambda: len(told(mailbox)) == 7, "every hit is told")
        finally:
            worker.terminate()
            worker.wait()
    by_id: dict[str, set[str]] = {}
    for _, mail in mailbox.mails:
        by_id.setdefault(mail["Message-ID"], set()).add(body(mail))
    assert len(mailbox.mails) > len(by_id), "what was in doubt came twice"
    assert len(mailbox.mails) <= len(by_id) + 3 * 4, "and nothing else"
    assert all(len(texts) == 1 for texts in by_id.values()), "the same words under the same id"
    offsets = [line for texts in by_id.values() for text in texts for line in text.splitlines() if "offset" in line]
    assert len(offsets) == len(set(offsets)) == 7, "each hit in one digest"


def test_a_mail_that_is_under_way_when_it_is_told_to_end_is_not_sent_again(cluster: Cluster, tmp_path: Path) -> None:
    mailbox, is_answered = Mailbox(), threading.Event()
    mailbox.before_answer = lambda: is_answered.wait(20)
    write(cluster, "ended.hits", hit("ann", 1))
    with mail_server(mailbox) as port:
        with running(cluster, "ended", port, tmp_path) as runner:
            wait_until(lambda: len(mailbox.mails) == 1, "the server has the mail, and has not said so")
            runner.stopping.set()
            time.sleep(0.7)  # the sender looks every half second whether it is to end
            is_answered.set()
        with running(cluster, "ended", port, tmp_path):
            write(cluster, "ended.hits", hit("bob", 2))
            wait_until(lambda: len(mailbox.mails) >= 2, "mails are sent again")
    assert sorted(to for (to,), _ in mailbox.mails) == ["ann@example.org", "bob@example.org"]


def body(mail: Any) -> str:
    return str(mail.get_body(("plain",)).get_content())


def told(mailbox: Mailbox) -> set[str]:
    return {line for _, mail in list(mailbox.mails) for line in body(mail).splitlines() if "offset" in line}


GOOD = {"hits": "h", "server": "smtp.example.org", "sender": "s@example.org", "addresses": {"ann": "ann@example.org"}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"hits": ""}, "has no hits"),
    ({"addresses": {}}, "has no addresses"),
    ({"addresses": {"ann": "ann"}}, r"addresses.ann is 'ann', which is no address"),
    ({"sender": "me"}, "sender is 'me'"),
    ({"every": "soon"}, "every is 'soon'"),
    ({"security": "ssl"}, "choose among starttls, tls, none"),
    ({"user": "x"}, "no password"),
    ({"user": "x", "password": "y", "security": "none"}, "in the clear"),
    ({"outbox": "mail.db"}, "outbox is none"),
]


@pytest.mark.parametrize(("section", "sentence"), BAD)
def test_a_section_that_cannot_be(section: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HeadraceError, match=sentence):
        from_section("listings", {**GOOD, **section})
