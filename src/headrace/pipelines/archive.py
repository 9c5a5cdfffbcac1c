"""An archive of the classes that Spark loads, so that the JVM maps them at the next start instead of reading jars.

Java calls it application class data sharing. The first session on a machine is told to write the archive when it
ends, which happens in the JVM after Python has gone; the next one looks whether it is whole and uses it. A key names
all that it depends on; an archive that does not fit is ignored by the JVM itself, and costs the gain and nothing else.

What always holds: one session at a time writes (the claim), into a file of its own; only a file that a JVM has mapped
in full gets the name that is used. `HEADRACE_SPARK_ARCHIVE=0` switches all of it off.
"""

import os
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipelines.folders import cache_folder

if TYPE_CHECKING:
    from headrace.pipelines.java import Java

_SWITCH: Final = "HEADRACE_SPARK_ARCHIVE"
_CLAIM_S: Final = 24 * 3600  # a session that was to write an archive and did not end within a day never will


def flags(java: "Java", key: str, class_path: str) -> list[str]:
    """What a JVM with this class path is told: to use the archive, to make one, or nothing."""
    if os.environ.get(_SWITCH, "1") == "0":
        return []
    folder = cache_folder() / "spark"
    archive, partial, claim = (folder / f"{key}.{suffix}" for suffix in ("jsa", "jsa-partial", "claim"))
    if archive.exists():
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    if partial.exists() and _is_whole(java, partial, class_path):
        _sync(partial)
        partial.replace(archive)
        claim.unlink(missing_ok=True)
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    if _claimed(claim):
        partial.unlink(missing_ok=True)
        return [f"-XX:ArchiveClassesAtExit={partial}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return []


def _claimed(claim: Path) -> bool:
    """Whether this process is the one that makes the archive."""
    claim.parent.mkdir(parents=True, exist_ok=True)
    try:
        if time.time() - claim.stat().st_mtime > _CLAIM_S:
            claim.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _is_whole(java: "Java", file: Path, class_path: str) -> bool:
    """Whether a JVM can map it: told `on` instead of `auto`, one that cannot does not start.

    This must be asked before an archive is used: a file that was cut off crashes the JVM, also under `auto`.
    """
    command = [str(java.program), f"-XX:SharedArchiveFile={file}", "-Xshare:on", "-XX:+VerifySharedSpaces"]
    command += ["-XX:ErrorFile=/dev/null", "-XX:-CreateCoredumpOnCrash", "-cp", class_path, "-version"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return done.returncode == 0


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
