"""Where things are kept that can be made again: jars that were fetched, archives that make the next start faster.

Never in the working folder: two projects share what both need, and nothing of it is ever committed by mistake.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """The user's cache folder for Headrace; it need not exist yet."""
    if named := environment.get("XDG_CACHE_HOME"):
        return Path(named) / "headrace"
    home = Path(environment.get("HOME") or Path.home())
    return home / "Library" / "Caches" / "headrace" if platform == "darwin" else home / ".cache" / "headrace"
