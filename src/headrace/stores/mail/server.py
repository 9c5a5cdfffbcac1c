"""A mail server that takes mails in: where it is, how the connection is made safe, who logs in.

What always holds: no error and no `repr` has the password; it is not sent in the clear to another machine.
"""

import smtplib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from headrace.secret_files import ExposedSecret, check_private
from headrace.security.principal import is_public
from headrace.stores.mail.replies import InTime, InTimeTls

SECURITY: Final = ("starttls", "tls", "none")
_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}


class InvalidMailServer(HeadraceError):
    """Settings of a mail server that cannot be; the text says what, and whoever reads them says whose."""


class MailFailed(HeadraceError):
    """A mail that was not taken, which may pass."""


class MailAway(MailFailed):
    """The server cannot be reached, or does not let us in."""


@dataclass(frozen=True, slots=True)
class MailServer:
    """Where mails are handed in."""

    host: str
    port: int
    security: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    timeout_s: float = 30.0
    ca_file: str = ""  # whom to believe, in place of the machine's certificates

    def connect(self) -> smtplib.SMTP:
        """A connection that is logged in; raises `MailAway`."""
        where = f"{self.host}:{self.port}"
        made: smtplib.SMTP | None = None
        try:
            context = None if self.security == "none" else ssl.create_default_context(cafile=self.ca_file or None)
            if self.security == "tls":
                made = InTimeTls(self.host, self.port, timeout=self.timeout_s, context=context)
            else:
                made = InTime(self.host, self.port, timeout=self.timeout_s)
                if context is not None:
                    made.starttls(context=context)
            if self.user:
                made.login(self.user, self.password)
            made.ehlo_or_helo_if_needed()  # or a server that greets nobody would refuse the mail for good
            return made
        except smtplib.SMTPAuthenticationError as error:
            reason = f"does not let user {self.user} in (status {error.smtp_code}): check user and password"
        except smtplib.SMTPNotSupportedError:
            reason = "speaks no TLS, or takes no login: choose security tls, or none for a server on this machine"
        except ssl.SSLError as error:
            reason = f"is not believed to be who it says ({error.reason}): check its name and certificate"
        except (OSError, smtplib.SMTPException) as error:
            reason = f"cannot be reached ({type(error).__name__})"
        if made is not None:
            made.close()
        raise MailAway(f"the mail server {where} {reason}")


def mail_server(
    host: str,
    *,
    security: str = "starttls",
    port: int | None = None,
    user: str = "",
    password: str = "",
    password_file: str = "",
    ca_file: str = "",
    timeout_s: float = 30.0,
) -> MailServer:
    """A server as settings describe it; raises `InvalidMailServer` or `ExposedSecret`."""
    if not host:
        raise InvalidMailServer('server names no host: write server = "smtp.example.org"')
    if security not in SECURITY:
        raise InvalidMailServer(f"security is {security!r}: choose among {', '.join(SECURITY)}")
    if password_file:
        if password:
            raise InvalidMailServer("has a password and a password_file: write one of them")
        password = _secret(password_file)
    if bool(user) != bool(password):
        raise InvalidMailServer(f"has {'no password' if user else 'a password and no user'}: write both or neither")
    if user and security == "none" and is_public(host):
        raise InvalidMailServer(f"would send its password to {host} in the clear: choose security starttls or tls")
    if ca_file and security == "none":
        raise InvalidMailServer("has a ca_file and security none: choose security starttls or tls")
    try:
        if ca_file:
            ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError):
        raise InvalidMailServer(f"ca_file {ca_file!r} cannot be read: give a PEM file of certificates") from None
    return MailServer(host, port or _PORTS[security], security, user, password, timeout_s, ca_file)


def _secret(path: str) -> str:
    check_private(path, "the password of the mail server")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError):
        raise ExposedSecret(f"the password of the mail server {path} cannot be read: check it") from None
