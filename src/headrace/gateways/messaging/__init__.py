"""What the brokerless classes and gateways of ZeroMQ and nng share.

`message.py` is the form of a message, `forms.py` the forms that may be spoken beside it, `losses.py` how a subscriber
tells what it missed: these are pure. `ends.py` has a sender and a receiver on a library's socket (`Wire`), with
overload policies, timeouts and counts; `dropping.py` the policy that no library has; `endpoints.py` where one may
listen; `calls.py` what requests and replies say beside their values. `inward.py` and `outward.py` are gateways between
such ends and topics, whatever the library.
"""
