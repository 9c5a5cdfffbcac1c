"""What all tests share: how hypothesis looks for counterexamples, and that no broker's loop stands still.

No deadline: how long an example takes on a busy machine says nothing about the code. The same examples every time, so
that a run that passes passes again, and a share of the number that each test names; with `HEADRACE_EXAMPLES=20` new
ones, and twenty times as many as it names. `make test-long` takes ten times what `make test` does.

Every broker that a test starts, in its own process or another, writes down when its event loop was held for more than
100 ms (`headrace/broker/server.py`), and the test in which that happened fails.

The last lines of a long run say where its time went, by folder and by file.
"""

import gc
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Many short lives of a JVM: what its second compiler would make faster has ended before it pays.
os.environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
# `make test` has an archive of Spark's classes made beforehand: to write one takes half a minute of a JVM's end.
os.environ.setdefault("HEADRACE_SPARK_ARCHIVE", "use")

import pytest
from hypothesis import HealthCheck, settings

from tests.property.storage_model import count_examples

# Hundreds of processes import the same modules: each would compile them again if it may not keep what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "search",
    deadline=None,
    max_examples=count_examples(100),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("same", settings.get_profile("search"), derandomize=True, print_blob=False)
settings.load_profile("search" if "HEADRACE_EXAMPLES" in os.environ else "same")


_LONG_S = 60


@pytest.fixture(scope="session", autouse=True)
def stalls_folder() -> Iterator[Path]:
    """Where brokers write down that their loop stood still."""
    with tempfile.TemporaryDirectory(prefix="headrace-stalls-") as folder:
        os.environ["HEADRACE_LOOP_WATCH"] = folder
        yield Path(folder)
        del os.environ["HEADRACE_LOOP_WATCH"]


@pytest.fixture(autouse=True)
def _no_loop_stands_still(stalls_folder: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    stalls = []
    for file in stalls_folder.glob("*.stalls"):
        stalls += file.read_text().splitlines()
        file.unlink()
    if stalls and not request.node.get_closest_marker("holds_the_loop"):
        pytest.fail("a broker's loop stood still:\n" + "\n".join(stalls))


@pytest.fixture
def few_files() -> Iterator[int]:
    """This process may open at least forty files more than it has, and as many as half of all; how many in all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    gc.collect()  # what other tests left open goes now, and not when the limit is counted on
    has = [int(name) for name in os.listdir("/proc/self/fd")]
    limit = 40
    while limit - sum(number < limit for number in has) < max(40, limit // 2 + 16):
        limit += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Seconds of all workers together, set-up and clean-up included, of the files that took most."""
    folders: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                file = report.nodeid.partition("::")[0]
                files[file] += report.duration
                folders["/".join(file.split("/")[:2])] += report.duration
    if files.total() < _LONG_S:
        return
    terminalreporter.section("where the time went")
    for name, seconds in [*folders.most_common(), *files.most_common(40)]:
        terminalreporter.write_line(f"{seconds:7.0f} s  {name}")
