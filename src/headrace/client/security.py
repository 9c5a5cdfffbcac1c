"""Kafka's own names for how to reach a cluster, as Java's clients and librdkafka write them, into our settings.

What is about security is taken exactly: a name under `ssl.` or `sasl.` that does not exist, or that could not be
honoured, is refused, because a connection that is less safe than was asked for looks like one that works. All other
names that Kafka's consumers and producers have and this client has no use for (`session.timeout.ms`, `linger.ms` …)
are accepted and ignored: they are passed along in configurations that many programs share, and Spark has its own
options for what matters of them here.
"""

from collections.abc import Mapping

from headrace.client.connection import PLAINTEXT, SASL_PROTOCOLS, SECURITY_PROTOCOLS, ConnectionSettings
from headrace.client.errors import BadSecurity
from headrace.client.sasl import OAUTHBEARER, Credentials, TokenEndpoint, read_login, read_module
from headrace.client.tls_settings import BY_DEFAULT, VERSIONS, Pem, TlsSettings
from headrace.errors import nearest

_USED = (
    "security.protocol",
    "sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location", "ssl.ca.pem", "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem", "ssl.key.password",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain",
    "ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification", "ssl.enabled.protocols",
)  # fmt: skip

# What changes nothing here, nor for Java's clients with PEM files and the mechanisms that are spoken here.
_WITHOUT_EFFECT = (
    "ssl.protocol", "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
    "ssl.truststore.password", "ssl.keystore.password",
)  # fmt: skip
_PREFIXES_WITHOUT_EFFECT = ("sasl.kerberos.", "sasl.oauthbearer.", "sasl.login.refresh.", "sasl.login.retry.")

# Real names that we cannot honour: Java classes, and choices that Python's ssl does not give or names otherwise.
_IMPOSSIBLE = (
    "ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list", "ssl.crl.location", "ssl.ca.certificate.stores",
    "ssl.provider", "ssl.providers", "ssl.engine.factory.class", "ssl.engine.location", "ssl.engine.id",
    "sasl.login.class", "sasl.login.callback.handler.class", "sasl.client.callback.handler.class", "security.providers",
    "sasl.oauthbearer.config",
)  # fmt: skip

_CHECKED_PREFIXES = ("ssl.", "sasl.", "security.")
_SURELY_MISSPELT = 0.85  # as `securty.protocol`, which to ignore would be to connect in the open
_STORES_AS_PEM = {
    "ssl.truststore": "keytool -list -rfc -keystore {store} > truststore.pem",
    "ssl.keystore": (
        "keytool -importkeystore -srckeystore {store} -destkeystore store.p12 -deststoretype PKCS12, "
        "then openssl pkcs12 -in store.p12 -out keystore.pem"
    ),
}


def settings_from(options: Mapping[str, str]) -> ConnectionSettings:
    """How to reach the brokers, from options by Kafka's names; raises `BadSecurity` at the first that will not do."""
    given = {name.lower(): value for name, value in options.items()}
    for name in given:
        _check_name(name)
    protocol = _protocol(given)
    return ConnectionSettings(
        client_id=given.get("client.id") or "headrace",
        security_protocol=protocol,
        tls=_tls(given) if protocol.endswith("SSL") else BY_DEFAULT,
        credentials=_credentials(given, protocol) if protocol in SASL_PROTOCOLS else None,
    )


def _check_name(name: str) -> None:
    if name in _IMPOSSIBLE:
        raise BadSecurity(f"kafka option {name!r} cannot be honoured by this client: leave it out")
    if name in _USED or name in _WITHOUT_EFFECT or name.startswith(_PREFIXES_WITHOUT_EFFECT):
        return
    likeness = 0.0 if name.startswith(_CHECKED_PREFIXES) else _SURELY_MISSPELT
    if hint := nearest(name, _USED, otherwise="", likeness=likeness):
        raise BadSecurity(f"there is no kafka option {name!r}: {hint}")


def _protocol(given: Mapping[str, str]) -> str:
    if "security.protocol" not in given:
        meant = next((name for name in given if name in _USED), None)
        if meant:
            raise BadSecurity(f"{meant} is given without security.protocol: set it to {_one_of(SECURITY_PROTOCOLS)}")
        return PLAINTEXT
    protocol = given["security.protocol"].strip().upper()
    if protocol not in SECURITY_PROTOCOLS:
        said = given["security.protocol"]
        raise BadSecurity(f"security.protocol is {said!r}: choose {_one_of(SECURITY_PROTOCOLS)}")
    return protocol


# --- who we are


