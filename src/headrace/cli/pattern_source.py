"""Where a command takes a pattern from: a text, a file of SQL, or a name in a Python file or module."""

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import Any, Final

import click

from headrace.cep.errors import InvalidPattern
from headrace.cep.pattern import Pattern
from headrace.cep.spelling import is_python, is_sql, read_pattern
from headrace.errors import HeadraceError, nearest
from headrace.extras import import_named, missing_extra

pattern_argument = click.argument("pattern", metavar="PATTERN")
_LARGEST: Final = 1024 * 1024
_IN_FILE: Final = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)", re.DOTALL)
_WAYS: Final = "give a .sql file, module.py:NAME, or the text of MATCH_RECOGNIZE (…) or Pattern.begin(…)"


def load_pattern(given: str) -> Pattern:
    """The pattern of a command's argument; whatever is wrong with it is one sentence."""
    if is_sql(given) or is_python(given):
        return read_pattern(given)
    if in_file := _IN_FILE.fullmatch(given):
        return _from_python(Path(in_file["file"]), in_file["name"])
    if re.fullmatch(r"[\w.]+:\w+", given) and not Path(given).exists():
        found: Pattern = import_named(given, "pattern", lambda value: isinstance(value, Pattern))
        return found
    return read_pattern(read_text(given))


def read_text(name: str) -> str:
    """The text of a file of SQL."""
    path = Path(name)
    if not name.strip():
        raise InvalidPattern(f"the pattern is empty: {_WAYS}")
    if path.suffix == ".py":
        raise InvalidPattern(f"{name} is a Python file: say which pattern of it, as in {name}:NAME")
    if path.is_dir():
        raise InvalidPattern(f"{name} is a folder: {_WAYS}")
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
    except FileNotFoundError:
        raise InvalidPattern(f"{name!r} is neither a file here nor the text of a pattern: {_WAYS}") from None
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be a file's name"
        raise InvalidPattern(f"{name[:80]!r} cannot be read as a file ({reason}): {_WAYS}") from None
    if len(data) > _LARGEST:
        raise InvalidPattern(f"{name} is larger than {_LARGEST // 2**20} MiB, which no pattern is: name a file of SQL")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidPattern(f"{name} is not text in UTF-8: name a file of SQL") from None
    if "\0" in text:
        raise InvalidPattern(f"{name} holds binary data: name a file of SQL")
    if not text.strip():
        raise InvalidPattern(f"{name} is empty: write MATCH_RECOGNIZE (…) into it")
    return text


def _from_python(file: Path, name: str) -> Pattern:
    if not file.is_file():
        raise InvalidPattern(f"there is no file {file}: {_WAYS}")
    known = {each: value for each, value in _run(file).items() if isinstance(value, Pattern)}
    if name not in known:
        raise InvalidPattern(
            f"{file} has no pattern {name!r}: " + (nearest(name, known, "it has") if known else "it has none at all")
        )
    found: Pattern = known[name]
    return found


def _run(file: Path) -> dict[str, Any]:
    with _folder_of(file):
        try:
            return run_path(str(file), run_name=file.stem)
        except InvalidPattern as error:
            raise InvalidPattern(f"{_place(error, file)}: {error}") from None
        except HeadraceError:
            raise
        except SyntaxError as error:
            raise InvalidPattern(f"{error.filename}:{error.lineno}: {error.msg}") from None
        except SystemExit as error:
            raise InvalidPattern(f"{_place(error, file)}: it ends the program (sys.exit): leave that out") from None
        except Exception as error:  # noqa: BLE001 - the user's own code may do anything
            said = missing_extra(error) or f"{type(error).__name__}: {error}"
            raise InvalidPattern(f"{_place(error, file)}: {said}") from None


@contextmanager
def _folder_of(file: Path) -> Iterator[None]:
    """Modules beside the file can be imported."""
    folder = str(file.parent.absolute())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _place(error: BaseException, file: Path) -> str:
    """The last line of the user's own file on the way to the error."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f"{file}:{lines[-1]}" if lines else str(file)
