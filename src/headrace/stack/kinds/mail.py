"""`[mail.NAME]`: hits of stored queries by mail, with the keys of `headrace search mail`."""

from collections.abc import Iterable

from headrace.model import check_topic_name
from headrace.searches.digests import Pace
from headrace.searches.mail_settings import SECTION, from_section
from headrace.section_keys import Complaint, Key, complaints
from headrace.stack.kind import Kind, Member, Section, Stack, members_by_section
from headrace.stack.kinds.topics import needs
from headrace.stores.mail.server import SECURITY


def _check(section: Section) -> Iterable[Complaint]:
    needed = ("hits", "server", "sender", "addresses", "addresses_topic", "user", "password", "password_file")
    return complaints(
        section.values, lambda values: from_section(section.name, values), where=section.where, needed=needed
    )


def _members(stack: Stack) -> Iterable[Member]:
    # It waits by itself for a topic or a server that is not there yet.
    return members_by_section(stack, SECTION, ("search", "mail"), needs(stack), is_ready_at_once=True)


KIND = Kind(
    SECTION,
    "Hits of stored queries by mail: one digest an owner and interval at most.",
    """
# [mail.listings]
# hits = "listings.hits"
# server = "127.0.0.1"       # elsewhere: security = "starttls", user and password or password_file
# security = "none"
# sender = "searches@example.org"
# addresses = { ann = "ann@example.org" }
""",
    (
        Key("hits", str, "The topic of hits.", is_needed=True, check=check_topic_name),
        Key("server", str, "The mail server that takes mails in.", is_needed=True),
        Key("sender", str, "The address that mails are from.", is_needed=True),
        Key("security", str, "How the connection is made safe.", "starttls", choices=SECURITY),
        Key("port", int, "Its port; by default 587 for starttls, 465 for tls, 25 for none.", least=1, most=65535),
        Key("user", str, "Who logs in, if the server asks."),
        Key("password", str, "The password, best as ${VARIABLE}.", is_secret=True),
        Key("password_file", str, "A file with the password, in place of it; others must not be able to read it."),
        Key("ca_file", str, "A PEM file of certificates to believe the server by, in place of the machine's."),
        Key("addresses", dict, "The address of each owner of queries."),
        Key("addresses_topic", str, "A compacted topic with more: the key is the owner, the value the address.",
            check=check_topic_name),
        Key("every", str, "An owner gets one mail in this time at most.", "1 hour"),
        Key("gather", str, "How long after the first hit a mail waits for more.", "10 seconds"),
        Key("most_hits", int, "How many hits a mail shows; more are counted.", Pace().most_hits, least=1, most=100),
        Key("most_a_day", int, "How many mails an owner gets in 24 hours at most.", Pace().most_a_day, least=1,
            most=10_000),
        Key("outbox", str, "Where it is remembered what was sent: sqlite:///PATH or postgresql://…; by default a file "
            "in .headrace.", is_secret=True),
        Key("from", str, "Where the first start of all begins.", "end", choices=("start", "end")),
    ),
    is_named=True,
    check=_check,
    members=_members,
)  # fmt: skip
