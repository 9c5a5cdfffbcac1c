"""Who may come in, and what they may do: pure decisions, shared by the broker and by our own client.

Nothing here touches a socket, a file or a clock: what is decided depends on the arguments and nothing else.
"""
