"""An endpoint: which records of a topic are sent where, in which order, how fast, and what if they are not taken.

Pure. In the endpoints' topic it is the JSON of its keys; in a section a table with the same.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headrace.delivery.filters import Filter
from headrace.durations import positive
from headrace.errors import HeadraceError
from headrace.gateways.errors import GatewayError
from headrace.gateways.webhooks.secrets import Secrets
from headrace.http_client import InvalidServer, host_in
from headrace.model import check_topic_name
from headrace.reach import InvalidHost, check_host
from headrace.section_keys import Key, check_keys, with_defaults

LONGEST_URL: Final = 4096
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SECRET_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OWN_HEADERS: Final = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
    }
)


class Order(StrEnum):
    """What waits behind a record that was not taken yet."""

    ALL = "all"
    KEY = "key"
    NONE = "none"


ENDPOINT_KEYS: Final = (
    Key("topic", str, "The topic whose records are sent.", is_needed=True, check=check_topic_name),
    Key("url", str, "Where they are sent.", is_needed=True, is_secret=True),
    Key("filter", str, "Which are sent: a condition over headers, key and fields of a JSON value, such as "
        "header.region = 'eu' AND value.amount > 100.", ""),
    Key("secret_name", str, "The file in the gateway's folder of secrets that requests are signed with."),
    Key("unsigned", bool, "Send without signatures.", False),
    Key("order", str, "What waits behind a record that was not taken yet: all, those with its key, or none.",
        Order.ALL.value, choices=tuple(each.value for each in Order)),
    Key("concurrency", int, "How many requests are under way at once; with order all it is one.", 4, least=1, most=64),
    Key("rate", float, "How many requests are sent in a second at the most; 0 is no limit.", 0.0, least=0,
        most=100_000),
    Key("timeout", str, "How long a request may take as a whole.", "15 seconds"),
    Key("first_pause", str, "How long the pause after a failure is; each is twice the one before.", "5 seconds"),
    Key("longest_pause", str, "How long a pause is at the most.", "1 hour"),
    Key("give_up_after", str, "When a record that is not taken becomes a dead letter.", "1 day"),
    Key("disable_after", str, "When an endpoint that takes nothing any more is disabled.", "5 days"),
    Key("disable_failures", int, "The same after so many failures in a row; 0 is never.", 0, least=0, most=10**9),
    Key("content_type", str, "What bodies are, where a record has no header that says so.", "application/json"),
    Key("headers", dict, "Headers that each request has.", is_secret=True),
    Key("forward_headers", list, "Headers of records that go along."),
    Key("from", str, "Where the first start of all begins in the topic; of one that is made later, at its start.",
        "end", choices=("start", "end")),
    Key("ca_file", str, "A PEM file of certificates to believe the receiver by, in place of the machine's."),
)  # fmt: skip
# A file of the machine is named by who has the machine, and not by who may write to a topic.
ONLY_IN_SECTION: Final = ("ca_file",)
_SECRET_PLACES: Final = (
    Key("secret_file", str, "A file with the secret, which others must not be able to read."),
    Key("secret_env", str, "The variable of the environment that holds the secret."),
)


class InvalidEndpoint(GatewayError):
    """An endpoint that cannot be."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    id: str
    topic: str
    url: str = field(repr=False)
    filter: Filter | None = field(compare=False)
    order: Order
    concurrency: int
    rate: float
    timeout_s: float
    first_pause_s: float
    longest_pause_s: float
    give_up_ms: int
    disable_ms: int
    disable_failures: int
    content_type: str
    headers: Mapping[str, str] = field(repr=False)
    forward_headers: tuple[str, ...]
    from_start: bool
    ca_file: str
    secret_name: str
    unsigned: bool
    secrets: Secrets | None = field(compare=False, repr=False)  # of a section's own
    said: Mapping[str, Any] = field(repr=False)
    """As it was written; two that say the same are the same."""

    @property
    def host(self) -> str:
        return host_in(self.url)

    def message_id(self, topic: str, partition: int, offset: int) -> str:
        """What tells this record for this endpoint from all others, whenever it is sent; `topic` is its id or name."""
        said = json.dumps([self.id, topic, partition, offset])
        return "msg_" + hashlib.sha256(said.encode(errors="surrogatepass")).hexdigest()[:32]


