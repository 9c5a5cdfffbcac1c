"""`headrace search mail` as a process: nobody's mail waits for another's, or comes twice, whatever its topics hold."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import add_partitions, ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.searches.hits import Piece, SearchHit, write_hit
from headrace.status import SEARCHES, read_statuses
from tests.integration.cli_runs import COMMAND
from tests.integration.waiting import wait_until
from tests.servers.mailbox import Mailbox, free_port, mail_server

GRIN = "\U0001f600"
KILLS = int(os.environ.get("HEADRACE_KILLS", "3"))
SEED = int(os.environ.get("HEADRACE_SEED", str(random.randrange(2**31))))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as made:
        yield made


def hit(owner: str, offset: int, query: str = "bikes") -> SearchHit:
    pieces = (Piece("title", "a racing bike", ((2, 8), (9, 13))),)
    return SearchHit(query, 1, owner, (), 1.0, pieces, "listings", 0, offset, 1_790_000_000_000, str(offset), 5)


def large_hit(owner: str, offset: int) -> SearchHit:
    marks = tuple((at, at + 1) for at in range(0, 400, 2))
    pieces = (Piece(GRIN * 300, GRIN * 500, marks),) * 3
    return SearchHit(GRIN * 200, 1, owner, (GRIN * 250,) * 20, 1.0, pieces, "listings", 0, offset, 1, GRIN * 300, 5)


def write(cluster: Cluster, topic: str, *hits: SearchHit, partition: int = 0) -> None:
    ensure_topic(cluster, topic)
    writer = Writer(cluster, topic)
    for each in hits:
        key, value, _ = write_hit(each)
        writer.add(NewRecord(key, value, int(time.time() * 1000), partition=partition))
    writer.flush()


class Command:
    """The command at work for a section."""

    def __init__(self, cluster: Cluster, name: str, port: int, folder: Path, **section: Any) -> None:
        lines = {
            "hits": f"{name}.hits", "server": "127.0.0.1", "port": port, "security": "none",
            "sender": "s@example.org", "gather": "100 ms", "every": "1 ms", "most_a_day": 1000, "from": "start",
            "outbox": f"sqlite:///{folder}/{name}.db", **section,
        }  # fmt: skip
        addresses = ", ".join(f'{owner} = "{owner}@example.org"' for owner in ("ann", "bob", "full"))
        text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in lines.items())
        (folder / "headrace.toml").write_text(f"[mail.{name}]\n{text}\naddresses = {{ {addresses} }}\n")
        config = ["--config", str(folder / "headrace.toml"), "--bootstrap", str(cluster)]
        self.command = [*COMMAND, "search", "mail", name, *config]

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(60)

    def say(self, *options: str) -> Any:
        return json.loads(subprocess.run([*self.command, *options, "--json"], capture_output=True, check=True).stdout)


class Refusing(Mailbox):
    """It has no room for one of them; for now."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0
        self.has_room = False
        self.code = 452

    async def handle_RCPT(self, *given: Any) -> str:  # noqa: N802 - the server's name for it
        if given[3].startswith("full") and not self.has_room:
            self.refused += 1
            return f"{self.code} no room"
        return await super().handle_RCPT(*given)

    @property
    def to(self) -> list[str]:
        return [rcpt[0].partition("@")[0] for rcpt, _ in self.mails]


def done(outbox: Path) -> int:
    with closing(sqlite3.connect(outbox)) as db:
        ((count,),) = db.execute("SELECT count(*) FROM headrace_outbox WHERE state = 'done'")
        return int(count)


def has(mailbox: Mailbox, count: int) -> Callable[[], bool]:
    return lambda: len(mailbox.mails) >= count


def test_one_whose_mailbox_is_full_holds_up_nobody(cluster: Cluster, tmp_path: Path) -> None:
    mailbox = Refusing()
    with mail_server(mailbox) as port:
        command = Command(cluster, "full", port, tmp_path)
        write(cluster, "full.hits", hit("full", 0), hit("ann", 1))
        with command.running():
            wait_until(lambda: mailbox.refused >= 2, "it is tried again and again")
            wait_until(has(mailbox, 1), "the other one has hers")
            for number in range(3):
                write(cluster, "full.hits", hit("ann", 10 + number))
                wait_until(has(mailbox, 2 + number), "and the next, too", patience_s=20)
            assert mailbox.to == ["ann"] * 4
            mailbox.code = 550
            wait_until(lambda: len(command.say("--failed")) == 1, "then it is given up")
            (lost,) = command.say("--retry-failed")
            assert (lost["owner"], "status 550" in lost["error"]) == ("full", True)
            mailbox.has_room = True
            wait_until(lambda: "full" in mailbox.to, "it is sent by the one that runs")
            assert command.say("--failed") == []
            where = TopicPartition("full.digests", 0)

            def is_tidied() -> bool:
                held = bounds(cluster, [where], committed=True)[where]
                return 0 < held.end - 1 <= held.start  # behind the last digest is the end of its transaction

            wait_until(is_tidied, "what is in the outbox is not kept in the topic for ever")
        assert mailbox.to.count("ann") == 4


