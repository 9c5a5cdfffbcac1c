"""A real mail server on this machine, which shows what it took."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

PASSWORD = "correct horse 17"


class Mailbox:
    """What a mail server took, and how it answers."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.answers: list[str] = []
        self.logins: list[bytes] = []
        self.before_answer: Any = None

    async def handle_RCPT(self, _: Any, __: Any, envelope: Any, address: str, ___: Any) -> str:  # noqa: N802
        if address.startswith("gone"):
            return "550 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _: SMTP, __: Any, envelope: Any) -> str:  # noqa: N802 - the server's name for it
        answer = self.answers.pop(0) if self.answers else "250 taken"
        if answer.startswith("250"):
            self.mails.append((envelope.rcpt_tos, message_from_bytes(envelope.content, policy=policy.default)))
        if self.before_answer is not None:
            self.before_answer()
        return answer

    def login(self, _: Any, __: Any, ___: Any, ____: str, data: Any) -> AuthResult:
        self.logins.append(data.password)
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)


@contextmanager
def mail_server(mailbox: Mailbox, port: int = 0, **others: Any) -> Iterator[int]:
    controller = Controller(mailbox, **{"hostname": "127.0.0.1", **others}, port=port or free_port())
    controller.start()
    try:
        yield controller.port
    finally:
        controller.stop()


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])
