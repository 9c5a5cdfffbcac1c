r"""A name and a password out of `sasl.jaas.config`, the way Kafka's Java clients are told them.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";

No error here shows any of the text, because the password is in it.
"""

import re

from headrace.client.security_errors import BadSecurity

_OPTION = "sasl.jaas.config"
_SPEAKABLE = ("PlainLoginModule", "ScramLoginModule")
_FLAGS = ("required", "requisite", "sufficient", "optional")
_FORM = 'write it as …PlainLoginModule required username="…" password="…";'
_TOKEN = re.compile(
    r"""\s*(?: "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
        | (?P<mark>[=;]) | (?P<word>[^\s=;"']+) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def read_login(text: str) -> tuple[str, str]:
    """The name and the password in a login module's configuration."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[1].lower() not in _FLAGS or tokens[-1] != ";":
        raise BadSecurity(f"{_OPTION} cannot be read: {_FORM}")
    module = tokens[0].rpartition(".")[2]  # the package differs where Spark comes with a Kafka of its own
    if module not in _SPEAKABLE:
        # Shown only if it looks like a class: what stands there by mistake may be the password.
        named = module if module.isidentifier() and module.endswith("LoginModule") else "another module"
        raise BadSecurity(f"{_OPTION} names {named}, which is not supported: use {' or '.join(_SPEAKABLE)}")
    options = _options(tokens[2:-1])
    if options.get("tokenauth", "false").lower() == "true":
        raise BadSecurity(f"{_OPTION} has tokenauth, but delegation tokens are not supported: give a user's password")
    if not options.get("username") or not options.get("password"):
        raise BadSecurity(f"{_OPTION} has no username or no password: {_FORM}")
    return options["username"], options["password"]


def _options(tokens: list[str]) -> dict[str, str]:
    names, marks, values = tokens[::3], tokens[1::3], tokens[2::3]
    if len(names) != len(values) or any(mark != "=" for mark in marks) or ";" in names:
        raise BadSecurity(f"{_OPTION} cannot be read: {_FORM}")
    return dict(zip(names, values, strict=True))


def _tokens(text: str) -> list[str]:
    tokens = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise BadSecurity(f"{_OPTION} cannot be read: {_FORM}")
        quoted = found["double"] if found["double"] is not None else found["single"]
        tokens.append(found[found.lastgroup or 0] if quoted is None else _unescaped(quoted))
        position = found.end()
    return tokens


def _unescaped(quoted: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[1]), quoted)
