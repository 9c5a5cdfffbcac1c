"""Sections of `headrace.toml` for commands that run one kind of them: with the environment over them, as in a stack."""

import importlib
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from headrace.connect.references import all_resolved
from headrace.connect.sections import load_sections
from headrace.stack.overrides import PREFIX, overridden


def read_sections(
    path: Path, kind: str, names: Collection[str] = (), environment: Mapping[str, str] = os.environ
) -> dict[str, dict[str, Any]]:
    """The sections `[kind.NAME]` of a file, all of them or those that are named, complete.

    `HEADRACE__…` stands over what the file says, and references to variables and files are replaced.
    """
    sections = load_sections(path, kind, names)
    # Nearly always there are none, and what knows the keys takes a moment to load.
    if any(variable.startswith(PREFIX) for variable in environment):
        known = importlib.import_module(f"headrace.stack.kinds.{kind}").KIND
        sections = overridden(known, sections, names, environment)
    folder = path.absolute().parent
    return {name: all_resolved(f"{kind}.{name}", section, environment, folder) for name, section in sections.items()}
