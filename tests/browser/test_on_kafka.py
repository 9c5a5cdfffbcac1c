"""The same pages over a real Apache Kafka: what they tell, a search, a record written, a group moved."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.dashboard.app import DashboardServer
from headrace.serving.guard import cookie_name, session_by_token
from peers.kafka.broker import running_kafka
from tests.browser import parts, traffic
from tests.browser.conftest import TOKEN, settings

pytestmark = pytest.mark.java


class Client:
    """Asks a dashboard as a program would."""

    def __init__(self, server: DashboardServer) -> None:
        self._url = server.url.rstrip("/")
        self._cookie, self._session = session_by_token(TOKEN)
        self._name = cookie_name(server.settings.port)

    def _open(self, path: str, form: dict[str, str] | None = None) -> str:
        data = urllib.parse.urlencode(form | {"csrf": self._session.csrf}).encode() if form is not None else None
        cookie = {"Cookie": f"{self._name}={self._cookie}"}
        with urllib.request.urlopen(urllib.request.Request(self._url + path, data, cookie), timeout=20) as answer:
            return answer.read().decode()

    def get(self, path: str) -> dict:
        try:
            return json.loads(self._open("/api" + path))
        except urllib.error.HTTPError as refused:
            return json.loads(refused.read())

    def post(self, path: str, **form: str) -> str:
        return self._open(path, form)

    def stream(self, path: str) -> str:
        return self._open(path)

    def wait(self, path: str, is_there: Callable[[dict], bool]) -> dict:
        end = time.monotonic() + 60
        while not is_there(found := self.get(path)):
            assert time.monotonic() < end, found
            time.sleep(0.2)
        return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        traffic.make_topics(broker.bootstrap_servers)
        traffic.write_orders(broker.bootstrap_servers, "orders", 2_000, ago_ms=3_600_000)
        traffic.read_some(broker.bootstrap_servers, "reporting", "orders", 800)
        with Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
            parts.write_reports(cluster)
        folder = tmp_path_factory.mktemp("parts")
        with parts.running(broker.bootstrap_servers, folder, parts.ShopDatabase(folder)):
            yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def client(kafka: str) -> Iterator[Client]:
    with DashboardServer(settings(kafka, allow_writes=True, token=TOKEN)) as server:
        yield Client(server)


def rows(found: dict) -> dict[str, dict]:
    return {row["name"]: row for row in found.get("rows", [])}


def test_what_the_pages_tell(client):
    topics = rows(client.wait("/topics", lambda found: "orders" in rows(found)))
    assert (topics["orders"]["records"], topics["orders"]["partitions"]) == (2_000, 4)
    assert topics["orders"]["size_bytes"] > 10_000
    billing = rows(client.wait("/groups", lambda found: "reporting" in rows(found)))["reporting"]
    assert (billing["lag"], billing["state"], billing["outlook"]["kind"]) == (1_200, "Empty", "far")
    assert billing["lag_ms"] > 0
    configs = {config["name"]: config for config in client.get("/topics/orders")["configs"]}
    assert configs["retention.ms"]["is_own"]
    assert configs["retention.ms"]["meaning"] == "7 d"
    client.wait("/pipelines", lambda found: rows(found).get("revenue", {}).get("last", {}).get("batch") == 59)
    client.wait("/changes", lambda found: rows(found).get("shop", {}).get("state") == "running")
    client.wait("/derived", lambda found: rows(found).get("orders-table", {}).get("state") == "running")


def test_a_search_a_record_and_a_move(client):
    client.wait("/topics", lambda found: "orders" in rows(found))
    found = client.stream("/topics/orders/records/stream?" + urllib.parse.urlencode({"where": ".order == 77"}))
    assert '"found": 1}' in found
    assert found.rstrip().endswith("event: done\ndata: null")
    client.post("/topics/payments/produce", key="by-hand", value="{}")
    client.wait("/topics", lambda found: rows(found)["payments"]["records"] == 1)
    assert "Reset reporting to earliest?" in client.post("/groups/reporting/plan", to="earliest", topic="")
    client.post("/groups/reporting/move", moves=json.dumps([["orders", index, 0] for index in range(4)]))
    client.wait("/groups", lambda found: rows(found)["reporting"]["lag"] == 2_000)
