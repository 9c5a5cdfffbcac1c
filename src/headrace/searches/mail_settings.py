"""A section `[mail.NAME]` of `headrace.toml`: whose hits are mailed where, how often, and through which server.

[mail.listings]
hits = "listings.hits"
server = "smtp.example.org"
user = "headrace"
password = "${SMTP_PASSWORD}"        # or password_file = "smtp.secret", which others cannot read
sender = "searches@example.org"
every = "1 hour"
addresses = { ann = "ann@example.org" }
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.durations import positive
from headrace.model import check_topic_name
from headrace.searches.digests import Pace
from headrace.searches.settings import SearchError
from headrace.stores.mail.sender import check_address
from headrace.stores.mail.server import InvalidMailServer, MailServer, mail_server

SECTION: Final = "mail"
_MOST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class MailSettings:
    name: str
    hits: str
    server: MailServer
    sender: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    addresses_topic: str = ""
    """A compacted topic: a record's key is the owner, its value the address."""
    pace: Pace = field(default_factory=Pace)
    outbox: str = field(default="", repr=False)  # it may hold a password
    from_start: bool = False

    @property
    def digests(self) -> str:
        """The topic that every digest stands in before it is sent."""
        return f"{self.name}.digests"


def from_section(name: str, section: Mapping[str, Any]) -> MailSettings:
    """What a section says; raises the first thing that is wrong with a value."""
    where = f"[{SECTION}.{name}]"
    for needed in ("hits", "server", "sender"):
        if not section.get(needed):
            raise SearchError(f'{where} has no {needed}: add {needed} = "…"')
    addresses = dict(section.get("addresses") or {})
    for owner, address in addresses.items():
        check_address(address, f"{where} addresses.{owner}") if isinstance(address, str) else _no_text(where, owner)
    topic = section.get("addresses_topic") or ""
    if not addresses and not topic:
        raise SearchError(
            f'{where} has no addresses: write addresses = {{ ann = "ann@example.org" }}, or addresses_topic = "…"'
        )
    settings = MailSettings(
        name,
        section["hits"],
        _server(where, section),
        check_address(section["sender"], f"{where} sender"),
        addresses,
        topic,
        Pace(
            positive(section.get("every") or "1 hour", f"{where} every") // 1000,
            positive(section.get("gather") or "10 seconds", f"{where} gather") // 1000,
            section.get("most_a_day") or Pace().most_a_day,
            min(section.get("most_hits") or Pace().most_hits, _MOST_SHOWN),
        ),
        section.get("outbox") or f"sqlite:///.headrace/mail-{name}.db",
        section.get("from") == "start",
    )
    for each in (settings.hits, settings.digests, *([topic] if topic else [])):
        check_topic_name(each)
    if not settings.outbox.startswith(("sqlite:///", "postgresql://", "postgres://")):
        raise SearchError(f'{where} outbox is none: write outbox = "sqlite:///mail.db" or "postgresql://…"')
    return settings


def _server(where: str, section: Mapping[str, Any]) -> MailServer:
    try:
        return mail_server(
            section["server"],
            security=section.get("security") or "starttls",
            port=section.get("port"),
            user=section.get("user") or "",
            password=section.get("password") or "",
            password_file=section.get("password_file") or "",
            ca_file=section.get("ca_file") or "",
        )
    except InvalidMailServer as error:
        raise SearchError(f"{where} {error}") from None


def _no_text(where: str, owner: str) -> None:
    raise SearchError(f'{where} addresses.{owner} is not a text: write "ann@example.org"')
