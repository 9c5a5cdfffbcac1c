"""What the brokerless classes and gateways of ZeroMQ and nng share.

`message.py` is the form of a message, `forms.py` the forms that may be spoken beside it, `losses.py` how a subscriber
tells what it missed, `dispatch.py` which worker has which request, `unacknowledged.py` what was not acknowledged yet:
these are pure. `ends.py` has a sender and a receiver on a library's socket (`Wire`), with overload policies, timeouts
and counts; `outbox.py` a queue for policies that a library does not have; `endpoints.py` where one may listen;
`system.py` what the operating system is asked; `calls.py` what requests and replies say beside their values.
`inward.py` and `outward.py` are gateways between such ends and topics, whatever the library, and `settings.py` what
they can be told alike.
"""
