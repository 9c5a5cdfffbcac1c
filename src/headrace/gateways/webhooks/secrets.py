"""Secrets, which stand in a file or in the environment, and never in an argument of a process or in a log.

Several, a line each, are all valid: a new one is added before the old one is removed. A file is read again when it
changes.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headrace.gateways.errors import GatewayError
from headrace.secret_files import ExposedSecret, check_private

_LOOK_EVERY_S: Final = 1.0
_LARGEST_BYTES: Final = 64 * 1024


class NoSecret(GatewayError):
    """There is none where one should be."""


@dataclass(slots=True)
class Secrets:
    """Where the secrets of one endpoint are, in one of three places; `what` says in an error whose they are."""

    what: str
    text: str = field(default="", repr=False)
    path: str = ""
    variable: str = ""
    clock: Callable[[], float] = time.monotonic
    _read: tuple[str, ...] = field(default=(), repr=False)
    _seen: tuple[int, ...] | None = None
    _looked_at: float = float("-inf")

    @classmethod
    def of(cls, what: str, section: Mapping[str, Any]) -> "Secrets | None":
        """From the keys `secret`, `secret_file` and `secret_env`, of which there may be one; None if there is none."""
        given = {name: section[name] for name in ("secret", "secret_file", "secret_env") if section.get(name)}
        if len(given) > 1:
            raise GatewayError(f"{what} has {' and '.join(given)}: write one of them")
        for name, value in given.items():
            if not isinstance(value, str):
                raise GatewayError(f"{what}: {name} is no text: write one")
        if not given:
            return None
        return cls(what, given.get("secret", ""), given.get("secret_file", ""), given.get("secret_env", ""))

    def current(self) -> tuple[str, ...]:
        """The secrets of this moment, at least one; raises `NoSecret` or `ExposedSecret`."""
        now = self.clock()
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._look()
            self._looked_at = now
        return self._read

    def _look(self) -> None:
        text = self.text
        if self.variable:
            text = os.environ.get(self.variable, "")
        elif self.path:
            check_private(self.path, f"the secret of {self.what}")
            try:
                found = os.stat(self.path)
                seen = (found.st_ino, found.st_mtime_ns, found.st_size)
                if seen == self._seen and self._read:
                    return
                with Path(self.path).open("rb") as file:
                    text = file.read(_LARGEST_BYTES).decode()
                self._seen = seen
            except (OSError, UnicodeDecodeError):
                raise ExposedSecret(f"the secret of {self.what} in {self.path} cannot be read: check it") from None
        self._read = tuple(line.strip() for line in text.splitlines() if line.strip())
        if not self._read:
            place = f"the variable {self.variable}" if self.variable else self.path or "its section"
            raise NoSecret(f"{self.what} has no secret in {place}: write one there, a line each if there are several")
