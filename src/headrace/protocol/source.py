"""Python source in the making: lines, constants, and which field each line is about.

The encoders and decoders are written here as text and compiled, as attrs does for its methods. The text is kept where
tracebacks and debuggers look for it, and every line knows its field: so the fast path carries no book-keeping, and an
error still says which field it happened in.
"""

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from typing import Any


class Source:
    """The text of one function, and the objects it refers to."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[str] = []
        self._places: list[str] = []
        self._depth = 0
        self._constants: dict[str, Any] = {}
        self.place = ""

    def line(self, text: str) -> None:
        """One more line, about the field that `place` names."""
        self._lines.append("    " * self._depth + text)
        self._places.append(self.place)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A line that ends in a colon, and what belongs under it."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def about(self, place: str) -> Iterator[None]:
        """The field that the lines made meanwhile are about."""
        before, self.place = self.place, place
        yield
        self.place = before

    def constant(self, name: str, value: Any) -> str:
        """A name for `value` in the function: `name`, or one like it if that is taken by something else."""
        unique, number = name, 2
        while self._constants.setdefault(unique, value) is not value:
            unique, number = f"{name}{number}", number + 1
        return unique

    def unpacker(self, letters: str) -> tuple[str, int]:
        """A name for the function that unpacks these fixed-size fields, and their size."""
        layout = Layout(">" + letters)
        return self._method("unpack", letters, layout.unpack_from), layout.size

    def packer(self, letters: str) -> str:
        """A name for the function that packs these fixed-size fields."""
        return self._method("pack", letters, Layout(">" + letters).pack)

    def _method(self, verb: str, letters: str, method: Any) -> str:
        name = f"{verb}_{letters.replace('?', 't')}"  # a letter that `struct` does not use
        self._constants.setdefault(name, method)
        return name

    def compile(self, function: str) -> Any:
        filename = f"<headrace {self._title}>"
        text = "\n".join(self._lines) + "\n"
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        namespace = {**self._constants, "PLACES": ["", *self._places]}
        exec(compile(text, filename, "exec"), namespace)  # noqa: S102  (our own text, from our own declarations)
        return namespace[function]


def place_of(error: BaseException, title: str, places: list[str]) -> str:
    """What the line that raised is about: called where the compiled function has caught the error itself."""
    traceback = error.__traceback__
    assert traceback is not None
    place = places[traceback.tb_lineno]
    return f"{title}, {place}" if place else title
