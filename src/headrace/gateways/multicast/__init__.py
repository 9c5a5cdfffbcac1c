"""UDP multicast without a broker: publishers and subscribers that speak to each other, repaired from a short history.

    from headrace import multicast

    with multicast.Publisher("239.255.0.1:7400", name="prices") as prices:
        prices.publish(b"101.5", key=b"ACME")

    for message in multicast.Subscriber("239.255.0.1:7400"):
        print(message.key, message.value)

`wire.py` and `message.py` are the form; `sending.py`, `repairs.py`, `receiving.py` and `stream.py` decide, with time as
an argument; `publisher.py` and `subscriber.py` are the shell on sockets. `LogSubscriber` joins a group with the topic
that a gateway publishes there, so that who comes late misses nothing. `process.py` keeps all to the process that made
them.
"""

from headrace.gateways.errors import NotYours
from headrace.gateways.gateway import Overload
from headrace.gateways.inlet import Overloaded
from headrace.gateways.multicast.events import Began, Ended, Event, Lost, Why
from headrace.gateways.multicast.group import Group
from headrace.gateways.multicast.joining import TopicRecord
from headrace.gateways.multicast.log_subscriber import LogSubscriber, TopicGap
from headrace.gateways.multicast.message import Content, Message, Origin
from headrace.gateways.multicast.publisher import Publisher, PublisherClosed
from headrace.gateways.multicast.sending import SendingSettings
from headrace.gateways.multicast.stream import Position, ReceivingSettings
from headrace.gateways.multicast.subscriber import Subscriber
from headrace.gateways.multicast.wire import Session

__all__ = [
    "Began",
    "Content",
    "Ended",
    "Event",
    "Group",
    "LogSubscriber",
    "Lost",
    "Message",
    "NotYours",
    "Origin",
    "Overload",
    "Overloaded",
    "Position",
    "Publisher",
    "PublisherClosed",
    "ReceivingSettings",
    "SendingSettings",
    "Session",
    "Subscriber",
    "TopicGap",
    "TopicRecord",
    "Why",
]