def test_what_anybody_may_write_stops_nobodys_mail(cluster: Cluster, tmp_path: Path) -> None:
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        command = Command(cluster, "bad", port, tmp_path, most_hits=100, gather="1 second")
        ensure_topic(cluster, "bad.digests")
        ensure_topic(cluster, "bad.hits")
        for topic in ("bad.digests", "bad.hits"):
            writer = Writer(cluster, topic)
            for value in (b"[" * 100_000, b"\xff", b"{}", b'{"owner": [], "number": 1}', b"null", None):
                writer.add(NewRecord(b"ann", value, int(time.time() * 1000), partition=0))
            digest = {"owner": [], "number": 1, "count": {}, "since_ms": "x", "made_ms": None, "hits": []}
            writer.add(NewRecord(b"ann", json.dumps(digest).encode(), int(time.time() * 1000), partition=0))
            writer.flush()
        write(cluster, "bad.hits", *(large_hit("bob", number) for number in range(100)), hit("ann", 200))
        with command.running() as process:
            wait_until(has(mailbox, 2), "both have their mail")
            assert process.poll() is None
            subjects = {rcpt[0]: mail["Subject"] for rcpt, mail in mailbox.mails}
            assert subjects["bob@example.org"].startswith("100 new hits")
            assert subjects["ann@example.org"] == "1 new hit: bikes"
            # Partitions that are added while it runs are read, and from their first hit on.
            add_partitions(cluster, "bad.hits", 2)
            cluster.topic("bad.hits", refresh=True)
            write(cluster, "bad.hits", hit("ann", 300), partition=1)
            wait_until(has(mailbox, 3), "hits of new partitions are mailed as well")


def test_of_two_one_sends_and_the_other_takes_over(cluster: Cluster, tmp_path: Path) -> None:
    mailbox, port = Mailbox(), free_port()
    command = Command(cluster, "two", port, tmp_path)
    write(cluster, "two.hits", hit("ann", 0), hit("bob", 1))

    def waiting_for() -> tuple[str, str]:
        status = read_statuses(cluster, SEARCHES).get("mail.two")
        return ("", "") if status is None else (status.text("waiting"), status.text("problem"))

    with command.running() as first:
        wait_until(lambda: "cannot be reached" in waiting_for()[1], "it has mails under way, and nobody takes them")
        with command.running() as second:
            wait_until(lambda: "which sends from this outbox" in waiting_for()[0], "the second leaves them to it")
            with mail_server(mailbox, port):
                wait_until(lambda: done(tmp_path / "two.db") == 2, "they are sent, and that is remembered")
                assert first.poll() is None
                os.kill(first.pid, signal.SIGKILL)
                write(cluster, "two.hits", hit("ann", 2))
                wait_until(has(mailbox, 3), "the second sends from now on")
                second.terminate()
                assert second.wait(60) == 0
    ids = [mail["Message-ID"] for _, mail in mailbox.mails]
    assert len(ids) == len(set(ids)) == 3, "each once"


def test_killed_at_any_instant_each_hit_is_told_once(cluster: Cluster, tmp_path: Path) -> None:
    """While it gathers, makes digests, takes them into the outbox, sends them: what came twice has one Message-ID."""
    print(f"HEADRACE_SEED={SEED}")
    chosen, mailbox = random.Random(SEED), Mailbox()
    with mail_server(mailbox) as port:
        command = Command(cluster, "killed", port, tmp_path, most_hits=100)
        offset = 0
        for _ in range(KILLS):
            known = len(mailbox.mails)
            with command.running() as process:
                for _ in range(chosen.randrange(1, 12)):
                    write(cluster, "killed.hits", *(hit(chosen.choice(["ann", "bob"]), offset + n) for n in range(3)))
                    offset += 3
                wait_until(has(mailbox, known + 1), "it is at work")
                write(cluster, "killed.hits", *(hit(chosen.choice(["ann", "bob"]), offset + n) for n in range(3)))
                offset += 3
                time.sleep(chosen.random() * 0.6)
                process.kill()
        with command.running():
            wait_until(lambda: len(told(mailbox)) == offset, "every hit is told")
    by_id: dict[str, str] = {}
    for _, mail in mailbox.mails:
        text = str(mail.get_body(("plain",)).get_content())
        assert by_id.setdefault(mail["Message-ID"], text) == text, "the same words under the same id"
    lines = [line for text in by_id.values() for line in text.splitlines() if " offset " in line]
    assert len(lines) == len(set(lines)) == offset, "each hit is in one mail"


def told(mailbox: Mailbox) -> set[str]:
    texts = [str(mail.get_body(("plain",)).get_content()) for _, mail in list(mailbox.mails)]
    return {line for text in texts for line in text.splitlines() if " offset " in line}
