"""Starts the JVM that a Spark session lives in, by the shortest way.

pyspark starts it through a shell script that first starts another JVM, only to learn the command line. The command
depends on the versions and a few settings alone, so here it is asked for once, of Spark's own launcher, and remembered;
the next start runs it directly, with an archive of the classes that Spark loads, which the JVM maps instead of reading
jars (Java calls it application class data sharing). The first session on a machine makes the archive when it ends, in
the JVM after Python has gone; the next one looks whether it is whole and uses it. A key names all that it depends on;
an archive that does not fit is ignored by the JVM itself, and costs the gain and nothing else.

What always holds: one session at a time makes an archive (the claim, with the number of its JVM), into a file of its
own; only a file that a JVM has mapped in full gets the name that is used. Whoever makes one removes those that were not
used for longest: an archive is some 150 MB, and each environment has its own. `HEADRACE_SPARK_ARCHIVE=0` switches it
off; with `use` instead of 0 an archive that is there is used, and none is made.

Only a plain pip installation is started like this. Where the environment says otherwise (`SPARK_HOME`, a folder of
settings, arguments for spark-submit) everything is left to Spark's scripts.
"""

import hashlib
import json
import os
import signal
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from headrace.pipelines.errors import PipelineError
from headrace.pipelines.spark.java import Java, cache_folder
from headrace.stores.folders import is_alive, replace_text, sync

MAIN_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
# What Spark's launcher makes of the command line; all other settings go to the program.
_DRIVER_SETTINGS: Final = (
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
)
_LEFT_TO_SCRIPTS: Final = (
    "SPARK_HOME",
    "SPARK_CONF_DIR",
    "SPARK_REMOTE",
    "PYSPARK_SUBMIT_ARGS",
    "PYSPARK_GATEWAY_PORT",
    "SPARK_DAEMON_JAVA_OPTS",
    "SPARK_SUBMIT_OPTS",
)
# Vector instructions for MLlib's linear algebra; being unfinished in Java it warns on every start, and keeps the
# JVM from using its archive of modules.
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"
_TIMEOUT_S: Final = 120
_STANDARD_ERROR: Final = 2
_SWITCH: Final = "HEADRACE_SPARK_ARCHIVE"
_BEFORE_A_NUMBER_S: Final = 60  # a claim without a number: its session is about to start the JVM, or was killed
_MAKING: Final = "-XX:ArchiveClassesAtExit="
_KEPT_ARCHIVES: Final = 4


def is_plain(environment: Mapping[str, str], home: Path) -> bool:
    """Whether nothing but our settings says how Spark is to start."""
    return os.name == "posix" and not any(name in environment for name in _LEFT_TO_SCRIPTS) and not _has_conf(home)


def _has_conf(home: Path) -> bool:
    conf = home / "conf"
    return conf.is_dir() and any(conf.iterdir())


def parse_launcher_output(output: bytes) -> list[str]:
    """The command in what Spark's launcher prints: an empty line, then arguments, each ended by a zero byte."""
    arguments = [part.decode() for part in output.split(b"\0")]
    return [argument.strip("\n") for argument in arguments if argument.strip("\n")]


def with_flags(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """The command up to its main class, with more flags for the JVM and without what is left out."""
    before = list(command[: command.index(MAIN_CLASS)])
    return [before[0], *flags, *(part for part in before[1:] if part != _LEFT_OUT), MAIN_CLASS]


def parse_answer(answer: bytes) -> tuple[int, str]:
    """The port and the secret that the JVM wrote down for whoever started it."""
    port, length = struct.unpack_from(">ii", answer)
    return port, answer[8 : 8 + length].decode()


def start_gateway(java: Java, conf: Mapping[str, str]) -> Any:
    """A JVM with a Py4J gateway, as `pyspark.java_gateway.launch_gateway` returns it."""
    import pyspark
    from pyspark.java_gateway import launch_gateway

    home = Path(pyspark.__path__[0])
    facts = [java.version, str(java.program.resolve()), pyspark.__version__, str(home)]
    settings = [f"{name}={conf.get(name, '')}" for name in _DRIVER_SETTINGS]
    command = _remembered_command(java, home, _key([*facts, *settings]), conf)
    class_path = command[command.index("-cp") + 1]
    flags = archive_flags(java, _key([*facts, class_path]), class_path)
    claim = find_claim(flags)
    command = with_flags(command, flags)
    for name, value in conf.items():
        command += ["--conf", f"{name}={value}"]
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        answer = Path(folder) / "gateway"
        # With an address given, Spark need not ask the network for this machine's name. It is not told its own home: it
        # would have every Python process import pyspark from an archive there, compiled anew each time, instead of as
        # it is installed.
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, "SPARK_CONNECT_MODE": "0"}
        with _noted_interrupts() as interrupts:
            process = subprocess.Popen(
                [*command, "pyspark-shell"],
                stdin=subprocess.PIPE,  # the JVM ends when this pipe does, so it never outlives us
                stdout=_STANDARD_ERROR,  # results are ours; and who reads them need not wait for the JVM's end
                env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(answer)},
                preexec_fn=_ignore_interrupts,  # only sets a signal's disposition
                # It writes the archive when we have ended, and whoever ends our process group then must not end it too.
                process_group=0 if claim else None,
            )
        try:
            if interrupts:
                signal.raise_signal(signal.SIGINT)
            if claim:
                claim.write_text(str(process.pid))
            _wait_for(answer, process)
        except BaseException:  # Ctrl-C too: a JVM that nobody knows of would go on starting
            process.kill()
            process.wait()
            raise
        port, secret = parse_answer(answer.read_bytes())
    # The one way in which pyspark connects to a JVM that is already there.
    os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
    try:
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process
    return gateway