def check_id(text: str) -> str:
    if not _ID.fullmatch(text):
        raise InvalidEndpoint(
            f"{text[:80]!r} cannot be an endpoint's id: use letters, digits, '.', '_' and '-', 100 at most"
        )
    return text


def check_secret_name(text: str) -> str:
    """A name that can only be a file of its folder."""
    if not _SECRET_NAME.fullmatch(text):
        raise InvalidEndpoint(f"{text[:80]!r} cannot be a secret's name: use letters, digits, '_', '-' and '.'")
    return text


def read_endpoint(endpoint_id: str, said: Mapping[str, Any], where: str, *, in_section: bool = False) -> Endpoint:
    """From what is written of it, with or without its defaults; raises the first thing that is wrong."""
    check_id(endpoint_id)
    keys = [*ENDPOINT_KEYS, *_SECRET_PLACES] if in_section else [
        key for key in ENDPOINT_KEYS if key.name not in ONLY_IN_SECTION
    ]  # fmt: skip
    for _, sentence in check_keys(keys, said, where):
        raise InvalidEndpoint(sentence)
    values = with_defaults(keys, said)
    _check_url(values["url"], where)
    if name := values.get("secret_name"):
        check_secret_name(name)
    secrets = Secrets.of(f"[{where}]", values) if in_section else None
    signed = bool(values.get("secret_name")) + (secrets is not None)
    if signed > 1:
        raise InvalidEndpoint(f"[{where}] has a secret_name and another place of its secret: write one of them")
    if bool(signed) == values["unsigned"]:
        raise InvalidEndpoint(
            f"[{where}] {'is unsigned and has a secret' if signed else 'has no secret_name'}: name a secret, or write "
            "unsigned = true"
        )
    try:
        chosen = Filter(values["filter"]) if values["filter"] else None
    except HeadraceError as error:
        raise InvalidEndpoint(f"[{where}] filter: {error}") from None
    forwarded = tuple(values.get("forward_headers") or ())
    order = Order(values["order"])
    return Endpoint(
        endpoint_id,
        values["topic"],
        values["url"],
        chosen,
        order,
        1 if order is Order.ALL else values["concurrency"],
        float(values["rate"]),
        _seconds(values, "timeout", where),
        _seconds(values, "first_pause", where),
        _seconds(values, "longest_pause", where),
        round(_seconds(values, "give_up_after", where) * 1000),
        round(_seconds(values, "disable_after", where) * 1000),
        values["disable_failures"],
        _text_of_header(values["content_type"], "content_type", where),
        _headers(values.get("headers") or {}, where),
        tuple(_header_name(each, where).lower() for each in forwarded),
        values["from"] == "start",
        values.get("ca_file") or "",
        values.get("secret_name") or "",
        values["unsigned"],
        secrets,
        dict(said),
    )


def _seconds(values: Mapping[str, Any], name: str, where: str) -> float:
    return positive(values[name], f"[{where}] {name}") / 1e6


def _check_url(url: str, where: str) -> None:
    try:
        if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise InvalidServer("must be of ASCII without spaces: write http://HOST:PORT/…")
        check_host(host_in(url))
    except (InvalidServer, InvalidHost) as error:
        raise InvalidEndpoint(f"[{where}] url {error}") from None


def _headers(said: Mapping[str, Any], where: str) -> dict[str, str]:
    found = {}
    for name, value in said.items():
        if not isinstance(value, str):
            raise InvalidEndpoint(f"[{where}] headers.{name} is no text: write one")
        found[_header_name(name, where)] = _text_of_header(value, f"headers.{name}", where)
    return found


def _header_name(name: str, where: str) -> str:
    if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
        raise InvalidEndpoint(f"[{where}] the header {name[:80]!r} cannot be set: name another")
    return name


def _text_of_header(text: str, what: str, where: str) -> str:
    if not text.isascii() or not text.isprintable() or len(text) > LONGEST_URL:
        raise InvalidEndpoint(f"[{where}] {what} is not the text of a header: use printable ASCII")
    return text
