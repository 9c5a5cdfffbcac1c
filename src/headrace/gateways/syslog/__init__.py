"""Messages of syslog, RFC 5424 and 3164, by UDP, TCP, TLS and Unix sockets, into a topic.

`message` makes records of messages (pure; the reading itself is `headrace.log_formats`), `settings` is what a section
says, `server` the shell.
"""
