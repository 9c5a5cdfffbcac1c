"""`headrace.toml` read, with the environment over it, and checked whole: every mistake with its line, all at once."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headrace.connect.sections import Unresolved, each_text, resolved
from headrace.errors import nearest
from headrace.section_keys import Complaint, check_keys, ports_of, with_defaults
from headrace.stack import DEFAULT_FILE
from headrace.stack.document import Override, apply_overrides, parse_document, read_overrides, read_text
from headrace.stack.errors import InvalidStack
from headrace.stack.kind import ONCE, Kind, Section, Stack
from headrace.stack.positions import key_lines, line_of
from headrace.stack.registry import KINDS

_NAME_LETTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mistake:
    path: Place
    sentence: str


def load(
    file: Path = Path(DEFAULT_FILE), environment: Mapping[str, str] = os.environ, *, explore: bool = True
) -> Stack:
    """The stack that a file describes; raises `InvalidStack` with all that is wrong with it.

    To `explore` means to look also at what takes a second, such as the jobs that a pipeline's file declares.
    """
    text = read_text(file, "write one with headrace init, or name another with --config")
    return parse(text, file, environment, explore=explore)


def parse(text: str, file: Path, environment: Mapping[str, str], *, explore: bool = False) -> Stack:
    document = parse_document(text, file)
    overrides, misnamed = read_overrides(KINDS, document, environment)
    document = apply_overrides(document, overrides)
    folder = file.absolute().parent
    values, mistakes = _expand(document, environment, folder)
    unset = {mistake.path for mistake in mistakes}  # what else is wrong with these is no news
    sections = {}
    for kind in KINDS:
        found, wrong = _sections(kind, values.get(kind.name), folder)
        mistakes += wrong
        mistakes += [one for one in _wrong_with(kind, found, _check) if one.path not in unset]
        sections[kind] = found
    known = {kind.name for kind in KINDS}
    mistakes += [
        Mistake((name,), f"there is no section [{name}]: {nearest(name, known)}")
        for name in document
        if name not in known
    ]
    if not mistakes:
        mistakes += _ports_twice(sections)
        names = {kind.name: [section.name for section in found] for kind, found in sections.items()}
        for kind, found in sections.items():
            mistakes += _wrong_with(kind, found, lambda kind, section: kind.relate(section, names))
    if explore and not mistakes and not misnamed:
        mistakes += _explore(sections)
    if mistakes or misnamed:
        told = [f"{variable}: {sentence}" for variable, sentence in misnamed]
        raise InvalidStack(told + _sentences(mistakes, overrides, file, text))
    return Stack(
        file,
        {
            kind.name: {section.name: with_defaults(kind.keys_of(section.values), section.values) for section in found}
            for kind, found in sections.items()
            if found
        },
    )


def _sentences(mistakes: Sequence[Mistake], overrides: Sequence[Override], file: Path, text: str) -> list[str]:
    lines = key_lines(text)
    variables = {override.path: override.variable for override in overrides}

    def told(mistake: Mistake) -> tuple[int, str]:
        if mistake.path in variables:
            return 0, f"{variables[mistake.path]}: {mistake.sentence}"
        line = line_of(lines, mistake.path)
        return line or 0, f"{file}:{line}: {mistake.sentence}" if line else f"{file}: {mistake.sentence}"

    return [sentence for _, sentence in sorted(map(told, mistakes), key=lambda one: one[0])]


def _expand(
    document: Mapping[str, Any], environment: Mapping[str, str], folder: Path
) -> tuple[dict[str, Any], list[Mistake]]:
    """Every text with its `${file:PATH}` and its `${VARIABLE}` replaced."""
    mistakes: list[Mistake] = []

    def put(path: Place, text: str) -> str:
        try:
            return resolved(".".join(path), text, environment, folder)
        except Unresolved as error:
            mistakes.append(Mistake(path, str(error)))
        return text

    return each_text(document, (), put), mistakes


def _sections(kind: Kind, held: Any, folder: Path) -> tuple[list[Section], list[Mistake]]:
    if held is None:
        return [], []
    form = f"[{kind.name}.NAME]" if kind.is_named else f"[{kind.name}]"
    if not isinstance(held, dict):
        return [], [Mistake((kind.name,), f"{kind.name} is a section: write {form}, and its keys below it")]
    if not kind.is_named:
        return [Section(kind.name, ONCE, held, folder)], []
    found, mistakes = [], []
    for name, values in held.items():
        if not isinstance(values, dict):
            sentence = f"{name!r} stands in [{kind.name}], which has no keys of its own: put it into a section {form}"
            mistakes.append(Mistake((kind.name, name), sentence))
        elif not name or name[0] == "-" or not _NAME_LETTERS.issuperset(name):
            sentence = f"[{kind.name}.{name!r}] cannot be called so: use letters, digits, dots, dashes and underscores"
            mistakes.append(Mistake((kind.name, name), sentence))
        else:
            found.append(Section(kind.name, name, values, folder))
    return found, mistakes


def _check(kind: Kind, section: Section) -> Iterable[Complaint]:
    keys = kind.keys_of(section.values)
    found = check_keys(keys, section.values, section.where, is_open=kind.is_open)
    yield from found
    # What the section's own check looks at should at least be what it takes it for.
    wrong = {path[0] for path, _ in found if path}
    sound = {name: value for name, value in section.values.items() if name not in wrong}
    needed = {key.name for key in kind.keys if key.is_needed}
    if needed <= sound.keys():
        yield from kind.check(section._replace(values=with_defaults(keys, sound)))


def _wrong_with(
    kind: Kind, sections: Iterable[Section], check: Callable[[Kind, Section], Iterable[Complaint]]
) -> list[Mistake]:
    return [
        Mistake((kind.name, *filter(None, [section.name]), *path), sentence)
        for section in sections
        for path, sentence in check(kind, section)
    ]


def _explore(sections: Mapping[Kind, Sequence[Section]]) -> list[Mistake]:
    """What is seen only by running a user's files: side by side, for each is a process that takes a second."""
    every = {kind.name: found for kind, found in sections.items()}

    def look(kind: Kind, section: Section) -> list[Mistake]:
        return _wrong_with(kind, [section], lambda kind, section: kind.explore(section, every))

    with ThreadPoolExecutor(os.cpu_count()) as beside:
        looks = [beside.submit(look, kind, section) for kind, found in sections.items() for section in found]
        return [mistake for look in looks for mistake in look.result()]


def _ports_twice(sections: Mapping[Kind, Sequence[Section]]) -> list[Mistake]:
    taken: dict[tuple[int, str], str] = {}
    found = []
    for kind, several in sections.items():
        for section in several:
            keys = kind.keys_of(section.values)
            for key, number, transport in ports_of(keys, with_defaults(keys, section.values)):
                if owner := taken.get((number, transport)):
                    sentence = f"[{section.where}] {key.name} {number} is taken by [{owner}]: choose another"
                    found.append(Mistake((kind.name, *filter(None, [section.name]), key.name), sentence))
                taken.setdefault((number, transport), section.where)
    return found
