"""The headers by which a message asks for more than to be delivered: any client can set them, values are text.

Only topics that opted in (`headrace.queue`) are looked into; in all others these headers mean nothing.
"""

from typing import Final

DELIVER_AT: Final = "headrace-deliver-at"  # ms since the epoch
DELAY_MS: Final = "headrace-delay-ms"  # from the record's timestamp on
EXPIRES_AT: Final = "headrace-expires-at"  # ms since the epoch
TTL_MS: Final = "headrace-ttl-ms"  # from the record's timestamp on
DEDUP_ID: Final = "headrace-dedup-id"
REPEAT: Final = "headrace-repeat"  # an interval, such as 5m, or a cron line, in UTC
SCHEDULE_ID: Final = "headrace-schedule-id"  # what a message that waits is cancelled or replaced by
CANCEL: Final = "headrace-cancel"  # the schedule id of what is not to be delivered any more

ORIGIN: Final = "headrace-origin"  # of a copy: topic/partition/offset of the record that it was made of

CORRELATION_ID: Final = "headrace-correlation-id"
REPLY_TO: Final = "headrace-reply-to"
DEADLINE: Final = "headrace-deadline"  # ms since the epoch
