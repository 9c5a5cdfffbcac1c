"""Topics to registered endpoints of others: a record, a signed POST, until it was taken.

    endpoint.py   what an endpoint is, and how it is written in a section or a topic (pure)
    registry.py   the endpoints' topic: what is registered, paused, to be tested or sent again (pure)
    lanes.py      which record is sent next, in which order, when again, and how far all is (pure)
    places.py     how far an endpoint is, and how it stands, as records (pure)
    courier.py    one endpoint at work: reads, sends, takes down what came of it
    gateway.py    all endpoints: follows the registry, runs couriers, commits
    kind.py       the keys

What always holds: every record that matches is sent at least once, with one `webhook-id` however often, or is a dead
letter; positions are committed with the log of deliveries, behind what was answered for; an endpoint that is slow or
dead holds up no other; and a request goes to public addresses alone, and to those that the gateway's section allows.
"""
