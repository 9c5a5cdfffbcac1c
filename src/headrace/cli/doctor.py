"""`headrace doctor`: whether this machine has what Headrace needs, and how to mend what it has not.

A check is a function that answers with a finding and never raises. What only pipelines need is a failure where the
`spark` extra is installed, and a note where it is not.
"""

import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from headrace.cli.output import human_bytes, json_option, print_json, print_table
from headrace.cli.parameters import DEFAULT_BOOTSTRAP, Parsed
from headrace.client.address import Address, parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.connection import ConnectionSettings
from headrace.errors import HeadraceError


class Verdict(StrEnum):
    """How a check ended: only `BROKEN` makes the exit code 1."""

    FINE = "ok"
    NOTE = "note"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and how to mend it if there is something to mend."""

    check: str
    verdict: Verdict
    found: str
    mend: str = ""


_COLOURS: Final = {Verdict.FINE: "green", Verdict.NOTE: "yellow", Verdict.BROKEN: "red"}
_OLDEST_PYTHON: Final = (3, 11)
_FREE_DISK_BYTES: Final = 2 << 30
_FREE_MEMORY_BYTES: Final = 2 << 30
_SLOW_SYNC_MS: Final = 20.0
_SYNCS: Final = 20
# What the spark extra pins, as (first, first that is too new); pyspark is built against one version alone.
_PACKAGES: Final = {
    "pyspark": ((4, 2, 0), (4, 2, 1)),
    "pyarrow": ((18,), None),
    "pandas": ((2, 2), (3,)),
    "numpy": ((2,), None),
    "numba": ((0, 61), None),
    "protobuf": ((5,), None),
}


@click.command()
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Where the data will be: its disk is looked at. [default: here]",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Check the certificates and files that a broker with these settings would use.",
)
@click.option("--listen", "listeners", multiple=True, metavar="[NAME://]HOST:PORT", help="Where it listens.")
@click.option(
    "--advertise", "advertised", multiple=True, metavar="[NAME://]HOST:PORT", help="The address that clients are given."
)
@click.option(
    "--authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A PEM file of the authorities that clients trust; by default those of this system.",
)
@click.option(
    "--bootstrap",
    type=Parsed("addresses", parse_bootstrap),
    default=None,
    metavar="HOST:PORT[,…]",
    help="Look through the users and ACLs of the broker there, ours or any Kafka.",
)
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    data_dir: Path,
    config_file: Path | None,
    listeners: tuple[str, ...],
    advertised: tuple[str, ...],
    authority: Path | None,
    bootstrap: tuple[Address, ...] | None,
    as_json: bool,
) -> None:
    """Check this machine: Python, Java, Spark, the port, disk, memory; and who may come in.

    What is missing is told with what helps. Ends with 1 if something is broken.

    \b
      headrace doctor
      headrace doctor --config broker.properties --listen SASL_SSL://0.0.0.0:9093 \\
          --advertise kafka.example:9093 --authority authority.pem
      headrace doctor --bootstrap 127.0.0.1:9092
    """
    spark = installed_version("pyspark") is not None
    checks: list[Callable[[], Finding]] = [
        check_python,
        lambda: check_port(Address.parse(DEFAULT_BOOTSTRAP)),
        lambda: check_disk(data_dir),
        lambda: check_sync(data_dir),
        check_memory,
        check_temporary,
        lambda: check_java(needed=spark),
        check_packages,
        check_jars,
    ]
    findings = [check() for check in checks]
    findings += _check_access(config_file, listeners, advertised, authority, bootstrap)
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        rows = [(Text(f.verdict, style=_COLOURS[f.verdict]), f.check, f.found) for f in findings]
        print_table(["", "check", "found"], rows)
        for finding in findings:
            if finding.mend:
                click.echo(f"{finding.check}: {finding.mend}")
    if any(finding.verdict is Verdict.BROKEN for finding in findings):
        context.exit(1)


def _check_access(
    config_file: Path | None,
    listeners: tuple[str, ...],
    advertised: tuple[str, ...],
    authority: Path | None,
    bootstrap: tuple[Address, ...] | None,
) -> list[Finding]:
    """Of a broker as it is set up, and of one that runs, as far as either is named."""
    from headrace.broker.config import BrokerConfig, parse_listeners, read_properties
    from headrace.cli.doctor_access import check_access, check_setup

    findings: list[Finding] = []
    if config_file or listeners:
        settings = read_properties(config_file.read_text(), str(config_file)) if config_file else {}
        where = parse_listeners(listeners or (DEFAULT_BOOTSTRAP,), advertised, settings)
        config = BrokerConfig("", where, settings)
        findings += check_setup(config, authority, config_file)
    if bootstrap:
        findings += check_access(bootstrap)
    return findings


def installed_version(package: str) -> str | None:
    """The version of a package, None if it is not installed; nothing is imported."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def release(version: str) -> tuple[int, ...]:
    """The numbers at the front of a version: 2.2.3rc1 is (2, 2, 3)."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
    return tuple(numbers)


def check_python() -> Finding:
    found = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < _OLDEST_PYTHON:
        return Finding("python", Verdict.BROKEN, found, "Headrace needs Python 3.11 or newer: install it in one")
    return Finding("python", Verdict.FINE, found)


def check_java(*, needed: bool) -> Finding:
    """The Java that Spark would run on."""
    from headrace.pipelines.spark.java import JavaUnfit, find_java

    try:
        java = find_java()
    except JavaUnfit as unfit:
        return Finding("java", Verdict.BROKEN if needed else Verdict.NOTE, unfit.problem, unfit.mend)
    return Finding("java", Verdict.FINE, f"{java.version} at {java.program}")


def check_packages(version_of: Callable[[str], str | None] = installed_version) -> Finding:
    """Whether the packages that pipelines need are there and fit together."""
    versions = {name: version_of(name) for name in _PACKAGES}
    if versions["pyspark"] is None:
        return Finding("spark", Verdict.NOTE, "not installed", "for pipelines: pip install 'headrace[spark]'")
    wrong = [
        f"{name} {version or 'is missing'}"
        for name, version in versions.items()
        if not _fits(version, *_PACKAGES[name])
    ]
    if wrong:
        mend = "these versions do not fit together: pip install --upgrade 'headrace[spark]'"
        return Finding("spark", Verdict.BROKEN, ", ".join(wrong), mend)
    return Finding("spark", Verdict.FINE, ", ".join(f"{name} {version}" for name, version in versions.items()))


def _fits(version: str | None, first: tuple[int, ...], too_new: tuple[int, ...] | None) -> bool:
    return version is not None and release(version) >= first and (too_new is None or release(version) < too_new)


def check_jars() -> Finding:
    """Whether Spark's own Kafka connector is here; nobody needs it who does not ask for it."""
    from headrace.pipelines.spark.java import folder_of, jars_here

    if jars_here():
        return Finding("kafka jars", Verdict.FINE, str(folder_of()))
    return Finding("kafka jars", Verdict.FINE, "not fetched: session(…, jvm_kafka=True) does it when asked")