def _credentials(given: Mapping[str, str], protocol: str) -> Credentials:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    if not mechanism:
        # Kafka's default is GSSAPI, which nobody means who leaves it out.
        raise BadSecurity(
            f"{protocol} needs sasl.mechanism: set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
        )
    if mechanism.strip().upper() == OAUTHBEARER:
        return Credentials(OAUTHBEARER, tokens=_token_endpoint(given))
    if "sasl.jaas.config" in given:
        if "sasl.username" in given or "sasl.password" in given:
            raise BadSecurity("sasl.jaas.config and sasl.username with sasl.password say the same: leave one out")
        username, password = read_login(given["sasl.jaas.config"])
    else:
        username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    return Credentials(mechanism.strip().upper(), username, password)


def _token_endpoint(given: Mapping[str, str]) -> TokenEndpoint:
    """As librdkafka and Kafka since 4.1 name it, or as Kafka before in `sasl.jaas.config`."""
    jaas = read_module(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else {}
    prefix = "sasl.oauthbearer."

    def one(name: str, in_jaas: str) -> str:
        long, short = given.get(f"{prefix}client.credentials.{name}"), given.get(f"{prefix}{name}")
        return long or short or jaas.get(in_jaas, "")

    return TokenEndpoint(
        given.get(f"{prefix}token.endpoint.url", ""),
        one("client.id", "clientId"),
        one("client.secret", "clientSecret"),
        given.get(f"{prefix}scope") or jaas.get("scope", ""),
    )


# --- TLS


def _tls(given: Mapping[str, str]) -> TlsSettings:
    certificate, key = _identity(given)
    return TlsSettings(
        authorities=_one(given, files=("ssl.ca.location",), texts=("ssl.ca.pem",)) or _truststore(given),
        certificate=certificate,
        key=key,
        key_password=given.get("ssl.key.password"),
        verify=_flag(given, "enable.ssl.certificate.verification"),
        check_hostname=_checks_hostname(given),
        versions=_versions(given),
    )


def _truststore(given: Mapping[str, str]) -> Pem | None:
    _check_store(given, "ssl.truststore", ("location", "certificates"))
    return _one(given, files=("ssl.truststore.location",), texts=("ssl.truststore.certificates",))


def _identity(given: Mapping[str, str]) -> tuple[Pem | None, Pem | None]:
    """Our certificate, and its key if that is elsewhere."""
    _check_store(given, "ssl.keystore", ("location", "key", "certificate.chain"))
    certificate = _one(
        given,
        files=("ssl.certificate.location", "ssl.keystore.location"),
        texts=("ssl.certificate.pem", "ssl.keystore.certificate.chain"),
    )
    key = _one(given, files=("ssl.key.location",), texts=("ssl.key.pem", "ssl.keystore.key"))
    if key and not certificate:
        beside = key.option.replace(".keystore.key", ".keystore.certificate.chain").replace(
            "ssl.key.", "ssl.certificate."
        )
        raise BadSecurity(f"{key.option} is a key without its certificate: set {beside} too")
    return certificate, key


def _one(given: Mapping[str, str], *, files: tuple[str, ...], texts: tuple[str, ...]) -> Pem | None:
    named = [name for name in (*files, *texts) if given.get(name)]
    if len(named) > 1:
        raise BadSecurity(f"{' and '.join(named)} say the same: leave one out")
    if not named:
        return None
    return Pem(named[0], path=given[named[0]]) if named[0] in files else Pem(named[0], text=given[named[0]])


def _check_store(given: Mapping[str, str], store: str, parts: tuple[str, ...]) -> None:
    used = [f"{store}.{part}" for part in parts if given.get(f"{store}.{part}")]
    kind = given.get(f"{store}.type", "JKS").upper()  # JKS is Kafka's default
    if used and kind != "PEM":
        path = given.get(f"{store}.location") or "STORE"
        convert = _STORES_AS_PEM[store].format(store=path)
        raise BadSecurity(
            f"{used[0]} is a store of type {kind}, and only PEM can be read: convert it ({convert}), name the new "
            f"file, and set {store}.type to PEM"
        )


def _checks_hostname(given: Mapping[str, str]) -> bool:
    said = given.get("ssl.endpoint.identification.algorithm", "https")
    if said.strip().lower() not in ("https", "", "none"):
        raise BadSecurity(
            f"ssl.endpoint.identification.algorithm is {said!r}: write https, or nothing to leave the host's name "
            "unchecked"
        )
    return said.strip().lower() == "https"


def _flag(given: Mapping[str, str], name: str) -> bool:
    said = given.get(name, "true").strip().lower()
    if said not in ("true", "false"):
        raise BadSecurity(f"{name} is {given[name]!r}: write true or false")
    return said == "true"


def _versions(given: Mapping[str, str]) -> tuple[str, ...]:
    said = given.get("ssl.enabled.protocols") or ",".join(VERSIONS)
    versions = tuple(version.strip() for version in said.split(","))
    if not set(versions) <= set(VERSIONS):
        raise BadSecurity(f"ssl.enabled.protocols is {said!r}: choose of {', '.join(VERSIONS)}")
    return versions


def _one_of(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
