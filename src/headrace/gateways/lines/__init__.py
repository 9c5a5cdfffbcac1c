"""Lines and frames over TCP and Unix sockets into a topic, one a record, acknowledged if that is asked for.

`settings` is what a section says, `answers` what a client is told (pure), `server` the shell.
"""
