"""Mails as side effects, to a real SMTP server: over TLS of each kind, with a login, refused, away, and kill -9."""

import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.pipelines.sink import Refused, email
from headrace.pipelines.sink.effects.delivery import Pace, deliver
from headrace.pipelines.sink.effects.ledger import open_ledger
from headrace.searches.mail_settings import from_section
from headrace.stores.batch import Numbered, Target
from headrace.stores.mail.server import MailAway, MailFailed
from tests.certificates import make_authority, make_certificate
from tests.servers.mailbox import PASSWORD, Mailbox, free_port, mail_server

RECORD = {"order": 7, "to": "ann@example.org", "name": "Ann <b>"}


def sending(port: int, **others: Any) -> Any:
    given = {"to": "{to}", "subject": "Order {order}", "text": "Dear {name}, {{thanks}}.", "port": port,
             "security": "none"}  # fmt: skip
    return email(others.pop("host", "127.0.0.1"), "shop@example.org", **{**given, **others})


def test_a_record_is_a_mail() -> None:
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        send = sending(port, html="<p>{name}</p>", headers={"Reply-To": "help@example.org"})
        send(RECORD, "key-7")
        send({**RECORD, "name": "Line\r\nBcc: eve@example.org"}, "key-8")
        sending(port, subject=lambda record: f"two\r\nBcc: {record['order']}@example.org", to=lambda _: ["a@x.org"])(
            RECORD, "key-7"
        )
    (to, first), (_, second), (_, third) = mailbox.mails
    assert to == ["ann@example.org"]
    assert (first["From"], first["To"], first["Subject"]) == ("shop@example.org", "ann@example.org", "Order 7")
    assert first["Reply-To"] == "help@example.org"
    assert first.get_body(("plain",)).get_content() == "Dear Ann <b>, {thanks}.\r\n"
    assert first.get_body(("html",)).get_content() == "<p>Ann &lt;b&gt;</p>\r\n"
    assert len({mail["Message-ID"] for mail in (first, second, third)}) == 3, "another subject is another mail"
    assert all(mail["Bcc"] is None for mail in (first, second, third))
    assert third["Subject"].startswith("two  Bcc: 7@example.org")


@pytest.mark.parametrize("column", ["subject", "reply", "own"])
def test_what_a_record_holds_is_no_header_of_its_own(column: str) -> None:
    evil = "=?utf-8?q?Hello=0D=0ABcc=3A_eve=40example=2Eorg=0D=0A=0D=0AAnother_text?="
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        send = sending(port, subject="{subject}", headers={"Reply-To": "{reply}", "X-Own": "{own}"})
        record = {**RECORD, "subject": "Order", "reply": "help@example.org", "own": "x"}
        send(record, "key-1")
        send({**record, column: evil}, "key-2")
        send({**record, column: f"a@b.c{evil}"}, "key-3")
    for (_, sent), (_, other) in zip(mailbox.mails[:2], mailbox.mails[1:], strict=True):
        assert sent.keys() == other.keys()
        assert other.get_content() == "Dear Ann <b>, {thanks}.\r\n"


@pytest.mark.parametrize(
    "change",
    [
        {"reply": "x" * 80 + "(Subject:" + "y" * 80},
        {"reply": "x" * 80 + "(From:eve@example.org;@" + "y" * 80 + "a@b.org: \\"},
        {"to": "x" * 70 + "(Subject:y)@example.org"},
    ],
)
def test_a_header_that_would_be_broken_into_several_is_refused(change: dict[str, str]) -> None:
    """Python's own writer of mails breaks long lines within comments, and what follows began a line of its own."""
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        send = sending(port, headers={"Reply-To": "{reply}"})
        with pytest.raises(Refused, match="would be several headers"):
            send({**RECORD, "reply": "help@example.org", **change}, "key")
        send({**RECORD, "reply": '"Ann (of ' + "a" * 60 + ')" <ann@example.org>'}, "key")
    assert [mail["Subject"] for _, mail in mailbox.mails] == ["Order 7"]


def test_a_header_that_cannot_be_written_refuses_its_record_and_not_the_server() -> None:
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        send = sending(port, headers={"Reply-To": "{name}"})
        for name in ("group: a@b;", "é@example.org", "<", "[", "x" * 1000 + "@[" + "y" * 1000, "a@b." + "=?" * 99):
            with contextlib.suppress(Refused):
                send({**RECORD, "name": name}, "key")
        send({**RECORD, "name": "help@example.org"}, "last")
    assert mailbox.mails[-1][1]["Reply-To"] == "help@example.org"


