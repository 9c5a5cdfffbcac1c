"""A connector as a process of its own, to be killed: settings come as JSON, events go to standard output."""

import json
import logging
import signal
import sys

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.retry import Backoff
from headrace.telemetry.logs import JsonFormatter


def main() -> None:
    told = json.loads(sys.argv[1])
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.getLogger("headrace").addHandler(handler)
    logging.getLogger("headrace").setLevel(logging.INFO)
    section = told.get("section") or {
        "url": told["url"],
        "slot": told["name"],
        "tables": told.get("tables", []),
        "heartbeat_s": 1.0,
    }
    addresses = parse_bootstrap(told["bootstrap"])
    runtime = make_runtime(
        from_section(told["name"], section | told.get("source", {})),
        addresses,
        Cluster(addresses),
        backoff=Backoff(first_s=0.1, longest_s=1.0),
    )
    signal.signal(signal.SIGTERM, lambda *_: runtime.stop())
    runtime.run()


if __name__ == "__main__":
    main()
