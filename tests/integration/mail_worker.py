"""Mails hits until it is killed. Usage: mail_worker.py BOOTSTRAP SMTP_PORT OUTBOX"""

import sys
import threading

from headrace.client.address import parse_bootstrap
from headrace.searches.mail import MailRunner
from headrace.searches.mail_settings import from_section

bootstrap, port, outbox = sys.argv[1:]
section = {
    "hits": "kill.hits", "server": "127.0.0.1", "port": int(port), "security": "none", "sender": "s@example.org",
    "every": "1 ms", "gather": "1 ms", "most_a_day": 1_000, "from": "start", "outbox": f"sqlite:///{outbox}",
    "addresses": {"ann": "ann@example.org", "bob": "bob@example.org"},
}  # fmt: skip
MailRunner(from_section("kill", section), parse_bootstrap(bootstrap), threading.Event()).run()
