"""Which PostgreSQL a server of one's own is made of, if not of the Python package's.

`HEADRACE_POSTGRES` names the folder where another one has its programs (`initdb`, `pg_ctl`, `postgres`), such as
`/usr/lib/postgresql/15/bin`: so the same tests run on every version.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError

VARIABLE: Final = "HEADRACE_POSTGRES"
_NEEDED: Final = ("initdb", "pg_ctl", "postgres")


def named_programs() -> Path | None:
    """The folder that `HEADRACE_POSTGRES` names, None if it names none."""
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    folder = Path(named).resolve()
    missing = [name for name in _NEEDED if not os.access(folder / name, os.X_OK)]
    if missing:
        raise HeadraceError(
            f"{VARIABLE}={named} has no {' and no '.join(missing)}: name the folder of PostgreSQL's programs, its bin"
        )
    return folder


def version_of(programs: Path) -> int:
    """The major version, as the server itself tells it."""
    told = subprocess.run([programs / "postgres", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"\(PostgreSQL\) (\d+)", told)
    if found is None:
        raise HeadraceError(f"{programs / 'postgres'} is no PostgreSQL: it calls itself {told.strip()!r}")
    return int(found[1])
