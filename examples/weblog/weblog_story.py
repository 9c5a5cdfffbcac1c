"""A web server at work, its log followed while it is rotated, a fault in the middle, and what the log tells of it.

python examples/weblog/weblog_story.py
"""

import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from access_jobs import budget_burn, busy_paths, rates_by_class
from nginx_server import WebServer

from headrace import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def tell(spark: "SparkSession", folder: Path, per_s: float = 200.0) -> dict[str, object]:
    """Run all of it in a folder; what was counted."""
    random = Random(7)
    with Broker(folder / "broker") as broker:
        server = WebServer(folder / "nginx", _free_port())
        follow = [
            sys.executable, "-m", "headrace.cli.main", "produce", "access", "--follow", str(server.log),
            "--bootstrap", broker.bootstrap_servers, "--json",
        ]  # fmt: skip
        follower = subprocess.Popen(follow, stdout=subprocess.DEVNULL)
        sent = 1  # the one that found out that the server is there
        try:
            sent += server.load(int(3 * per_s), per_s, random)
            server.fail(now=True)
            sent += server.load(int(2 * per_s), per_s, random)
            server.rotate()
            server.fail(now=False)
            sent += server.load(int(4 * per_s), per_s, random)
        finally:
            server.stop()
            follower.terminate()
            follower.wait(timeout=60)
        subprocess.run([*follow, "--once"], stdout=subprocess.DEVNULL, check=True)  # what it had not come to
        source = spark.read.format("headrace").option("bootstrap", broker.bootstrap_servers)
        access = source.option("format", "combined").load("access")
        return {"sent": sent, **_told(access)}


def _told(access: "DataFrame") -> dict[str, object]:
    classes = rates_by_class(access).groupBy("class").sum("requests").collect()
    paths = busy_paths(access).groupBy("path").agg({"requests": "sum", "p95": "max"}).collect()
    burn = sorted(budget_burn(access).collect(), key=lambda row: row.window_start)
    return {
        "classes": {row[0]: row[1] for row in classes},
        "paths": {row["path"]: row["sum(requests)"] for row in paths},
        "slowest_p95_s": max(row["max(p95)"] for row in paths),
        "burn": [(row.burn_1s, row.burn_3s, row.alert) for row in burn],
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    from headrace.pipelines import session

    with tempfile.TemporaryDirectory() as folder:
        found = tell(session("weblog"), Path(folder))
    print(f"{found['sent']} requests were sent, and the log tells of", found["classes"])
    for path, count in sorted(found["paths"].items(), key=lambda one: -one[1]):  # type: ignore[attr-defined]
        print(f"{count:8} {path}")
    print("the slowest path's 95th percentile in a second:", found["slowest_p95_s"], "s")
    for short, long, alert in found["burn"]:  # type: ignore[attr-defined]
        print(f"burn {short:6.1f} {long:6.1f}", "ALERT" if alert else "")


if __name__ == "__main__":
    main()
