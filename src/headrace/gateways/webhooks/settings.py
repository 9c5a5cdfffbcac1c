"""What `kind = "webhook"` can be told: where it listens, and its endpoints.

    [gateways.hooks]
    kind = "webhook"
    port = 8480

    [gateways.hooks.endpoints.github]
    topic = "github"
    provider = "github"
    secret_file = "github.secret"      # or secret = "${GITHUB_SECRET}", or secret_env = "GITHUB_SECRET"
    key = "/repository/full_name"

A gateway of a single endpoint has its keys in the section itself.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.durations import positive
from headrace.errors import nearest
from headrace.gateways.errors import GatewayError
from headrace.gateways.gateway import Overload
from headrace.gateways.webhooks.delivery import Source, Wanted, read_source
from headrace.gateways.webhooks.secrets import Secrets
from headrace.gateways.webhooks.signatures import ENCODINGS, HASHES, SCHEMES, Scheme
from headrace.model import check_topic_name
from headrace.section_keys import Key, check_keys, port, with_defaults
from headrace.security.principal import is_public

DEFAULT_PORT: Final = 8480
HMAC, NONE = "hmac", "none"
PROVIDERS: Final = (*SCHEMES, HMAC, NONE)
MOST_ENDPOINTS: Final = 1_000
_OWN_PATHS: Final = ("/healthz", "/readyz")
_PATH: Final = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/-]{0,1000}")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_BODY_IDS: Final = {"stripe": ("/id", "/type"), "slack": ("/event_id", "/event/type"), "standard": ("", "/type"),
                    "svix": ("", "/type")}  # fmt: skip

_ENDPOINT_KEYS: Final = (
    Key("path", str, "The path of the URL; by default / and the endpoint's name."),
    Key("topic", str, "Where its records go; by default a topic with the endpoint's name.", check=check_topic_name),
    Key("provider", str, "Who signs, and how: github, stripe, standard (Standard Webhooks), svix, slack, shopify; hmac "
        "for any other, as signature_header and what follows say; none, for endpoints that anybody may send to.",
        choices=PROVIDERS),
    Key("secret", str, "The secret that requests are signed with, best as ${VARIABLE}; several, a line each, are all "
        "valid.", is_secret=True),
    Key("tolerance", str, "How far the time that was signed may be from now.", "5 minutes"),
    Key("id", str, "Where a delivery's id is, if not where the provider has it: the name of a header, or a JSON "
        "pointer such as /data/id. Without one, Idempotency-Key is looked at."),
    Key("event", str, "Where the kind of event is, if not where the provider has it: a header or a JSON pointer."),
    Key("key", str, "Where a record's key is: a header or a JSON pointer; by default records have none."),
    Key("headers", list, "Further headers that go into the record."),
    Key("replays", str, "What makes a delivery the same as one before: its id, or also its body, where the id is not "
        "signed.", "id", choices=("id", "body")),
    Key("signature_header", str, "For hmac: the header with the signature."),
    Key("prefix", str, "For hmac: what stands before the signature, such as sha256=."),
    Key("hash", str, "For hmac: the hash.", "sha256", choices=HASHES),
    Key("encoding", str, "For hmac: how the signature is written.", "hex", choices=ENCODINGS),
    Key("signed", str, "For hmac: what is signed, with {body}, and {timestamp} and {id} if they are.", "{body}"),
    Key("timestamp_header", str, "For hmac: the header with the time in seconds since 1970."),
)  # fmt: skip
_ONLY_HMAC: Final = ("signature_header", "prefix", "hash", "encoding", "signed", "timestamp_header")
# In the table of an endpoint, where they cannot be mistaken for options of a command.
_SECRET_PLACES: Final = (
    Key("secret_file", str, "A file with the secret, which others must not be able to read."),
    Key("secret_env", str, "The variable of the environment that holds the secret."),
)

WEBHOOK_KEYS: Final = (
    port("port", "The port that is listened on.", DEFAULT_PORT),
    Key("host", str, "Where to listen.", "127.0.0.1"),
    Key("certificate", str, "A PEM file of a private key and its certificates, to speak TLS."),
    Key("insecure", bool, "Let anybody send to an endpoint without signatures on another host than loopback.", False),
    Key("endpoints", dict, "Several endpoints, each a table with the keys below, and secret_file or secret_env in "
        "place of secret.", is_secret=True),
    *_ENDPOINT_KEYS,
    Key("max_body", int, "How many bytes the body of a request may have.", 1_000_000, least=1, most=64 * 1024 * 1024),
    Key("max_connections", int, "How many connections may be open at once.", 500, least=1, most=100_000),
    Key("remember", str, "For how long the ids of deliveries are remembered.", "3 days"),
    Key("remember_most", int, "How many ids are remembered at the most; the oldest are forgotten first.", 200_000,
        least=1, most=10_000_000),
    Key("answer_within", str, "How long a request waits for its record to be durable, before it is answered 503.",
        "10 seconds"),
    Key("overload", str, "What happens when records come faster than the broker takes them: fail (answered 503), or "
        "block (requests wait, as long as answer_within says).", Overload.FAIL.value,
        choices=(Overload.FAIL.value, Overload.BLOCK.value)),
    Key("buffer_mb", int, "How many MiB of records may wait for the broker, and as many of requests that come in.", 64,
        least=1, most=16 * 1024),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    path: str
    topic: str
    provider: str
    scheme: Scheme | None  # None: anybody may send
    secrets: Secrets | None = field(repr=False)
    tolerance_s: float
    wanted: Wanted
    by_body: bool


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    name: str
    endpoints: tuple[Endpoint, ...]
    host: str
    port: int
    certificate: str
    max_body: int
    max_connections: int
    remember_ms: int
    remember_most: int
    answer_within_s: float
    overload: Overload
    buffer_bytes: int

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(endpoint.topic for endpoint in self.endpoints))

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "WebhookSettings":
        """From a section with its defaults; raises the first thing that is wrong."""
        where = f"gateways.{name}"
        endpoints = tuple(_endpoints(name, values))
        found = cls(
            name,
            endpoints,
            values["host"],
            values["port"],
            values.get("certificate") or "",
            values["max_body"],
            values["max_connections"],
            positive(values["remember"], f"[{where}] remember") // 1000,
            values["remember_most"],
            positive(values["answer_within"], f"[{where}] answer_within") / 1e6,
            Overload(values["overload"]),
            values["buffer_mb"] * 1024 * 1024,
        )
        if not found.host.isprintable() or not found.host or found.host != found.host.strip():
            raise GatewayError(f"[{where}] host is {found.host!r}: write an address such as 127.0.0.1")
        if is_public(found.host) and not values["insecure"]:
            for each in endpoints:
                if each.scheme is None:
                    raise GatewayError(
                        f"[{where}] host {found.host} can be reached from other machines, and endpoint {each.name} "
                        "takes what anybody sends: give it a provider and a secret, or allow it with insecure = true"
                    )
        return found


def _endpoints(name: str, values: Mapping[str, Any]) -> list[Endpoint]:
    where = f"gateways.{name}"
    tables = values.get("endpoints") or {}
    defaults = {key.name: key.default for key in _ENDPOINT_KEYS}
    said = [key.name for key in _ENDPOINT_KEYS if values.get(key.name) not in (None, defaults[key.name])]
    if tables and said:
        raise GatewayError(f"[{where}] has endpoints, and {said[0]} besides: write it in their tables")
    if not tables and not said:
        raise GatewayError(f'[{where}] has no provider: write provider = "github", or endpoints = {{ … }}')
    if len(tables) > MOST_ENDPOINTS:
        raise GatewayError(f"[{where}] has {len(tables):,} endpoints: write at most {MOST_ENDPOINTS:,}")
    found: list[Endpoint] = []
    for each, table in tables.items():
        here = f"{where}.endpoints.{each}"
        if not isinstance(table, dict):
            raise GatewayError(f"[{where}] endpoints.{each} is no table: write [{here}] and its keys")
        keys = (*_ENDPOINT_KEYS, *_SECRET_PLACES)
        for _, sentence in check_keys(keys, table, here):
            raise GatewayError(sentence)
        found.append(_endpoint(each, here, with_defaults(keys, table)))
    if not tables:
        found.append(_endpoint(name, where, values))
    paths: dict[str, str] = {}
    for endpoint in found:
        if (other := paths.setdefault(endpoint.path, endpoint.name)) != endpoint.name:
            raise GatewayError(f"[{where}] endpoints {other} and {endpoint.name} have the same path {endpoint.path}")
    return found


def _endpoint(name: str, where: str, values: Mapping[str, Any]) -> Endpoint:
    path, topic = values.get("path") or f"/{name}", values.get("topic") or name
    check_topic_name(topic)
    if not _PATH.fullmatch(path) or path in _OWN_PATHS:
        raise GatewayError(f"[{where}] path is {path[:80]!r}: write one such as /github, which is no probe of our own")
    provider = values.get("provider")
    if not provider:
        raise GatewayError(f"[{where}] has no provider: {nearest('', PROVIDERS, 'choose among')}")
    secrets = Secrets.of(f"[{where}]", values)
    if provider == NONE and secrets is not None:
        raise GatewayError(f"[{where}] has a secret and provider none: choose how requests are signed")
    if provider != NONE and secrets is None:
        raise GatewayError(f"[{where}] has no secret: write secret_file, or choose provider none for no signatures")
    scheme = _scheme(where, provider, values)
    headers = tuple(each.lower() for each in values.get("headers") or ())
    for each in headers:
        if not _HEADER.fullmatch(each) or each in ("authorization", "cookie"):
            raise GatewayError(f"[{where}] headers has {each[:80]!r}: write names of headers that are no secrets")
    id_source = read_source(values.get("id") or "", f"[{where}] id")
    event_source = read_source(values.get("event") or "", f"[{where}] event")
    in_body = _BODY_IDS.get(provider, ("", ""))
    usual_id = Source(scheme.id) if scheme and scheme.id else read_source(in_body[0], "")
    usual_event = Source(scheme.event) if scheme and scheme.event else read_source(in_body[1], "")
    wanted = Wanted(
        id_source if id_source.is_set else usual_id,
        event_source if event_source.is_set else usual_event,
        read_source(values.get("key") or "", f"[{where}] key"),
        headers,
    )
    return Endpoint(
        name,
        path,
        topic,
        provider,
        scheme,
        secrets,
        positive(values["tolerance"], f"[{where}] tolerance") / 1e6,
        wanted,
        values["replays"] == "body",
    )


def _scheme(where: str, provider: str, values: Mapping[str, Any]) -> Scheme | None:
    if provider != HMAC:
        defaults = {key.name: key.default for key in _ENDPOINT_KEYS}
        for name in _ONLY_HMAC:
            if values.get(name) not in (None, defaults[name]):
                raise GatewayError(f"[{where}] has {name}, which provider {provider} does not take: remove it")
        return SCHEMES.get(provider)
    for name in ("signature_header", "timestamp_header"):
        if (text := values.get(name)) and not _HEADER.fullmatch(text):
            raise GatewayError(f"[{where}] {name} is {text[:80]!r}: write the name of a header")
    if not values.get("signature_header"):
        raise GatewayError(f'[{where}] has no signature_header: write signature_header = "X-Signature"')
    signed, timestamp, id_name = values["signed"], values.get("timestamp_header") or "", values.get("id") or ""
    if "{body}" not in signed:
        raise GatewayError(f"[{where}] signed is {signed[:80]!r}, which leaves the body out: write {{body}} in it")
    if "{timestamp}" in signed and not timestamp:
        raise GatewayError(f"[{where}] signed has a {{timestamp}}: write timestamp_header as well")
    if "{timestamp}" not in signed and timestamp:
        raise GatewayError(f"[{where}] timestamp_header has a time that is not signed: write {{timestamp}} in signed")
    if "{id}" in signed and (not id_name or id_name.startswith("/")):
        raise GatewayError(f"[{where}] signed has an {{id}}: write the name of its header as id")
    return Scheme(
        values["signature_header"].lower(),
        values.get("prefix") or "",
        values["hash"],
        values["encoding"],
        signed,
        timestamp.lower(),
        id_name.lower() if "{id}" in signed else "",
    )
