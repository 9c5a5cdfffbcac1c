"""Sections of `headrace.toml` for commands that run one kind of them: with the environment over them, as in a stack."""

import importlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headrace.connect.sections import load_sections
from headrace.stack.overrides import PREFIX, overridden


def read_sections(
    path: Path, kind: str, names: Collection[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, dict[str, Any]]:
    """The sections `[kind.NAME]` of a file, all of them or those that are named, with `HEADRACE__…` over them."""
    sections = load_sections(path, kind, names)
    if not any(variable.startswith(PREFIX) for variable in environment):
        return sections  # nearly always; what knows the keys takes a moment to load
    return overridden(importlib.import_module(f"headrace.stack.kinds.{kind}").KIND, sections, names, environment)
