"""What `headrace doctor` finds out about who may come in: certificates, files with secrets, listeners, users, ACLs.

Certificates are held against what OpenSSL does with them: a handshake in memory between the listener as it would be set
up and a client, so that what is told here is what a client would meet.
"""

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.broker.config import Address, BrokerConfig, Listener
from headrace.broker.logins import UsersFile
from headrace.broker.tls import Certificates
from headrace.cli.doctor import Finding, Verdict
from headrace.client.acls import read_rules
from headrace.client.address import Address as Bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import Refused
from headrace.client.users import list_users
from headrace.errors import HeadraceError
from headrace.secret_files import check_private
from headrace.security.acl import Acl, PatternType, is_some_host
from headrace.security.explanation import Rules, find_shadowed, find_unknown
from headrace.security.principal import ANONYMOUS

_SOON_S: Final = 30 * 86_400
_DAY_S: Final = 86_400
_CONNECT_S: Final = 3.0
_EVERYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - to know it, not to listen there
_MOST_SHOWN: Final = 5


# --- a broker as it is set up


def check_setup(config: BrokerConfig, authority: Path | None, config_file: Path | None = None) -> Iterator[Finding]:
    """Everything about the listeners that can be known without starting them."""
    if config_file is not None:
        yield _check_private(config_file, "the file of settings")
    if config.text("users.file"):
        yield _attempt("users.file", lambda: _read_users(config.text("users.file")))
    for listener in config.listeners:
        if listener.has_tls:
            yield from check_certificates(listener, config, authority)
        yield _check_reachable(listener)


def _read_users(path: str) -> str:
    UsersFile(path)
    return f"{path} can be read, by its owner alone"


def _check_private(path: Path, what: str) -> Finding:
    def look() -> str:
        check_private(path, what)
        return f"{path} is readable by its owner alone"

    return _attempt(what, look)