def check_port(address: Address) -> Finding:
    """Whether the broker's port is free, or who answers there."""
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(address) != 0:
            return Finding("port", Verdict.FINE, f"{address} is free")
    try:
        with Cluster((address,), ConnectionSettings(connect_timeout_s=2, request_timeout_s=2)) as cluster:
            topics = len(cluster.topics())
    except (HeadraceError, OSError):
        mend = "start the broker on another port with --listen, or stop what is there"
        return Finding("port", Verdict.NOTE, f"{address} is taken by something that is not a Kafka broker", mend)
    return Finding("port", Verdict.FINE, f"a Kafka broker answers at {address} (topics: {topics})")


def check_disk(folder: Path) -> Finding:
    """Free space where the data will be."""
    place = _existing(folder)
    free = shutil.disk_usage(place).free
    found = f"{human_bytes(free)} free at {place}"
    if free < _FREE_DISK_BYTES:
        return Finding(
            "disk", Verdict.BROKEN, found, f"make room: less than {human_bytes(_FREE_DISK_BYTES)} fills soon"
        )
    return Finding("disk", Verdict.FINE, found)


def check_sync(folder: Path) -> Finding:
    """How long the disk takes to make a small write durable, which is what acks=all waits for."""
    place = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            times = [_sync_ms(file.fileno()) for _ in range(_SYNCS)]
    except OSError as error:
        mend = "name a folder that you may write with --data-dir"
        return Finding("fsync", Verdict.BROKEN, f"{place} cannot be written ({error.strerror})", mend)
    median = statistics.median(times)
    found = f"{median:.2f} ms a KiB, at worst {max(times):.2f} ms"
    if median > _SLOW_SYNC_MS:
        return Finding(
            "fsync", Verdict.NOTE, found, "a slow disk: acks=all waits this long; durability=os does not wait"
        )
    return Finding("fsync", Verdict.FINE, found)


def _sync_ms(descriptor: int) -> float:
    os.write(descriptor, bytes(1024))
    started = time.perf_counter()
    os.fsync(descriptor)
    return (time.perf_counter() - started) * 1000


def check_memory() -> Finding:
    available = available_memory()
    if available is None:
        return Finding("memory", Verdict.NOTE, "this system does not tell how much is free")
    found = f"{human_bytes(available)} available"
    if available < _FREE_MEMORY_BYTES:
        mend = "a Spark session takes about 1.5 GiB: close something, or give it less with spark.driver.memory"
        return Finding("memory", Verdict.NOTE, found, mend)
    return Finding("memory", Verdict.FINE, found)


def available_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that could be had without swapping, where the system tells."""
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def check_temporary() -> Finding:
    """The folder for temporary files, where Spark unpacks libraries that it then runs."""
    folder = Path(tempfile.gettempdir())
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
        barred = bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))
    except OSError as error:
        mend = "set TMPDIR to a folder that you may write"
        return Finding("temporary files", Verdict.BROKEN, f"{folder} cannot be written ({error.strerror})", mend)
    if barred:
        mend = "set TMPDIR, and java.io.tmpdir for Spark, to a folder whose programs may run: RocksDB needs it"
        return Finding("temporary files", Verdict.NOTE, f"{folder} is mounted noexec", mend)
    return Finding("temporary files", Verdict.FINE, str(folder))


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    folder = folder.absolute()
    return next(place for place in (folder, *folder.parents) if place.is_dir())
