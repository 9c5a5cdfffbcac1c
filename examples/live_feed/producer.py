"""Prices for the page beside this file, through an HTTP gateway, and the page itself at http://127.0.0.1:8000/feed.html.

    headrace broker start --data-dir data &
    headrace topic create prices
    headrace gateway http --origins http://127.0.0.1:8000 &
    python examples/live_feed/producer.py

Stop the gateway or the broker and start it again: the page goes on where it was, and each price was written once.
"""

import json
import random
import threading
import time
import urllib.error
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import uuid4

GATEWAY = "http://127.0.0.1:8500"
ARTICLES = {"bike": 450.0, "garden gnome": 12.5, "lamp": 39.9, "teapot": 24.0}


def produce(gateway: str, topic: str, record: object) -> None:
    """Write a record, and again until it is durable; the key of the request has it written once."""
    request = urllib.request.Request(
        f"{gateway}/produce/{topic}",
        json.dumps(record).encode(),
        {"Content-Type": "application/json", "Idempotency-Key": str(uuid4())},
    )
    while True:
        try:
            urllib.request.urlopen(request, timeout=30).close()
            return
        except urllib.error.HTTPError as error:
            if error.code not in (409, 503):
                raise
        except OSError:
            pass  # the gateway is away
        time.sleep(0.5)


def prices(gateway: str = GATEWAY, topic: str = "prices", pause_s: float = 0.5) -> None:
    """A price every now and then, for ever."""
    current, number = dict(ARTICLES), 0
    while True:
        article = random.choice(list(current))
        current[article] = round(current[article] * random.uniform(0.97, 1.03), 2)
        number += 1
        value = {"article": article, "price": current[article], "number": number}
        produce(gateway, topic, {"key": article, "value": value})
        time.sleep(pause_s)


class Page(SimpleHTTPRequestHandler):
    """The files beside this one."""

    def log_message(self, *_: object) -> None:
        """Nothing is said of requests."""


if __name__ == "__main__":
    here = partial(Page, directory=str(Path(__file__).parent))
    server = ThreadingHTTPServer(("127.0.0.1", 8000), here)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("http://127.0.0.1:8000/feed.html shows the prices, with ?via=websocket by WebSocket")
    prices()
