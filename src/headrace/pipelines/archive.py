"""An archive of the classes that Spark loads, so that the JVM maps them at the next start instead of reading jars.

Java calls it application class data sharing. The first session on a machine is told to write the archive when it
ends, which happens in the JVM after Python has gone; the next one looks whether it is whole and uses it. A key names
all that it depends on; an archive that does not fit is ignored by the JVM itself, and costs the gain and nothing else.

What always holds: one session at a time writes (the claim, with the number of its JVM), into a file of its own; only a
file that a JVM has mapped in full gets the name that is used. `HEADRACE_SPARK_ARCHIVE=0` switches all of it off.
"""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.pipelines.folders import cache_folder

if TYPE_CHECKING:
    from headrace.pipelines.java import Java

_SWITCH: Final = "HEADRACE_SPARK_ARCHIVE"
_BEFORE_A_NUMBER_S: Final = 60  # a claim without a number: its session is about to start the JVM, or was killed
_MAKING: Final = "-XX:ArchiveClassesAtExit="


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
        return [f"{_MAKING}{partial}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return []


def claim_of(flags: Sequence[str]) -> Path | None:
    """The claim that was taken if a JVM with these flags makes an archive: the number of its process goes there."""
    partial = next((Path(flag.removeprefix(_MAKING)) for flag in flags if flag.startswith(_MAKING)), None)
    return partial.with_suffix(".claim") if partial else None


def _claimed(claim: Path) -> bool:
    """Whether this process is the one that makes the archive."""
    claim.parent.mkdir(parents=True, exist_ok=True)
    if _is_abandoned(claim):
        claim.unlink(missing_ok=True)
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _is_abandoned(claim: Path) -> bool:
    """Whether the JVM that was to write the archive is gone, or was never started."""
    try:
        number, age_s = claim.read_text(), time.time() - claim.stat().st_mtime
    except FileNotFoundError:
        return False
    if not number:
        return age_s > _BEFORE_A_NUMBER_S
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, ValueError):
        return True
    except PermissionError:
        return False
    return False


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
