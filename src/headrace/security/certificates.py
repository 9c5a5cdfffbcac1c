"""Who a client is by its certificate: the certificate's name as Java writes it, and a user's name out of that.

Kafka takes the whole distinguished name in the form of RFC 2253 (`CN=alice,OU=data,O=Acme`), unless
`ssl.principal.mapping.rules` makes something shorter of it. ACLs are written with these names, so the form has to be
Java's to the letter.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.errors import HeadraceError

# The attributes that RFC 2253 has a word for, by OpenSSL's names; any other is told by its number and in hexadecimal.
_WORDS = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_PRINTABLE, _UTF8, _IA5 = 0x13, 0x0C, 0x16
_NUMBERS = {
    "emailAddress": ("1.2.840.113549.1.9.1", _IA5),
    "serialNumber": ("2.5.4.5", _PRINTABLE),
    "surname": ("2.5.4.4", _UTF8),
    "title": ("2.5.4.12", _UTF8),
    "givenName": ("2.5.4.42", _UTF8),
    "initials": ("2.5.4.43", _UTF8),
    "dnQualifier": ("2.5.4.46", _PRINTABLE),
    "pseudonym": ("2.5.4.65", _UTF8),
}
_SPECIAL = re.compile(r'([,+"\\<>;])')

Name = Sequence[Sequence[tuple[str, str]]]  # as `ssl.SSLObject.getpeercert` gives a subject: the widest part first


def format_name(subject: Name) -> str:
    """A distinguished name by RFC 2253: the narrowest part first."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject))


def _attribute(name: str, value: str) -> str:
    if name in _WORDS:
        return f"{_WORDS[name]}={_escape(value)}"
    number, kind = _NUMBERS.get(name, (name, _UTF8))
    data = value.encode()
    size = len(data)
    length = bytes([size]) if size < 0x80 else bytes([0x82]) + size.to_bytes(2, "big")
    return f"{number}=#{(bytes([kind]) + length + data).hex()}"


def _escape(value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped


class InvalidRule(HeadraceError):
    """`ssl.principal.mapping.rules` cannot be read."""


class Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None for DEFAULT, which leaves a name as it is
    replacement: str = ""
    case: str = ""


# The text between slashes, in which a slash is written with a backslash; then L or U to change the case.
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)", re.DOTALL)
_GROUP = re.compile(r"\$(\d)")


def parse_rules(text: str) -> tuple[Rule, ...]:
    """From `RULE:pattern/replacement/[LU],…,DEFAULT`; raises `InvalidRule`."""
    rules = []
    position = 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        if found is None:
            raise InvalidRule(
                f"ssl.principal.mapping.rules: {text[position:]!r} is not a rule: write RULE:pattern/replacement/, "
                "with L or U at its end for another case, or DEFAULT"
            )
        default, pattern, replacement, case = found.groups()
        try:
            rules.append(
                Rule(None)
                if default
                else Rule(re.compile(pattern.replace("\\/", "/")), replacement.replace("\\/", "/"), case)
            )
        except re.error as error:
            raise InvalidRule(f"ssl.principal.mapping.rules: pattern {pattern!r} cannot be read ({error})") from None
        position = found.end()
    return tuple(rules) or (Rule(None),)


def map_name(name: str, rules: Iterable[Rule]) -> str | None:
    """The user's name by the first rule whose pattern is the whole of it; None if there is none."""
    for rule in rules:
        if rule.pattern is None:
            return name
        found = rule.pattern.fullmatch(name)
        if found:
            mapped = _GROUP.sub(lambda group, found=found: found[int(group[1])] or "", rule.replacement)  # type: ignore[misc]
            return {"L": mapped.lower(), "U": mapped.upper()}.get(rule.case, mapped)
    return None
