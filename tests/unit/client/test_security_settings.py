"""Kafka's names for how to connect: what they become, and what is refused before a connection is tried."""

import pytest

from headrace.client.connection import ConnectionSettings
from headrace.client.errors import BadSecurity
from headrace.client.sasl import Credentials
from headrace.client.security import settings_from
from headrace.client.tls_settings import Pem, TlsSettings

PACKAGE = "org.apache.kafka.common.security"
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "alice",
    "sasl.password": "hush",
}
TOKENS = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
    "sasl.oauthbearer.client.id": "shop",
    "sasl.oauthbearer.client.secret": "hush",
}


def jaas(text, mechanism="PLAIN"):
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": text}


def refusal(options):
    with pytest.raises(BadSecurity) as caught:
        settings_from(options)
    assert "hush" not in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_nothing_said_is_plaintext():
    assert settings_from({}) == ConnectionSettings()


def test_names_that_are_not_about_security_are_ignored():
    others = {"session.timeout.ms": "1", "linger.ms": "5", "fetch.min.bytes": "1", "group.id": "g"}
    assert settings_from(others) == ConnectionSettings()
    assert settings_from({"client.id": "me"}).client_id == "me"


def test_a_name_and_a_password():
    settings = settings_from(LOGIN)
    assert settings.security_protocol == "SASL_SSL"
    assert settings.credentials == Credentials("SCRAM-SHA-256", "alice", "hush")
    assert settings.tls == TlsSettings()


def test_the_case_of_names_and_words():
    spelt = {"Security.Protocol": "sasl_ssl", "SASL.MECHANISMS": "plain", "sasl.username": "a", "sasl.password": "b"}
    assert settings_from(spelt).credentials == Credentials("PLAIN", "a", "b")


def test_nothing_secret_is_shown():
    text = repr(settings_from(LOGIN | {"ssl.key.pem": "hush", "ssl.certificate.pem": "c", "ssl.key.password": "hush"}))
    assert "alice" in text
    assert "hush" not in text


@pytest.mark.parametrize(
    ("text", "password"),
    [
        (f'{PACKAGE}.plain.PlainLoginModule required username="alice" password="p";', "p"),
        (f"{PACKAGE}.scram.ScramLoginModule REQUIRED\n  username='alice'\n  password='p w';\n", "p w"),
        ('shaded.PlainLoginModule required password="a\\"b\\\\c;=" username="alice" ;', 'a"b\\c;='),
        ('PlainLoginModule required username=alice password=p serviceName="kafka";', "p"),
        ('PlainLoginModule required username="alice" password=";";', ";"),
    ],
)
def test_jaas(text, password):
    assert settings_from(jaas(text)).credentials == Credentials("PLAIN", "alice", password)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        'PlainLoginModule required username="alice" password="hush"',
        'PlainLoginModule required username="alice password=hush;',
        'PlainLoginModule username="alice" password="hush";',
        'PlainLoginModule required username "alice" password "hush";',
        'PlainLoginModule required username="a" password="hush"; PlainLoginModule required username="b" password="c";',
        'PlainLoginModule required username="alice";',
        'PlainLoginModule required user_alice="hush";',
        "hush required;",
        'com.sun.security.auth.module.Krb5LoginModule required principal="hush";',
        'ScramLoginModule required username="alice" password="hush" tokenauth="true";',
    ],
)
def test_jaas_that_will_not_do(text):
    assert refusal(jaas(text)).startswith("sasl.jaas.config ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"security.protocol": "TLS"}, "choose PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ({"securty.protocol": "SSL"}, "did you mean 'security.protocol'?"),
        (LOGIN | {"sasl.user.name": "alice"}, "no kafka option 'sasl.user.name': did you mean 'sasl.username'?"),
        ({"ssl.ca.file": "x"}, "did you mean 'ssl.ca."),
        ({"ssl.cipher.suites": "x"}, "cannot be honoured"),
        ({"sasl.username": "alice"}, "sasl.username is given without security.protocol"),
        (LOGIN | {"sasl.mechanism": ""}, "SASL_SSL needs sasl.mechanism"),
        (LOGIN | {"sasl.mechanism": "GSSAPI"}, "set sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or"),
        (LOGIN | {"sasl.mechanism": "OAUTHBEARER"}, "set sasl.oauthbearer.token.endpoint.url to an https:// address"),
        (LOGIN | {"sasl.username": ""}, "set sasl.username and sasl.password"),
        (LOGIN | {"sasl.username": "a\0b"}, "zero byte"),
        (LOGIN | {"sasl.jaas.config": "x"}, "leave one out"),
        (LOGIN | {"ssl.enabled.protocols": "SSLv3"}, "choose of TLSv1.2, TLSv1.3"),
        (LOGIN | {"ssl.endpoint.identification.algorithm": "ldaps"}, "write https, or nothing"),
        (LOGIN | {"enable.ssl.certificate.verification": "no"}, "write true or false"),
        (LOGIN | {"ssl.key.location": "k"}, "ssl.key.location is a key without its certificate"),
        (LOGIN | {"ssl.ca.location": "a", "ssl.ca.pem": "b"}, "ssl.ca.location and ssl.ca.pem say the same"),
    ],
)
def test_what_will_not_do(options, said):
    assert said in refusal(options)


def test_stores_that_only_java_reads():
    trust = refusal({"security.protocol": "SSL", "ssl.truststore.location": "/etc/trust.jks"})
    assert "a store of type JKS" in trust
    assert "keytool -list -rfc -keystore /etc/trust.jks > truststore.pem" in trust
    assert "set ssl.truststore.type to PEM" in trust
    own = {"security.protocol": "SSL", "ssl.keystore.type": "pkcs12", "ssl.keystore.location": "own.p12"}
    assert "a store of type PKCS12" in refusal(own)
    assert "openssl pkcs12 -in store.p12 -out keystore.pem" in refusal(own)


def test_stores_in_pem():
    tls = settings_from(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "trust.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": "k",
            "ssl.keystore.certificate.chain": "c",
            "ssl.keystore.password": "ignored",
            "ssl.key.password": "p",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
        }
    ).tls
    assert tls == TlsSettings(
        authorities=Pem("ssl.truststore.location", path="trust.pem"),
        certificate=Pem("ssl.keystore.certificate.chain", text="c"),
        key=Pem("ssl.keystore.key", text="k"),
        key_password="p",
        check_hostname=False,
        versions=("TLSv1.3",),
    )


def test_plaintext_with_the_rest_of_a_shared_configuration():
    assert settings_from(LOGIN | {"security.protocol": "PLAINTEXT"}) == ConnectionSettings()


def test_where_tokens_come_from():
    endpoint = settings_from(TOKENS | {"sasl.oauthbearer.scope": "kafka"}).credentials.tokens
    assert (endpoint.client_id, endpoint.client_secret, endpoint.scope) == ("shop", "hush", "kafka")
    assert "hush" not in repr(endpoint)
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'clientId="shop" clientSecret="hush" scope="kafka";'
        ),
    }
    assert settings_from(java).credentials.tokens == endpoint
