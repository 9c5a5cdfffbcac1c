"""A webhook gateway that kills itself in its first transaction. Usage: webhook_worker.py BOOTSTRAP NAME PORT STEP"""

import os
import signal
import sys
import threading
from typing import Any

from headrace.client.address import parse_bootstrap
from headrace.client.transactions import Transactions
from headrace.connect import delivery
from headrace.gateways.webhooks.kind import KIND
from headrace.section_keys import with_defaults

bootstrap, name, port, step = sys.argv[1:]


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait()


def then_die(function: Any) -> Any:
    def call(*values: Any, **named: Any) -> Any:
        function(*values, **named)
        die()

    return call


match step:
    case "before":
        Transactions.add = die  # type: ignore[method-assign]
    case "added":
        Transactions.add = then_die(Transactions.add)  # type: ignore[method-assign]
    case "sent":
        delivery.send = then_die(delivery.send)
    case "committed":
        Transactions.commit = then_die(Transactions.commit)  # type: ignore[method-assign]

given = {
    "port": int(port), "provider": "standard", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "path": "/test",
}  # fmt: skip
KIND.make(name, with_defaults(KIND.keys, given), parse_bootstrap(bootstrap), threading.Event()).run()
