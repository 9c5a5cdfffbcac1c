"""Followed files pass what every gateway passes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from headrace.testing.contracts.gateway import InwardGatewayContract


class TestFiles(InwardGatewayContract):
    kind = "file"
    bad_input: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path / "followed.log"

    def values(self, topic: str, port: int) -> dict[str, Any]:
        return {"topic": topic, "paths": [str(self.path)]}

    def send(self, section: Mapping[str, Any], messages: Sequence[bytes]) -> None:
        with self.path.open("ab") as file:
            file.write(b"".join(message + b"\n" for message in messages))
