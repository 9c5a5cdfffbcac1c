"""The keys of a section that say who may use what answers HTTP, and the same as options of a command."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from headrace.client.address import Address
from headrace.section_keys import Complaint, Key
from headrace.serving.access import SHORTEST_TOKEN, Access, NotSafe, TokensFile, users_of
from headrace.telemetry.audit import AUDIT_BYTES, AUDIT_FILES, AuditFile, AuditLog

ACCESS_KEYS: Final = (  # of what answers HTTP
    Key("host", str, "Where to listen; another than loopback needs logins or tokens.", "127.0.0.1"),
    Key("host_names", list, "Further names under which it answers."),
    Key("tokens", str, "A file of tokens for programs, which `headrace user token` writes."),
    Key("certificate", str, "A PEM file of a private key and its certificates, to speak TLS."),
    Key("insecure", bool, "Let anybody in who can reach another host than loopback.", False),
    Key(
        "audit",
        str,
        "A file to record in who changed something and who was not let in; with security on .headrace/audit/….log.",
    ),
)


def access_arguments(values: Mapping[str, Any]) -> list[str]:
    """The same as options of a command."""
    arguments = ["--host", values["host"]]
    for name in values.get("host_names", ()):
        arguments += ["--host-name", name]
    for name in ("tokens", "certificate", "audit"):
        arguments += [f"--{name}", values[name]] if values.get(name) else []
    return arguments + (["--insecure"] if values["insecure"] else [])


def check_access(values: Mapping[str, Any], where: str) -> Iterator[Complaint]:
    """What is wrong with who is let in, as far as it can be known before the broker runs, which may have users."""
    is_asked_later = values.get("tokens") or values.get("certificate") or values.get("allow_writes")
    token = values.get("token") or ("?" * SHORTEST_TOKEN if is_asked_later else None)
    try:
        Access(values["host"], token=token, is_insecure=values["insecure"])
    except NotSafe as error:
        yield ("token",) if "token" in values else ("host",), f"[{where}] {error}"


def access_of(values: Mapping[str, Any], bootstrap: Sequence[Address]) -> Access:
    """What a section says, and whom the broker knows; raises `NotSafe`."""
    audit = values.get("audit")
    return Access(
        values["host"],
        tuple(values.get("host_names") or ()),
        tokens=TokensFile(values["tokens"]) if values.get("tokens") else None,
        users=users_of(bootstrap),
        certificate=values.get("certificate") or "",
        is_insecure=values["insecure"],
        audit=AuditLog(AuditFile(Path(audit), AUDIT_BYTES, AUDIT_FILES) if audit else None),
    )
