"""Side effects from a stream: an e-mail, a webhook, a call to somebody's service; each record once, as far as that
can be had.

A batch's records first go into a table `headrace_outbox`, with the batch's number, in one transaction; each under an
idempotence key that the user names. Then they are sent, and what was done is remembered. So:

- A record whose sending is remembered as done is never sent again, by no replay and by no reset of the pipeline.
- When the process dies between a sending and the memory of it, the record is in doubt. It is sent again, **with the
  same key**. No sender can do better: only the receiver knows whether the first one arrived. The effect is exactly
  once if the receiver drops a key that it has seen (payment and mail services take an `Idempotency-Key`), else at
  least once.
- A sending that fails is tried again with growing pauses; after `attempts` the record is `failed`, with its error in
  the table, in `failed()` and a line in the log; `retry_failed()` sends them again with the next batch.

`ledger.py` is the table, `delivery.py` the sending, with webhooks as one sender and `mail.py` as another; `sink.py` is
the whole.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.pipelines.sink.effects.delivery import Refused, Webhook, webhook
    from headrace.pipelines.sink.effects.ledger import FailedRecord
    from headrace.pipelines.sink.effects.mail import Email, email
    from headrace.pipelines.sink.effects.sink import Outbox, outbox

# Loaded when first asked for: the table and the sending need no Spark, and have other users.
_HOMES = {
    **dict.fromkeys(("Refused", "Webhook", "webhook"), "headrace.pipelines.sink.effects.delivery"),
    **dict.fromkeys(("Email", "email"), "headrace.pipelines.sink.effects.mail"),
    "FailedRecord": "headrace.pipelines.sink.effects.ledger",
    **dict.fromkeys(("Outbox", "outbox"), "headrace.pipelines.sink.effects.sink"),
}

__all__ = ["Email", "FailedRecord", "Outbox", "Refused", "Webhook", "email", "outbox", "webhook"]

__getattr__, __dir__ = export_lazily(__name__, _HOMES)
