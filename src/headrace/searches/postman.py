"""Digests handed to a mail server, one by one; a server that is away is waited for.

What always holds: no error and no log line has the password, or what a mail says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from headrace.pipelines.sink.effects.delivery import Refused
from headrace.retry import Backoff
from headrace.searches.digests import Digest
from headrace.searches.letter import letter
from headrace.searches.mail_settings import MailSettings
from headrace.stores.mail.sender import MailRefused, hand_in
from headrace.stores.mail.server import MailAway, MailFailed


class Stopped(BaseException):
    """The sending is to end: what is under way stays in the outbox, and is no failure of the mail's."""


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
        failures = 0
        while True:
            if self.stopping.is_set():
                raise Stopped
            try:
                hand_in(self.settings.server, message, self.settings.sender, [to])
                break
            except MailRefused as error:
                raise Refused(str(error)) from None
            except MailAway as error:
                failures += 1
                self.problem = str(error)
                self.stopping.wait(self.backoff.pause_s(failures))
            except MailFailed:
                self.problem = ""  # it is there, and did not like this mail
                raise
        self.problem = ""
        self.sent += 1