def _ignore_interrupts() -> None:
    # Ctrl-C is for us: we stop the queries, then the JVM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Ctrl-C is noted instead of raised: a process that was started and forgotten could not be ended.

    Blocking the signal does not do: another thread takes it, and Python raises it in this one all the same, where it
    happens to be. In what Python does around a fork it is swallowed.
    """
    noted: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield noted
        return
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)


def _wait_for(answer: Path, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not answer.exists():  # Spark renames it into place
        if process.poll() is not None:
            raise PipelineError(
                f"Spark's JVM ended at its start with code {process.returncode}: what it said stands above; "
                "headrace doctor checks what it needs"
            )
        if time.monotonic() > deadline:
            raise PipelineError(f"Spark's JVM did not answer within {_TIMEOUT_S} s: is this machine out of memory?")
        time.sleep(0.01)


def _key(facts: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _remembered_command(java: Java, home: Path, key: str, conf: Mapping[str, str]) -> list[str]:
    file = cache_folder() / "spark" / f"{key}.json"
    try:
        command = json.loads(file.read_text())
        if isinstance(command, list) and MAIN_CLASS in command:
            return [str(part) for part in command]
    except (OSError, ValueError):
        pass  # not there yet, or not whole: ask again
    command = _ask_launcher(java, home, conf)
    replace_text(file, json.dumps(command))
    return command


def _ask_launcher(java: Java, home: Path, conf: Mapping[str, str]) -> list[str]:
    core = next((home / "jars").glob("spark-core_*.jar"))
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[0]}
    command = [str(java.program), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", f"{home}/jars/*"]
    command += ["org.apache.spark.launcher.Main", MAIN_CLASS, "--conf", "spark.master=local"]
    for name in _DRIVER_SETTINGS:
        if name in conf:
            command += ["--conf", f"{name}={conf[name]}"]
    done = subprocess.run([*command, "pyspark-shell"], capture_output=True, env=environment, check=False, timeout=120)
    found = parse_launcher_output(done.stdout)
    if done.returncode or MAIN_CLASS not in found:
        words = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise PipelineError(f"Spark's launcher refuses its settings: {words[0] if words else 'it said nothing'}")
    # The launcher takes the Java that runs it, which is the one we found; keep our name for it.
    return [str(java.program), *found[1:]]


# --- the archive of classes


def archive_flags(java: Java, key: str, class_path: str) -> list[str]:
    """The options for a JVM with this class path: to use the archive, to make one, or none."""
    choice = os.environ.get(_SWITCH, "1")
    if choice == "0":
        return []
    folder = cache_folder() / "spark"
    archive, partial, claim = (folder / f"{key}.{suffix}" for suffix in ("jsa", "jsa-partial", "claim"))
    if not archive.exists() and partial.exists() and _is_whole(java, partial, class_path):
        with suppress(FileNotFoundError):  # another session looked at it too, and was faster
            sync(partial)
            partial.replace(archive)
        claim.unlink(missing_ok=True)
    if archive.exists():
        with suppress(OSError):
            os.utime(archive)  # for `_remove_unused`: it was used
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto"]
    if choice != "use" and _take_claim(claim):
        partial.unlink(missing_ok=True)
        _remove_unused(folder)
        return [f"{_MAKING}{partial}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return []


def _remove_unused(folder: Path) -> None:
    """Make room for one more: a JVM that has mapped what is removed here keeps it until it ends."""

    def last_used(archive: Path) -> float:
        with suppress(FileNotFoundError):  # another session removes too
            return archive.stat().st_mtime
        return 0

    # What a JVM has written and no session has looked at yet counts too; what one still writes does not.
    written = [one for one in folder.glob("*.jsa-partial") if _is_abandoned(one.with_suffix(".claim"))]
    archives = sorted((*folder.glob("*.jsa"), *written), key=last_used, reverse=True)
    for archive in archives[_KEPT_ARCHIVES - 1 :]:
        archive.unlink(missing_ok=True)


def find_claim(flags: Sequence[str]) -> Path | None:
    """The claim that was taken if a JVM with these flags makes an archive: the number of its process goes there."""
    partial = next((Path(flag.removeprefix(_MAKING)) for flag in flags if flag.startswith(_MAKING)), None)
    return partial.with_suffix(".claim") if partial else None


def _take_claim(claim: Path) -> bool:
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
    return not (number.isdecimal() and is_alive(int(number)))


def _is_whole(java: Java, file: Path, class_path: str) -> bool:
    """Whether a JVM can map it: with `on` instead of `auto`, one that cannot does not start.

    This must be asked before an archive is used: a file that was cut off crashes the JVM, also under `auto`.
    """
    command = [str(java.program), f"-XX:SharedArchiveFile={file}", "-Xshare:on", "-XX:+VerifySharedSpaces"]
    command += ["-XX:ErrorFile=/dev/null", "-XX:-CreateCoredumpOnCrash", "-cp", class_path, "-version"]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    return done.returncode == 0
