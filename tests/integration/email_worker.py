"""Sends what an outbox holds as mails, until it is killed or done. Usage: email_worker.py SMTP_PORT OUTBOX"""

import sys

from headrace.pipelines.sink.effects.delivery import Pace, deliver
from headrace.pipelines.sink.effects.ledger import open_ledger
from headrace.pipelines.sink.effects.mail import email
from headrace.stores.batch import Numbered, Target

port, outbox = sys.argv[1:]
words = {"to": "{to}", "subject": "Order {order}", "text": "We have it."}
send = email("127.0.0.1", "shop@example.org", port=int(port), security="none", **words)
with open_ledger(f"sqlite:///{outbox}", Target("headrace_outbox", "mails")) as ledger:
    records = [(str(n), None, f'{{"order": {n}, "to": "ann@example.org"}}') for n in range(10)]
    ledger.take_in(Numbered("q", 0), records)
    deliver(ledger, send, Pace(parallel=1))
