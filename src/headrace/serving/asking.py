"""What a request asks: what stands behind the question mark, and a body of JSON; wrong ones are refused in a sentence.

What always holds: a name that is not known is refused, so that no misspelt one is taken for none; and of a body no more
is read than it may have.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request

from headrace.errors import HeadraceError

_SHOWN: Final = 40  # characters of what was given
_RETRY_S: Final = "2"


class InvalidRequest(HeadraceError):
    """A request that is wrong in itself; the status that says so is 400 unless another is given."""

    def __init__(self, sentence: str, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


class Asked:
    """What stands behind the question mark."""

    def __init__(self, request: HTTPConnection, known: Sequence[str], *, beginnings: Sequence[str] = ()) -> None:
        """Of the names that are `known`, and those that begin like one of `beginnings`, which may come repeatedly."""
        self._items = request.query_params.multi_items()
        self._given = dict(self._items)
        for name in self._given:
            if name not in known and not (beginnings and name.startswith(tuple(beginnings))):
                raise InvalidRequest(f"{name!r} is unknown here: ask with {', '.join((*known, *beginnings)) or 'none'}")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str) -> str | None:
        return self._given.get(name)

    def texts(self, name: str) -> list[str]:
        """All that was given under a name."""
        return [value for each, value in self._items if each == name]

    def beginning(self, beginning: str) -> list[tuple[str, str]]:
        """What was given under names that begin so, without their beginning."""
        return [(name.removeprefix(beginning), value) for name, value in self._items if name.startswith(beginning)]

    def number(self, name: str, least: int, most: int, usual: int) -> int:
        text = self._given.get(name)
        if text is None:
            return usual
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and least <= int(text) <= most):
            raise InvalidRequest(f"{name} is a number from {least:,} to {most:,}, not {text[:_SHOWN]!r}")
        return int(text)

    def one_of(self, name: str, choices: Sequence[str], usual: str) -> str:
        text = self._given.get(name, usual)
        if text not in choices:
            raise InvalidRequest(f"{name} is {', '.join(choices[:-1])} or {choices[-1]}, not {text[:_SHOWN]!r}")
        return text

    def yes_or_no(self, name: str, *, usual: bool) -> bool:
        return self.one_of(name, ("yes", "no"), "yes" if usual else "no") == "yes"


async def read_body(request: Request, most_bytes: int, mend: str = "send several") -> bytes:
    """The body, which may not be larger."""
    body = bytearray()
    async for chunk in chunks_of(request):
        body += chunk
        check_size(len(body), most_bytes, mend)
    return bytes(body)


def check_size(size_bytes: int, most_bytes: int, mend: str = "send several") -> None:
    if size_bytes > most_bytes:
        size = f"{most_bytes // 2**20} MiB" if most_bytes >= 2**20 else f"{most_bytes:,} bytes"
        raise HTTPException(413, f"a request has at most {size}: {mend}")


async def chunks_of(request: Request) -> AsyncIterator[bytes]:
    """The body as it comes; of a client that goes away in the middle it is a bad request, and no failure of ours."""
    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise HTTPException(400, "the body did not come whole") from None


class Bodies:
    """The bodies of requests that come in or are worked on, which have an upper bound together."""

    def __init__(self, most_bytes: int, most_in_all: int) -> None:
        self._most_bytes = most_bytes
        self._most_in_all = max(most_bytes, most_in_all)
        self._held = 0

    @asynccontextmanager
    async def of(self, request: Request) -> AsyncIterator[bytes]:
        """The body of one, for as long as it is needed; 503 if there is no room for it just now."""
        body = bytearray()
        try:
            async for chunk in chunks_of(request):
                body += chunk
                self._held += len(chunk)
                check_size(len(body), self._most_bytes)
                if self._held > self._most_in_all:
                    raise HTTPException(
                        503, "too much comes in at the moment: try again later", {"retry-after": _RETRY_S}
                    )
            yield bytes(body)
        finally:
            self._held -= len(body)


async def read_json(request: Request, most_bytes: int) -> Any:
    """The JSON that the body is."""
    return parse_json(await read_body(request, most_bytes))


def parse_json(body: bytes | str, **hooks: Any) -> Any:
    """The value that a text of JSON stands for; raises `InvalidRequest`. Further hooks are those of `json.loads`."""
    try:
        return json.loads(body, parse_constant=_no_number, **hooks)
    except json.JSONDecodeError as error:
        raise InvalidRequest(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise InvalidRequest("the body is not JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        raise InvalidRequest(f"the body is not JSON: {error}") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number there")


def path_parts(request: HTTPConnection, beginning: str) -> list[str]:
    """What stands behind the beginning of a path, taken apart before the escapes are read: a name may hold a slash."""
    try:
        raw = (request.scope.get("raw_path") or request.url.path.encode()).decode().partition("?")[0]
        return [unquote(part, errors="strict") for part in raw.removeprefix(beginning).split("/")]
    except UnicodeDecodeError:  # with a mark in its place, several names would be one
        raise HTTPException(400, "the path is not UTF-8: write names in UTF-8, with % and two digits a byte") from None