def _attempt(check: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(check, Verdict.FINE, look())
    except HeadraceError as error:
        return _broken(check, error)


def _broken(check: str, error: HeadraceError) -> Finding:
    """A sentence of ours is a problem and, behind its last colon, what helps."""
    problem, _, mend = str(error).rpartition(": ")
    return Finding(check, Verdict.BROKEN, problem or mend, mend if problem else "")


def check_certificates(listener: Listener, config: BrokerConfig, authority: Path | None) -> Iterator[Finding]:
    """Whether the key fits and is nobody else's, how long the certificate is valid, for which names, signed by whom."""
    check = f"certificate of {listener.name}"
    try:
        server = Certificates(listener, config).context
    except HeadraceError as error:
        yield _broken(check, error)
        return
    store = config.text_for(listener, "ssl.keystore.location")
    server.verify_mode = ssl.CERT_NONE  # the client that is played here has no certificate
    own = ssl.create_default_context(cadata=_certificates_in(store))
    own.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate is trusted as such: only what it says is asked
    own.check_hostname = False
    shown = _handshake(server, own)
    if isinstance(shown, str):
        yield Finding(check, Verdict.BROKEN, f"{store}: {shown}", f"put a new one into {store}: it is used at once")
        return
    yield _check_end(check, store, shown["notAfter"])
    yield from _check_names(check, listener, server, own, shown)
    yield _check_chain(check, server, authority, store)
    yield from _check_trusted(check, config.text_for(listener, "ssl.truststore.location"))


def _certificates_in(path: str) -> str:
    text = Path(path).read_text(encoding="ascii", errors="replace")
    marks = ("-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----")
    parts = text.split(marks[0])[1:]
    return "".join(f"{marks[0]}{part.partition(marks[1])[0]}{marks[1]}\n" for part in parts)


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = None) -> dict[str, Any] | str:
    """What the server's certificate says, or why a client does not take it; all in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(10):  # messages go to and fro a few times
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return (error.reason or str(error)).lower().replace("_", " ")
            if side is here:
                return dict(here.getpeercert() or {})
    return "the handshake does not end"


def _check_end(check: str, path: str, not_after: str) -> Finding:
    left_s = ssl.cert_time_to_seconds(not_after) - time.time()
    found = f"{path} is valid until {not_after} ({max(0, int(left_s // _DAY_S))} days)"
    if left_s < _SOON_S:
        return Finding(check, Verdict.NOTE, found, f"renew it soon: put a new one into {path}, which is used at once")
    return Finding(check, Verdict.FINE, found)


def _check_names(
    check: str, listener: Listener, server: ssl.SSLContext, client: ssl.SSLContext, shown: Mapping[str, Any]
) -> Iterator[Finding]:
    names = ", ".join(f"{kind}:{name}" for kind, name in shown.get("subjectAltName", ())) or "no name"
    host = listener.advertised.host if listener.advertised else listener.address.host
    if host in _EVERYWHERE:
        mend = "say with --advertise under which name clients come, to have it compared"
        yield Finding(check, Verdict.NOTE, f"it is for {names}, and clients are told the address they came by", mend)
        return
    client.check_hostname = True
    refused = _handshake(server, client, host)
    client.check_hostname = False
    if isinstance(refused, str):
        mend = f"clients refuse it: make one with {host} as a subjectAltName, or advertise one of its names"
        yield Finding(check, Verdict.BROKEN, f"it is for {names}, and clients come to {host}", mend)
    else:
        yield Finding(check, Verdict.FINE, f"it is for {names}, and clients come to {host}")


def _check_chain(check: str, server: ssl.SSLContext, authority: Path | None, store: str) -> Finding:
    try:
        client = ssl.create_default_context(cafile=str(authority) if authority else None)
    except OSError:
        mend = "give a PEM file of certificates with --authority"
        return Finding(check, Verdict.BROKEN, f"{authority} holds no certificates", mend)
    client.check_hostname = False
    refused = _handshake(server, client)
    if not isinstance(refused, str):
        return Finding(
            check, Verdict.FINE, f"clients that trust {authority or 'the authorities of this system'} take it"
        )
    if authority is None:
        mend = "name the authority that clients trust with --authority, to have it checked"
        return Finding(check, Verdict.NOTE, f"no authority of this system signed it ({refused})", mend)
    mend = f"put the certificates that lead to the authority behind its own in {store}, or give clients another"
    return Finding(check, Verdict.BROKEN, f"clients that trust {authority} refuse it ({refused})", mend)


def _check_trusted(check: str, path: str) -> Iterator[Finding]:
    """Authorities that sign clients: one that has expired lets in nobody."""
    if not path:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_verify_locations(cafile=path)
    ends = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs()]
    if any(end < time.time() for end in ends):
        mend = f"replace it in {path}: clients that it signed are refused"
        yield Finding(check, Verdict.BROKEN, f"an authority in {path} has expired", mend)


def _check_reachable(listener: Listener) -> Finding:
    """Whether something answers where clients are told to come."""
    address = listener.advertised or listener.address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104
    check = f"listener {listener.name}"
    if not address.port:
        return Finding(check, Verdict.FINE, "takes a free port")
    try:
        with socket.create_connection((host, address.port), timeout=_CONNECT_S):
            return Finding(check, Verdict.FINE, f"something answers at {Address(host, address.port)}")
    except OSError as error:
        mend = "start the broker; if it runs, check the name, the firewall, and what stands between"
        found = f"nothing answers at {Address(host, address.port)} ({error.strerror or error})"
        return Finding(check, Verdict.NOTE, found, mend)


# --- a broker that runs


def check_access(bootstrap: tuple[Bootstrap, ...]) -> list[Finding]:
    """Users and ACLs of a broker, looked through for what has no effect."""
    settings = ConnectionSettings(client_id="headrace-doctor", connect_timeout_s=_CONNECT_S, request_timeout_s=10)
    try:
        with Cluster(bootstrap, settings) as cluster:
            rules = read_rules(cluster)
            if rules is None:
                mend = "start it with authorization=on, and ACLs decide who may do what"
                return [Finding("acls", Verdict.NOTE, f"{cluster} allows everybody everything", mend)]
            try:
                users: Iterable[str] | None = list_users(cluster)
            except Refused:
                users = None
    except HeadraceError as error:
        return [Finding("acls", Verdict.BROKEN, "they cannot be looked at", str(error))]
    return list(judge_acls(rules, users))


def judge_acls(rules: Rules, users: Iterable[str] | None) -> Iterator[Finding]:
    """What is odd about ACLs; `users` is None where it is not known who there is."""
    yield Finding("acls", Verdict.FINE, f"{len(rules.acls)} ACLs, {_name_super_users(rules)}")
    hosts = sorted({acl.host for acl in rules.acls if not is_some_host(acl.host)})
    if hosts:
        mend = "clients are known by their addresses: remove these (headrace acl remove … --host), and write addresses"
        yield Finding("acl hosts", Verdict.NOTE, f"hosts that are nobody's: {_some(hosts)}", mend)
    if users is not None:
        known = {*users, ANONYMOUS.name, *(each.name for each in rules.super_users or ())}
        unknown = find_unknown(rules.acls, lambda principal: principal.name in known)
        if unknown:
            mend = (
                "add them (headrace user add) or remove their ACLs, unless they are of users.file, a certificate or a "
                "token, which the broker does not list"
            )
            yield Finding("acl users", Verdict.NOTE, f"users without a password: {_some(unknown)}", mend)
    for allow, deny in find_shadowed(rules.acls)[:_MOST_SHOWN]:
        found = f"{_describe(allow)} is in vain: {_describe(deny)}"
        yield Finding("acl in vain", Verdict.NOTE, found, "remove one of the two (headrace acl remove)")


def _name_super_users(rules: Rules) -> str:
    if rules.super_users is None:
        return "super users are not told"
    named = _some(sorted(map(str, rules.super_users)))
    return f"super users: {named}" if named else "no super users"


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_SHOWN])
    return shown + (f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else "")


def _describe(acl: Acl) -> str:
    name = acl.resource_name + ("…" if acl.pattern_type is PatternType.PREFIXED else "")
    what = f"{acl.permission.name.lower()} {acl.operation.name.lower()} {acl.resource_type.name.lower()} {name}"
    return f"{acl.principal} {what} from {acl.host}"