def test_a_mail_has_one_id_however_often_it_is_sent() -> None:
    mailbox = Mailbox()
    mailbox.answers = ["451 later, please"]
    with mail_server(mailbox) as port:
        with pytest.raises(MailFailed, match=r"^127\.0\.0\.1 does not take the mail \(status 451\)$"):
            sending(port)(RECORD, "key")
        for _ in range(2):
            sending(port)(RECORD, "key")
        sending(port)(RECORD, "another")
    ids = [mail["Message-ID"] for _, mail in mailbox.mails]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0].endswith("@example.org>")


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"order": 7}, "no column 'to'"),
        ({"order": 7, "to": "nobody", "name": ""}, "'nobody', which is no address"),
        ({"order": 7, "to": None, "name": ""}, "no address"),
        ({"order": 7, "to": "a@example.org\r\nBcc: b@example.org", "name": ""}, "no address"),
        ({"order": 7, "to": "gone@example.org", "name": ""}, "does not take mail for this address (status 550)"),
        ({"order": 7, "to": "ann@example.org,gone@example.org", "name": ""}, "does not take mail for this address"),
    ],
)
def test_a_record_that_makes_no_mail_is_refused(record: dict[str, Any], sentence: str) -> None:
    with mail_server(Mailbox()) as port, pytest.raises(Refused) as raised:
        sending(port)(record, "key")
    assert sentence in str(raised.value)


def test_the_outbox_remembers_what_was_sent_and_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    mailbox, port = Mailbox(), free_port()
    with open_ledger(f"sqlite:///{tmp_path}/o.db", Target("headrace_outbox", "mails")) as ledger:
        ledger.take_in(Numbered("q", 0), [("1", None, '{"order": 1, "to": "ann@example.org", "name": "Ann"}')])
        deliver(ledger, sending(port), Pace(attempts=1))
        ((_, _, error, _),) = ledger.failed()
        assert error == f"MailAway: the mail server 127.0.0.1:{port} cannot be reached (ConnectionRefusedError)"
        ledger.retry_failed()
        with mail_server(mailbox, port):
            deliver(ledger, sending(port), Pace())
            deliver(ledger, sending(port), Pace())
    assert len(mailbox.mails) == 1


def test_after_kill_9_no_mail_is_missing_and_one_in_doubt_has_the_same_id(tmp_path: Path) -> None:
    mailbox = Mailbox()
    process: list[subprocess.Popen[bytes]] = []

    def kill() -> None:
        if process and len(mailbox.mails) % 3 == 0:
            os.kill(process.pop().pid, signal.SIGKILL)

    mailbox.before_answer = kill
    with mail_server(mailbox) as port:
        command = [sys.executable, "-m", "tests.integration.email_worker", str(port), f"{tmp_path}/o.db"]
        ends = []
        while 0 not in ends and len(ends) < 10:
            worker = subprocess.Popen(command)
            process.append(worker)
            ends.append(worker.wait(60))
    assert ends.count(-signal.SIGKILL) == len(ends) - 1 >= 3
    by_subject: dict[str, set[str]] = {}
    for _, mail in mailbox.mails:
        by_subject.setdefault(mail["Subject"], set()).add(mail["Message-ID"])
    assert set(by_subject) == {f"Order {n}" for n in range(10)}, "none is missing"
    assert all(len(ids) == 1 for ids in by_subject.values())
    assert len(mailbox.mails) <= 10 + len(ends) - 1, "only what was under way at a kill came twice"


# --- the connection


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_authority(folder, "authority")
    make_certificate(folder, "server", "authority", alternative="DNS:localhost")
    return folder


