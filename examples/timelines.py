"""A timeline cache at work: posts and follows in topics, home timelines in SQLite, asked for over HTTP.

python examples/timelines.py

It edits and deletes posts and ends follows, and prints a timeline as soon as the view has seen what was written: the
freshness in each answer tells.
"""

import http.client
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import LATEST, list_offsets
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines import session
from headrace.pipelines.jobs.build import prepare
from headrace.pipelines.jobs.load import load
from headrace.pipelines.jobs.place import Place
from headrace.pipelines.jobs.run import Runner
from headrace.pipelines.views.declare import views_in
from headrace.pipelines.views.serving.app import ViewServer

VIEWS = Path(__file__).with_name("timelines_views.py")


class Network:
    """Writes posts and follows, and asks for timelines."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self._cluster, self._port = cluster, port
        self._clock = 0

    def post(self, number: int, author: str, text: str | None) -> None:
        self._clock += 1
        row = {"post": number, "author": author, "text": text, "at": f"2026-01-01T12:{self._clock:02}:00Z"}
        self._put("posts", {"post": number}, row if text else None)

    def follow(self, user: str, author: str, follows: bool = True) -> None:
        key = {"user": user, "author": author}
        self._put("follows", key, key if follows else None)

    def _put(self, topic: str, key: dict[str, Any], row: dict[str, Any] | None) -> None:
        writer = Writer(self._cluster, topic)
        value = json.dumps(row).encode() if row else None
        writer.add(NewRecord(json.dumps(key).encode(), value, timestamp=int(time.time() * 1000)))
        writer.flush()

    def wait(self) -> None:
        """Until the view has seen all that was written; it tells by itself when it goes on."""
        places = [where for topic in ("posts", "follows") for where in self._cluster.partitions(topic)]
        ends = {str(where): found.offset for where, found in self._ends(places)}
        while not self._is_there():
            time.sleep(0.1)
        for event in self._live():
            seen = event.get("freshness", {}).get("offsets", {})
            if all(seen.get(where, 0) >= end for where, end in ends.items()):
                return

    def _ends(self, places: list[Any]) -> Any:
        return list_offsets(self._cluster, dict.fromkeys(places, LATEST)).items()

    def _is_there(self) -> bool:
        return "problem" not in self._get("/views")["views"][0]

    def _live(self) -> Iterator[dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)
        connection.request("GET", "/views/home/live")
        answer = connection.getresponse()
        try:
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()

    def timeline(self, user: str) -> str:
        found = self._get(f"/views/home/{user}")
        posts = (
            "; ".join(f"{post['author']}: {post['text']}" for post in found["row"]["posts"]) if "row" in found else ""
        )
        return f"  {user} sees {posts or 'nothing'}"

    def _get(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        connection.request("GET", path)
        found = json.loads(connection.getresponse().read())
        connection.close()
        return found


def tell(spark: SparkSession, folder: Path) -> Iterator[str]:
    """The story, a line at a time."""
    os.environ["HEADRACE_TIMELINES"] = str(folder / "views.db")
    (home,) = load(VIEWS)
    with Broker(folder / "log") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        for topic in ("posts", "follows"):
            create_topic(cluster, topic, partitions=2, configs={"cleanup.policy": "compact"})
        place = Place(folder / "state", 1)
        runner = Runner(
            [prepare(home, spark, place, bootstrap=broker.bootstrap_servers)], restarts=0, say=lambda *_: None
        )
        runner.begin()
        try:
            with ViewServer(views_in([home]), port=0) as server:
                yield from _story(Network(cluster, server.port))
        finally:
            runner.drain()


def _story(network: Network) -> Iterator[str]:
    network.follow("ann", "bob")
    network.follow("ann", "cat")
    network.post(1, "bob", "hello")
    network.post(2, "cat", "tea?")
    network.post(3, "bob", "a long walk")
    network.wait()
    yield "ann follows bob and cat, who write:"
    yield network.timeline("ann")
    network.post(3, "bob", "a short walk")
    network.post(2, "cat", None)
    network.wait()
    yield "bob thinks better of it, and cat deletes hers:"
    yield network.timeline("ann")
    network.follow("dan", "bob")
    network.follow("ann", "bob", follows=False)
    network.wait()
    yield "dan begins to follow bob, and ann ends it:"
    yield network.timeline("dan")
    yield network.timeline("ann")


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="headrace-timelines-"))
    spark = session("timelines", master="local[2]", state_dir=str(folder / "spark"))
    try:
        for line in tell(spark, folder):
            print(line)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
