"""Mails handed to a server, one by one; a server that is away is waited for.

What always holds: no error and no log line has the password, or what a mail says.
"""

import contextlib
import smtplib
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Final

from headrace.pipelines.sink.effects.delivery import Refused
from headrace.retry import Backoff
from headrace.searches.digests import Digest
from headrace.searches.letter import letter
from headrace.searches.mail_settings import MailServer, MailSettings
from headrace.searches.settings import SearchError

_LASTING: Final = range(500, 600)


class Stopped(BaseException):
    """The sending is to end: what is under way stays in the outbox, and is no failure of the mail's."""


class MailAway(SearchError):
    """The server cannot be reached, or does not let us in."""


@dataclass(slots=True)
class Postman:
    """Sends a digest as a mail; given to the outbox."""

    settings: MailSettings
    address_of: Callable[[str], str | None]
    stopping: Event = field(default_factory=Event)
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 60.0))
    problem: str = ""
    sent: int = 0

    def __call__(self, record: Mapping[str, Any], _: str) -> None:
        digest = Digest.from_json(record)
        to = self.address_of(digest.owner)
        if to is None:
            raise Refused(f"owner {digest.owner!r} has no address any more")
        message = letter(digest, self.settings.name, self.settings.sender, to)
        with self._connected() as server:
            try:
                server.send_message(message, self.settings.sender, [to])
            except smtplib.SMTPRecipientsRefused as error:
                codes = {code for code, _ in error.recipients.values()}
                self._fail(codes, "does not take mail for this address")
            except smtplib.SMTPResponseException as error:
                self._fail({error.smtp_code}, "does not take the mail")
            except smtplib.SMTPNotSupportedError:
                raise Refused(f"{self.settings.server.host} does not take addresses with such letters") from None
        self.sent += 1

    def _fail(self, codes: set[int], what: str) -> None:
        shown = ", ".join(map(str, sorted(codes)))
        sentence = f"{self.settings.server.host} {what} (status {shown})"
        if codes and all(code in _LASTING for code in codes):
            raise Refused(sentence)
        raise MailAway(sentence)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        """A connection that is logged in, however long that takes."""
        failures = 0
        while True:
            if self.stopping.is_set():
                raise Stopped
            try:
                server = connect(self.settings.server)
                break
            except MailAway as error:
                failures += 1
                self.problem = str(error)
                self.stopping.wait(self.backoff.pause_s(failures))
        self.problem = ""
        try:
            yield server
        finally:
            with contextlib.suppress(smtplib.SMTPException, OSError):
                server.quit()
            server.close()


def connect(server: MailServer) -> smtplib.SMTP:
    """A connection that is logged in; raises `MailAway`."""
    where = f"{server.host}:{server.port}"
    made: smtplib.SMTP | None = None
    try:
        if server.security == "tls":
            context = ssl.create_default_context()
            made = smtplib.SMTP_SSL(server.host, server.port, timeout=server.timeout_s, context=context)
        else:
            made = smtplib.SMTP(server.host, server.port, timeout=server.timeout_s)
            if server.security == "starttls":
                made.starttls(context=ssl.create_default_context())
        if server.user:
            made.login(server.user, server.password)
        return made
    except smtplib.SMTPAuthenticationError as error:
        reason = f"does not let user {server.user} in (status {error.smtp_code}): check user and password"
    except smtplib.SMTPNotSupportedError:
        reason = "speaks no TLS, or takes no login: choose security tls, or none for a server on this machine"
    except ssl.SSLError as error:
        reason = f"is not believed to be who it says ({error.reason}): check its name and certificate"
    except (OSError, smtplib.SMTPException) as error:
        reason = f"cannot be reached ({type(error).__name__})"
    if made is not None:
        made.close()
    raise MailAway(f"the mail server {where} {reason}")
