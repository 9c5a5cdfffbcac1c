"""Sends the records of a topic to one endpoint until it is killed. Usage: webhook_sender_worker.py BOOTSTRAP URL"""

import sys
import threading

from headrace.client.address import parse_bootstrap
from headrace.gateways.webhook_sender.kind import KIND
from headrace.section_keys import with_defaults

bootstrap, url = sys.argv[1:]
endpoint = {
    "topic": "killed", "url": url, "unsigned": True, "from": "start", "first_pause": "20 ms", "longest_pause": "50 ms",
}  # fmt: skip
given = {"endpoints": {"e": endpoint}, "allow_private": ["127.0.0.1"]}
KIND.make("killed", with_defaults(KIND.keys, given), parse_bootstrap(bootstrap), threading.Event()).run()
