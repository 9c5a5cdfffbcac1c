"""One mail handed to a server: the one sender of digests of hits and of side effects.

What always holds: it returns when the server has answered that it took the mail. What is then lost is lost by the
server; and if the connection ends before that answer, nobody knows, so that a mail may come twice with one Message-ID.
A mail that cannot be written is refused before a server sees any of it. No error has the password, or what a mail says.
"""

import contextlib
import re
import smtplib
from collections.abc import Sequence
from email.errors import MessageError
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from typing import Final

from headrace.errors import HeadraceError
from headrace.stores.mail.server import MailFailed, MailServer

_LASTING: Final = range(500, 600)
_LONGEST: Final = 320  # of an address
_BROKEN: Final = re.compile(r"\r\n[^ \t]|\r[^ \n\t]|\n[^ \t]")
# What Python's own writer of mails raises for headers that it cannot write, of which it does not say which there are.
UNWRITABLE: Final = (ValueError, LookupError, TypeError, AttributeError, MessageError)


class MailRefused(HeadraceError):
    """A mail that the server will never take."""


class InvalidAddress(HeadraceError):
    """A text that is no address for mail."""


def check_address(text: str, what: str) -> str:
    """An address that a mail can go to: `ann@example.org`."""
    try:
        found = Address(addr_spec=text) if text.isprintable() and len(text) <= _LONGEST else None
    except (ValueError, LookupError, MessageError):  # whatever a parser of addresses raises
        found = None
    if found is None or not found.username or not found.domain or " " in text:
        raise InvalidAddress(f"{what} is {text[:80]!r}, which is no address: write one such as ann@example.org")
    return text


def header_text(text: str) -> str:
    """A text that stands in a header as it is: one line, without what would be decoded, and be several lines then."""
    return "".join(each if each.isprintable() else " " for each in text).replace("=?", "= ?")


def _check_headers(message: EmailMessage, *, is_international: bool) -> None:
    """Python breaks long lines also within comments, and forgets the blank that keeps the rest in its header."""
    policy = SMTPUTF8 if is_international else SMTP
    for name, value in message.items():
        try:
            folded = policy.fold(name, value)
        except UNWRITABLE as error:
            raise MailRefused(f"the mail cannot be written (its {name}: {type(error).__name__})") from None
        if _BROKEN.search(folded):
            raise MailRefused(f"the mail cannot be written (its {name} would be several headers): shorten that")


def hand_in(server: MailServer, message: EmailMessage, sender: str, to: Sequence[str]) -> None:
    """One mail over one connection; raises `MailFailed`, of which `MailAway` is one, or `MailRefused`."""
    _check_headers(message, is_international=not "".join((sender, *to)).isascii())  # as smtplib decides
    connection = server.connect()
    try:
        refused = connection.send_message(message, sender, list(to))
    except smtplib.SMTPRecipientsRefused as error:
        raise _failure(server, [code for code, _ in error.recipients.values()], _ADDRESS) from None
    except smtplib.SMTPResponseException as error:
        raise _failure(server, [error.smtp_code], "does not take the mail") from None
    except smtplib.SMTPNotSupportedError:
        raise MailRefused(f"{server.host} does not take addresses with such letters") from None
    except UNWRITABLE as error:
        raise MailRefused(f"the mail cannot be written ({type(error).__name__})") from None
    except (OSError, smtplib.SMTPException) as error:
        raise MailFailed(f"{server.host} did not answer to the end ({type(error).__name__})") from None
    finally:
        # A farewell that is not answered changes nothing about the mail.
        with contextlib.suppress(smtplib.SMTPException, OSError):
            connection.quit()
        connection.close()
    if refused:  # some have it: to send it again would double it for them
        raise _failure(server, [code for code, _ in refused.values()], _ADDRESS, is_final=True)


_ADDRESS: Final = "does not take mail for this address"


def _failure(server: MailServer, codes: Sequence[int], what: str, *, is_final: bool = False) -> HeadraceError:
    shown = ", ".join(map(str, sorted(set(codes))))
    kind = MailRefused if is_final or (codes and all(code in _LASTING for code in codes)) else MailFailed
    return kind(f"{server.host} {what} (status {shown})")
