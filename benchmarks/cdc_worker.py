"""Our connector as a process: URL, bootstrap, slot, prefix, snapshot mode, tables. SIGTERM ends it in good order."""

import re
import signal
import sys
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.capture.connector import make_runtime
from headrace.connect.capture.settings import from_section


def main() -> None:
    """Run until told to stop."""
    url, bootstrap, slot, prefix, snapshot, *tables = sys.argv[1:]
    section: dict[str, Any] = {"url": url, "slot": slot, "prefix": prefix, "snapshot": snapshot, "compression": "lz4"}
    section["tables"] = [re.escape(table) for table in tables]
    addresses = parse_bootstrap(bootstrap)
    runtime = make_runtime(from_section("bench", section), addresses, Cluster(addresses))
    signal.signal(signal.SIGTERM, lambda *_: runtime.stop())
    runtime.run()


if __name__ == "__main__":
    main()
