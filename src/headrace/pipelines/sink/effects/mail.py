"""An e-mail for each record: given to `outbox(send=…)`, or to the effects of a process.

What always holds: a record's mail has one Message-ID, made of its idempotence key, whenever and however often it is
handed in; what a record holds can break neither the headers nor the page; no error has what a mail says.

SMTP has no idempotence key: a server that took a mail and could not say so any more is handed it again. Receivers, and
many servers, know it by its Message-ID.
"""

import hashlib
import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any, Final, TypeAlias

from headrace.pipelines.sink.effects.delivery import Refused
from headrace.stores.errors import SinkMisconfigured
from headrace.stores.mail.sender import (
    UNWRITABLE,
    InvalidAddress,
    MailRefused,
    check_address,
    hand_in,
    header_text,
)
from headrace.stores.mail.server import InvalidMailServer, MailServer, mail_server

Record: TypeAlias = Mapping[str, Any]
Part: TypeAlias = str | Callable[[Record], Any]
"""A text with `{column}` in it, or a function of the record."""

_FIELD: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_HEADER: Final = re.compile(r"[!-9;-~]{1,70}")  # RFC 5322
_OWN: Final = frozenset({"from", "to", "subject", "date", "message-id", "bcc", "content-type", "mime-version"})


@dataclass(frozen=True)
class Email:
    """Hands one mail in for each record; a server that will never take it is `Refused`, all else is tried again."""

    server: MailServer
    sender: str
    to: Part
    subject: Part
    text: Part
    html: Part | None = None
    headers: Mapping[str, Part] = field(default_factory=dict)
    name: str = ""

    def __call__(self, record: Record, key: str) -> None:
        """Send one."""
        message, to = self.message(record, key, datetime.now(UTC))
        try:
            hand_in(self.server, message, self.sender, to)
        except MailRefused as error:
            raise Refused(str(error)) from None

    def message(self, record: Record, key: str, now: datetime) -> tuple[EmailMessage, list[str]]:
        """The mail of a record, and whom it goes to; raises `Refused` for a record that makes none."""
        to = _addresses(_filled(self.to, record, str))
        headers = {
            "From": self.sender,
            "To": ", ".join(to),
            "Subject": header_text(str(_filled(self.subject, record, str))),
            "Date": format_datetime(now),
            "Message-ID": f"<{self._identity(key)}@{self.sender.rpartition('@')[2]}>",
            "Auto-Submitted": "auto-generated",
            **{name: header_text(str(_filled(part, record, str))) for name, part in self.headers.items()},
        }
        made = EmailMessage()
        for name, text in headers.items():
            try:
                made[name] = text
            except UNWRITABLE as error:
                raise Refused(f"the record has no text for {name} ({type(error).__name__})") from None
        made.set_content(_clean(_filled(self.text, record, str)))
        if self.html is not None:
            made.add_alternative(_clean(_filled(self.html, record, html.escape)), subtype="html")
        return made, to

    def _identity(self, key: str) -> str:
        """The same for the same record; another one for another kind of mail about a record with this key."""
        said = "\0".join((self.name, self.sender, _source(self.subject), key))
        return hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:40]


def email(
    server: str | MailServer,
    sender: str,
    *,
    to: Part,
    subject: Part,
    text: Part,
    html: Part | None = None,
    headers: Mapping[str, Part] | None = None,
    name: str = "",
    **connection: Any,
) -> Email:
    """A sender for `outbox(send=…)`: `to`, `subject`, `text` and `html` with `{column}` in them, or as functions.

    `connection` is how the server is reached: `security` (starttls, tls, none), `port`, `user`, `password` or
    `password_file`, `ca_file`, `timeout_s`. Mails of several kinds about records with the same keys need a `name` or
    other words in their subject, which tell their Message-IDs apart.
    """
    try:
        reached = server if isinstance(server, MailServer) else mail_server(server, **connection)
        check_address(sender, "the sender")
    except (InvalidMailServer, InvalidAddress) as error:
        raise SinkMisconfigured(f"an e-mail's server or sender cannot be: {error}") from None
    for what, part in (("to", to), ("subject", subject), ("text", text), ("html", html), *(headers or {}).items()):
        _check_part(what, part)
    for each in headers or {}:
        if not _HEADER.fullmatch(each) or each.lower() in _OWN:
            raise SinkMisconfigured(f"an e-mail's header {each[:80]!r} cannot be set: name another, such as Reply-To")
    return Email(reached, sender, to, subject, text, html, dict(headers or {}), name)


def _check_part(what: str, part: Part | None) -> None:
    if not isinstance(part, str):
        return
    for found in _FIELD.finditer(part):
        if found[0] in ("{", "}") or found[1] == "":
            raise SinkMisconfigured(f"an e-mail's {what} has a single {found[0][0]!r}: write {{column}}, or it twice")


def _filled(part: Part, record: Record, shown: Callable[[str], str]) -> Any:
    if not isinstance(part, str):
        return part(record)

    def fill(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        if found[1] not in record:
            raise Refused(f"the record has no column {found[1]!r} for its mail")
        value = record[found[1]]
        return shown("" if value is None else str(value))

    return _FIELD.sub(fill, part)


def _addresses(said: Any) -> list[str]:
    given: Sequence[Any] = said.split(",") if isinstance(said, str) else list(said or ())
    try:
        found = [check_address(str(each).strip(), "an address of the record") for each in given]
    except InvalidAddress as error:
        raise Refused(str(error)) from None
    if not found:
        raise Refused("the record has no address for its mail")
    return found


def _clean(text: Any) -> str:
    """What can be sent: JSON may hold halves of surrogate pairs."""
    return str(text).encode(errors="replace").decode()


def _source(part: Part) -> str:
    return part if isinstance(part, str) else f"{getattr(part, '__module__', '')}.{getattr(part, '__qualname__', '')}"


__all__ = ["Email", "email"]
