"""`[forgetting]`: where the keys of subjects are, and where else than in its own sections a stack keeps personal data.

It has no process of its own: captures, derived systems and `headrace forget` read it.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from headrace.connect.sections import all_resolved, escaped
from headrace.errors import HeadraceError, nearest
from headrace.forgetting.keyring import Keyring, open_keys
from headrace.model import check_topic_name
from headrace.section_keys import Complaint, Key
from headrace.stack.document import parse_document, read_text
from headrace.stack.errors import StackError
from headrace.stack.kind import Kind, Section, Stack

NAME: Final = "forgetting"
_KEY_STORES: Final = ("sqlite", "postgresql", "postgres")


def _check(section: Section) -> Iterable[Complaint]:
    if (scheme := urlsplit(section.values["keys"]).scheme) not in _KEY_STORES:
        hint = nearest(scheme, _KEY_STORES, "write")
        yield ("keys",), f"[{section.where}] keys: {scheme or 'a path'}:… is not a key store's address: {hint}://…"
    for topic, field in section.values.get("topics", {}).items():
        try:
            check_topic_name(topic)
        except HeadraceError as error:
            yield ("topics", topic), f"[{section.where}] topics: {error}"
        if not isinstance(field, str) or not field:
            yield ("topics", topic), f"[{section.where}] topics: {topic} needs the name of the field with the subject"


def keys_of_file(config: Path, environment: Mapping[str, str] = os.environ) -> Keyring | None:
    """The keys that a file names, for a command that runs a section of it alone; None if it names none."""
    held = parse_document(read_text(config, "name another with --config"), config).get(NAME)
    if not isinstance(held, Mapping) or "keys" not in held:
        return None
    folder = config.absolute().parent
    return open_keys_of(all_resolved(NAME, held, environment, folder), folder)


def for_members(stack: Stack) -> dict[str, Any]:
    """The section as processes get it that are started elsewhere than beside the file."""
    values = stack.one(NAME)
    if values is None:
        return {}
    anchored = dict(values)
    path = urlsplit(values["keys"]).path.removeprefix("/")
    if values["keys"].startswith("sqlite:///") and not path.startswith("/"):
        anchored["keys"] = values["keys"].replace("sqlite:///", f"sqlite:///{stack.folder}/", 1)
    if "master_key_file" in values:
        anchored["master_key_file"] = str(stack.folder / values["master_key_file"])
    return {NAME: escaped(anchored)}


def open_keys_of(values: Mapping[str, Any] | None, folder: Path) -> Keyring:
    """The keys that the section names."""
    if values is None:
        raise StackError('there is no section [forgetting]: add one, with keys = "sqlite:///keys.db"')
    return open_keys(values["keys"], master_key_file=values.get("master_key_file"), folder=folder)


KIND = Kind(
    NAME,
    "Keys of subjects, whose personal data can be forgotten: headrace forget.",
    """
# [forgetting]
# keys = "sqlite:///.headrace/keys.db"
# master_key_file = "master.key"                    # headrace keys create master.key
# topics = { "signups" = "customer" }               # plain values: by the field that names the subject
""",
    (
        Key("keys", str, "The key store: sqlite:///path or postgresql://….", is_needed=True, is_secret=True),
        Key("master_key_file", str, "The file with the master key; without it HEADRACE_MASTER_KEY holds it."),
        Key("topics", dict, "Topics with values that are not sealed, and the field of each that names the subject."),
    ),
    check=_check,
)
