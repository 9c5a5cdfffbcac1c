"""How a cluster is reached when the environment says so: `HEADRACE_KAFKA`, for every command and every process.

It names a file of Kafka's own client settings, as Kafka's tools take one by `--command-config`, or holds the settings
themselves as a JSON object, which is how a stack hands them to its parts. Settings that a program gives itself go
before it. With `bootstrap.servers` among them they hold for that cluster alone, so that a job which reads elsewhere
shows its password to nobody.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.client.address import Address, parse_bootstrap
from headrace.client.connection import PLAINTEXT, ConnectionSettings
from headrace.client.errors import BadSecurity

VARIABLE = "HEADRACE_KAFKA"
BOOTSTRAP = "bootstrap.servers"


def settings_around(bootstrap: Sequence[Address], environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What the environment says about reaching this cluster, by Kafka's names; empty if it says nothing.

    No error shows a value: it may be a password.
    """
    text = environment.get(VARIABLE, "").strip()
    if not text:
        return {}
    found = _from_json(text) if text.startswith("{") else _from_file(Path(text))
    there = found.pop(BOOTSTRAP, "")
    is_meant = not there or not set(parse_bootstrap(there)).isdisjoint(bootstrap)
    return found if is_meant else {}


def reached_as(
    bootstrap: Sequence[Address], given: ConnectionSettings, environment: Mapping[str, str] = os.environ
) -> ConnectionSettings:
    """The settings for a cluster: those given, made safe as the environment says where they say nothing of it."""
    if VARIABLE not in environment or given.security_protocol != PLAINTEXT:
        return given
    around = settings_around(bootstrap, environment)
    if not around:
        return given
    from headrace.client.security import settings_from  # whoever connects in the open does not load it

    try:
        safe = settings_from(around)
    except BadSecurity as error:
        raise BadSecurity(f"{VARIABLE}: {error}") from None
    return replace(given, security_protocol=safe.security_protocol, tls=safe.tls, credentials=safe.credentials)


def _from_json(text: str) -> dict[str, str]:
    try:
        found = json.loads(text)
    except ValueError:
        raise BadSecurity(
            f"{VARIABLE} begins as JSON and is none: write an object of Kafka's settings, or the name of a file"
        ) from None
    return {str(name): _text(value) for name, value in found.items()}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadSecurity(
            f"{VARIABLE} names {path}, which cannot be read ({why}): name a file of lines such as "
            "security.protocol=SASL_SSL"
        ) from None
    found = {}
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, equals, value = stripped.partition("=")
        if not equals or not name.strip():
            raise BadSecurity(f"{path}:{number} is not NAME=VALUE: write for example security.protocol=SASL_SSL")
        found[name.strip()] = value.strip()
    return found
