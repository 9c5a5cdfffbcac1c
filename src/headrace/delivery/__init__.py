"""What may be asked of the delivery of a message: when, for how long, once, to whom, in which order.

Pure, and shared by the broker, which does it, and by the clients, which ask for it.
"""
