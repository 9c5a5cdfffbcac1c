"""What a listener may have for itself, as `listener.name.NAME.SETTING`; without the prefix it is for all of them."""

from headrace.broker.settings.setting import INT, LIST, LONG, STRING, Setting, SettingType

PREFIX_OF_LISTENERS = "listener.name."
_ONLY_PEM = "Kept and shown; without effect: only PEM is read."
LISTENER_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "connections.max.reauth.ms",
            LONG,
            "0",
            "After how long a client has to log in again on its connection (KIP-368); 0 for never.",
            at_least=0,
        ),
        Setting(
            "max.connections",
            INT,
            "10000",
            "Connections, in all or of one listener; at the limit, a silent one makes room for a new one.",
            at_least=1,
        ),
        Setting(
            "sasl.enabled.mechanisms",
            LIST,
            "SCRAM-SHA-512,SCRAM-SHA-256",
            "How clients may log in.",
            choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        ),
        Setting(
            "sasl.oauthbearer.clock.skew.seconds", INT, "30", "By how much a token's clock may differ.", at_least=0
        ),
        Setting("sasl.oauthbearer.expected.audience", LIST, "", "Whom a token must be for, one of these."),
        Setting("sasl.oauthbearer.expected.issuer", STRING, "", "Who must have issued a token."),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            LONG,
            "3600000",
            "After how long the keys that sign tokens are read again.",
            at_least=1,
        ),
        Setting(
            "sasl.oauthbearer.jwks.endpoint.url",
            STRING,
            "",
            "The keys that sign tokens (JWKS): an https:// address, or a file:// on this machine.",
        ),
        Setting("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim of a token that names its user."),
        Setting(
            "ssl.client.auth",
            STRING,
            "none",
            "Whether clients show a certificate.",
            choices=("required", "requested", "none"),
        ),
        Setting("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", "Versions of TLS.", choices=("TLSv1.2", "TLSv1.3")),
        Setting("ssl.key.password", SettingType.PASSWORD, "", "Opens the private key, if it is encrypted."),
        Setting("ssl.keystore.location", STRING, "", "A PEM file of the broker's private key and its certificates."),
        Setting("ssl.keystore.type", STRING, "PEM", _ONLY_PEM, choices=("PEM",)),
        Setting(
            "ssl.principal.mapping.rules",
            STRING,
            "DEFAULT",
            "A user's name from the name in its certificate: RULE:pattern/replacement/[LU] or DEFAULT.",
        ),
        Setting("ssl.truststore.location", STRING, "", "A PEM file of the authorities whose clients are trusted."),
        Setting("ssl.truststore.type", STRING, "PEM", _ONLY_PEM, choices=("PEM",)),
    )
}


def find_of_listener(name: str) -> Setting | None:
    """The setting of this whole name, prefix and all; None if it is not a listener's own."""
    if not name.startswith(PREFIX_OF_LISTENERS):
        return None
    return LISTENER_SETTINGS.get(name.removeprefix(PREFIX_OF_LISTENERS).partition(".")[2])