def context(folder: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(folder / "server.pem")
    return made


LOGIN = {"user": "headrace", "password": PASSWORD}


def test_starttls_with_a_login(certificates: Path) -> None:
    mailbox = Mailbox()
    others = {"tls_context": context(certificates), "require_starttls": True, "authenticator": mailbox.login}
    ca_file = str(certificates / "authority.pem")
    with mail_server(mailbox, **others) as port:
        safe = {"host": "localhost", "security": "starttls", "ca_file": ca_file}
        sending(port, **safe, **LOGIN)(RECORD, "key")
        assert len(mailbox.mails) == 1
        assert mailbox.logins == [PASSWORD.encode()]
        with pytest.raises(MailAway, match=r"does not let user headrace in \(status 535\)"):
            sending(port, **safe, user="headrace", password="wrong")(RECORD, "key")
        with pytest.raises(MailAway, match="is not believed to be who it says"):
            sending(port, host="localhost", security="starttls", **LOGIN)(RECORD, "key")
        with pytest.raises(MailAway, match="is not believed to be who it says"):
            sending(port, **{**safe, "host": "127.0.0.1"}, **LOGIN)(RECORD, "key")
        with pytest.raises(Refused, match="status 530"):
            sending(port)(RECORD, "key")
        assert len(mailbox.mails) == 1
        assert mailbox.logins.count(PASSWORD.encode()) == 1, "no password went to whom is not believed"


def test_a_server_without_tls_gets_no_password(certificates: Path) -> None:
    mailbox = Mailbox()
    with mail_server(mailbox, authenticator=mailbox.login, auth_require_tls=False) as port:
        for security in ("starttls", "tls"):
            with pytest.raises(MailAway):
                sending(port, host="localhost", security=security, timeout_s=5, **LOGIN)(RECORD, "key")
    assert mailbox.logins == []


def test_tls_with_a_login(certificates: Path) -> None:
    mailbox = Mailbox()
    ca_file = str(certificates / "authority.pem")
    others = {"ssl_context": context(certificates), "authenticator": mailbox.login, "auth_require_tls": False}
    with mail_server(mailbox, hostname="localhost", **others) as port:
        sending(port, host="localhost", security="tls", ca_file=ca_file, **LOGIN)(RECORD, "key")
    assert len(mailbox.mails) == 1
    assert mailbox.logins == [PASSWORD.encode()]


def test_digests_of_hits_take_the_same_settings(certificates: Path) -> None:
    section = {"hits": "h", "server": "localhost", "sender": "s@example.org", "addresses": {"ann": "ann@example.org"},
               "ca_file": str(certificates / "authority.pem")}  # fmt: skip
    assert from_section("listings", section).server.ca_file == section["ca_file"]
    with pytest.raises(HeadraceError, match=r"\[mail.listings\] ca_file 'none.pem' cannot be read"):
        from_section("listings", {**section, "ca_file": "none.pem"})


def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        with pytest.raises(MailAway, match="cannot be reached"):
            sending(listener.getsockname()[1], timeout_s=0.2)(RECORD, "key")
        assert time.monotonic() - began < 5


def test_a_connection_that_ends_before_the_answer_is_no_success() -> None:
    """What was said to be taken is all that counts; a farewell that is not answered changes nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = [b"220 hi\r\n", b"250 hi\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n"]
        thread = threading.Thread(target=answer, args=(listener, answers, [[], [b"250 taken\r\n"]]))
        thread.start()
        port = listener.getsockname()[1]
        with pytest.raises(MailFailed, match=r"did not answer to the end \(SMTPServerDisconnected\)"):
            sending(port)(RECORD, "key")
        sending(port)(RECORD, "key")
        thread.join()


@pytest.mark.parametrize(
    ("said", "pause_s"),
    [(b"250-wait\r\n", 0.05), (b"2", 0.05), (b"250-" + b"x" * 7000 + b"\r\n", 0.0), (b"x" * 7000, 0.0)],
    ids=["lines", "bytes", "many lines", "one line"],
)
@pytest.mark.parametrize(
    "before", [[], [b"220 hi\r\n", b"250 hi\r\n", b"250 ok\r\n"]], ids=["greeting", "to an address"]
)
def test_a_reply_that_does_not_end_is_not_waited_for_for_ever(before: list[bytes], said: bytes, pause_s: float) -> None:
    """Each piece of it is quick: neither is the mail's sender held up, nor the memory filled, nor the mail refused."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as heard, contextlib.suppress(OSError):
                for each in before:
                    connection.sendall(each)
                    heard.readline()
                for _ in range(200_000):
                    connection.sendall(said)
                    time.sleep(pause_s)

        thread = threading.Thread(target=run)
        thread.start()
        began = time.monotonic()
        with pytest.raises(MailFailed):
            sending(listener.getsockname()[1], timeout_s=0.5)(RECORD, "key")
        assert time.monotonic() - began < 5
        thread.join()


def test_a_server_that_greets_nobody_is_away_and_refuses_no_mail() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers = [b"220 hi\r\n", b"554 busy\r\n", b"554 busy\r\n"]
        thread = threading.Thread(target=answer, args=(listener, answers, [[]]))
        thread.start()
        with pytest.raises(MailAway, match="cannot be reached"):
            sending(listener.getsockname()[1])(RECORD, "key")
        thread.join()


def answer(listener: socket.socket, answers: list[bytes], ends: list[list[bytes]]) -> None:
    for end in ends:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as heard:
            for each in answers:
                connection.sendall(each)
                if each.startswith(b"354"):
                    while heard.readline() != b".\r\n":
                        pass
                else:
                    heard.readline()
            for each in end:
                connection.sendall(each)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"to": "{to"}, "to has a single '{'"),
        ({"text": "a } b"}, "text has a single '}'"),
        ({"headers": {"Bcc": "x@example.org"}}, "header 'Bcc' cannot be set"),
        ({"headers": {"X\r\nY": "1"}}, "cannot be set"),
        ({"security": "ssl"}, "choose among starttls, tls, none"),
        ({"user": "x"}, "no password"),
        ({"ca_file": "x.pem"}, "ca_file and security none"),
    ],
)
def test_settings_that_cannot_be(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(HeadraceError, match="e-mail") as raised:
        sending(25, **change)
    assert sentence in str(raised.value)
    assert PASSWORD not in repr(sending(25, **LOGIN))
