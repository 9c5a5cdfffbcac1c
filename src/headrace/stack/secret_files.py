"""Values from files of their own: `${file:secrets/password}` is what stands there, as secrets are handed out."""

import re
from pathlib import Path
from typing import Final

from headrace.stack.errors import StackError

_REFERENCE: Final = re.compile(r"\$\{file:([^}]+)\}")


def with_files(name: str, text: str, folder: Path) -> str:
    """A text with each reference to a file replaced by its content, without the line end behind it.

    No error shows what is in a file.
    """

    def content(found: re.Match[str]) -> str:
        file = folder / found[1]
        try:
            return file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            why = error.strerror
        except UnicodeDecodeError:
            why = "it is no text in UTF-8"
        raise StackError(
            f"{name} names the file {found[1]}, which cannot be read ({why}): put it there, or mend the name"
        )

    return _REFERENCE.sub(content, text)
