"""`headrace.toml` as a document: the file read, and values from the environment over it.

`HEADRACE__BROKER__PORT=9192` is `port` of `[broker]`. The rule: `HEADRACE`, the section and the key, in capitals, with
two underscores between them; whatever in a name is no letter and no digit is one underscore (`[topics.orders-raw]` is
`HEADRACE__TOPICS__ORDERS_RAW__…`). Inside a table of Kafka's or Spark's settings an underscore is a dot
(`…__CONFIGS__RETENTION_MS`). The value is read as TOML would read it where the key is not a text: a number, `true`, a
list.
"""

import importlib
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from headrace.connect.sections import all_resolved
from headrace.errors import nearest
from headrace.section_keys import Key, check_keys, with_defaults
from headrace.stack.errors import InvalidStack, StackError
from headrace.stack.kind import Kind

PREFIX: Final = "HEADRACE__"
_OTHER: Final = re.compile(r"[^A-Za-z0-9]+")
_TABLES: Final = ("configs", "settings", "conf", "connection")


def read_text(file: Path, remedy: str) -> str:
    """The text of a file; `remedy` says what to do if there is none."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise StackError(f"{file} is not there: {remedy}") from None
    except UnicodeDecodeError as error:
        raise StackError(f"{file} is not UTF-8 text (byte {error.start}): write it anew") from None


def parse_document(text: str, file: Path) -> dict[str, Any]:
    """The document that a text describes; raises `InvalidStack` if it is not TOML."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidStack([f"{file} is not valid TOML: {error}"]) from None


def read_sections(
    path: Path, kind: str, names: Collection[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, dict[str, Any]]:
    """The sections `[kind.NAME]` of a file, all of them or those that are named, for a command that runs them alone.

    `HEADRACE__…` stands over what the file says, and references to variables and files are replaced.
    """
    document = parse_document(read_text(path, f"write one with a section [{kind}.NAME], or give --config"), path)
    held = document.get(kind)
    if not isinstance(held, dict) or not all(isinstance(section, dict) for section in held.values()):
        raise InvalidStack([f"{path} has no section [{kind}.NAME]: add one"])
    for name in names:
        if name not in held:
            raise InvalidStack([f"{path} has no section [{kind}.{name}], only {', '.join(sorted(held))}"])
    sections = {name: held[name] for name in (names or held)}
    # Nearly always there are none, and what knows the keys takes a moment to load.
    if any(variable.startswith(PREFIX) for variable in environment):
        known = importlib.import_module(f"headrace.stack.kinds.{kind}").KIND
        sections = override_sections(known, sections, names, environment)
    folder = path.absolute().parent
    return {name: all_resolved(f"{kind}.{name}", section, environment, folder) for name, section in sections.items()}


def read_section(path: Path, kind: Kind, name: str) -> dict[str, Any]:
    """One section of a file with its defaults, for a command that runs it alone; raises `InvalidStack`."""
    (section,) = read_sections(path, kind.name, (name,)).values()
    keys = kind.keys_of(section)
    if wrong := check_keys(keys, section, f"{kind.name}.{name}"):
        raise InvalidStack([sentence for _, sentence in wrong])
    return with_defaults(keys, section)


class Override(NamedTuple):
    """One value, where it goes, and the variable it came from."""

    variable: str
    path: tuple[str, ...]
    value: Any


def environment_name(path: Sequence[str]) -> str:
    return PREFIX + "__".join(_word(part).upper() for part in path)


def _word(name: str) -> str:
    return _OTHER.sub("_", name).strip("_").lower()


def read_overrides(
    kinds: Iterable[Kind], document: Mapping[str, Any], environment: Mapping[str, str]
) -> tuple[list[Override], list[tuple[str, str]]]:
    """What the environment says about a document, and what is wrong with it: variables and sentences."""
    by_word = {_word(kind.name): kind for kind in kinds}
    found: list[Override] = []
    wrong: list[tuple[str, str]] = []
    for variable in sorted(name for name in environment if name.startswith(PREFIX)):
        try:
            path, key = _path(by_word, document, variable.removeprefix(PREFIX).split("__"))
        except _Unknown as error:
            wrong.append((variable, str(error)))
        else:
            found.append(Override(variable, path, _value(environment[variable], key)))
    return found, wrong


class _Unknown(Exception):
    """A name that leads nowhere."""


def _path(
    kinds: Mapping[str, Kind], document: Mapping[str, Any], words: list[str]
) -> tuple[tuple[str, ...], Key | None]:
    words = [_word(word) for word in words]
    if words[0] not in kinds:
        raise _Unknown(f"there is no section [{words[0]}]: {nearest(words[0], kinds)}")
    kind = kinds[words[0]]
    held = document.get(kind.name, {})
    head: tuple[str, ...] = (kind.name,)
    rest = words[1:]
    if kind.is_named and rest:
        names = {_word(name): name for name in held}
        if rest[0] not in names:
            there = nearest(rest[0], names, "there are") if names else "the file has none of this kind"
            raise _Unknown(f"there is no section [{kind.name}.{rest[0]}]: {there}")
        head, held, rest = (*head, names[rest[0]]), held[names[rest[0]]], rest[1:]
    if not rest:
        raise _Unknown(f"it names no key: write {environment_name([*head, 'key'])}")
    known = {_word(key.name): key for key in kind.keys_of(held if isinstance(held, Mapping) else {})}
    key = known.get(rest[0])
    name = key.name if key else _find_name(held, rest[0])
    inner = held.get(name, {}) if isinstance(held, Mapping) else {}
    deeper = [_find_name(inner, word, "." if name in _TABLES else "_") for word in rest[1:]]
    return (*head, name, *deeper), key if not deeper else None


def _find_name(held: Any, word: str, joined: str = "_") -> str:
    names = {_word(name): name for name in held} if isinstance(held, Mapping) else {}
    return str(names.get(word, word.replace("_", joined)))


def _value(text: str, key: Key | None) -> Any:
    if key is not None and key.type is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def apply_overrides(document: Mapping[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    found = dict(document)
    for override in overrides:
        found = _put(found, override.path, override.value)
    return found


def _put(table: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**table, path[0]: value}
    inner = table.get(path[0])
    return {**table, path[0]: _put(inner if isinstance(inner, Mapping) else {}, path[1:], value)}


def override_sections(
    kind: Kind, sections: Mapping[str, Mapping[str, Any]], names: Collection[str], environment: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Sections of one kind with the environment over them, for a command that runs them without the rest of a stack.

    It is told of variables of its own kind alone; and where `names` says which sections it runs, of theirs alone.
    """
    chosen = {_word(name) for name in names}

    def is_meant(variable: str) -> bool:
        words = [_word(word) for word in variable.removeprefix(PREFIX).split("__")]
        return words[0] == _word(kind.name) and (not chosen or words[1:2] == [] or words[1] in chosen)

    meant = {name: value for name, value in environment.items() if name.startswith(PREFIX) and is_meant(name)}
    found, wrong = read_overrides([kind], {kind.name: sections}, meant)
    if wrong:
        raise InvalidStack([f"{variable}: {sentence}" for variable, sentence in wrong])
    return {name: dict(section) for name, section in apply_overrides({kind.name: sections}, found)[kind.name].items()}
