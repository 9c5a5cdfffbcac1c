"""Lines of logs, read exactly and by themselves: access logs, logfmt, syslog, and levels in free text. Pure.

Shared by pipelines, whose compiled walks have these readers as their measure, and by gateways, which take lines in.

What always holds: a reader takes bytes, of any kind and any length, in time that grows with their number; it answers a
value or raises `InvalidLine` with the reason in a sentence; and bytes that are not UTF-8 do not make a line invalid,
they are kept as `\\xHH`.
"""

from headrace.log_formats.access import AccessLine, read_combined, read_common
from headrace.log_formats.levels import LEVELS, level_of
from headrace.log_formats.line import InvalidLine
from headrace.log_formats.logfmt import read_logfmt
from headrace.log_formats.syslog import SyslogLine, read_syslog

__all__ = [
    "LEVELS",
    "AccessLine",
    "InvalidLine",
    "SyslogLine",
    "level_of",
    "read_combined",
    "read_common",
    "read_logfmt",
    "read_syslog",
]
