"""Why somebody may or may not do something, and which ACLs have no effect. Pure; the decision itself is `Acls.decide`.

What always holds: an explanation says allowed or denied as the authorizer does, for it asks the same function.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.security.acl import WILDCARD, Acl, Operation, PatternType, Permission
from headrace.security.authorizer import Acls, Action, bears_on
from headrace.security.principal import EVERYONE, Principal


@dataclass(frozen=True, slots=True)
class Explanation:
    is_allowed: bool
    reason: str  # a sentence about this one, without a full stop
    deciding: tuple[Acl, ...] = ()  # those that deny it, or one that allows it
    needs_allowing: bool = False  # nothing would allow it, also without what denies it
    others: tuple[Acl, ...] = ()  # of the same user on the same resource, for something else or from elsewhere


class Rules(NamedTuple):
    """What a broker decides by, as far as it is known; `super_users` is None where the broker does not tell."""

    acls: Sequence[Acl]
    super_users: frozenset[Principal] | None = frozenset()
    allow_if_no_acl: bool = False


def explain(rules: Rules, action: Action) -> Explanation:
    """Why an action is allowed or denied; a host that no ACL names stands for any other."""
    if action.principal in (rules.super_users or ()):
        return Explanation(True, "it is one of super.users")
    held = Acls()
    for acl in rules.acls:
        held.add(acl)
    bearing = list(held.bearing_on(action.resource_type, action.name))
    verdict = held.decide(action)
    applying = [acl for acl in bearing if bears_on(acl, action)]
    denying = tuple(sorted(acl for acl in applying if acl.permission is Permission.DENY))
    allowing = tuple(sorted(acl for acl in applying if acl.permission is Permission.ALLOW))
    whose = (str(action.principal), str(EVERYONE))
    others = tuple(sorted(acl for acl in bearing if acl.principal in whose and acl not in applying))
    if verdict is None:
        if rules.allow_if_no_acl:
            return Explanation(True, "no ACL bears on it, and allow.everyone.if.no.acl.found is true")
        return Explanation(False, "no ACL bears on it", needs_allowing=True)
    if denying:
        return Explanation(False, "an ACL denies it, which outweighs all that allow", denying, not allowing, others)
    if allowing:
        return Explanation(True, "an ACL allows it", allowing[:1], others=others)
    return Explanation(False, "no ACL allows it", needs_allowing=True, others=others)


def hosts_that_differ(rules: Rules, action: Action) -> dict[str, Explanation]:
    """The addresses that ACLs name from which it is decided otherwise than from where the action comes."""
    decided = explain(rules, action).is_allowed
    hosts = sorted({acl.host for acl in rules.acls if acl.host not in (WILDCARD, action.host)})
    found = {host: explain(rules, action._replace(host=host)) for host in hosts}
    return {host: each for host, each in found.items() if each.is_allowed != decided}


def find_shadowed(acls: Iterable[Acl]) -> list[tuple[Acl, Acl]]:
    """ACLs that allow an operation in vain, each with one that denies it; what an operation implies may be left."""
    acls = list(acls)
    denying = [acl for acl in acls if acl.permission is Permission.DENY]
    found = []
    for acl in acls:
        if acl.permission is Permission.ALLOW:
            shadow = next((each for each in denying if _denies_all_of(each, acl)), None)
            if shadow is not None:
                found.append((acl, shadow))
    return found


def _denies_all_of(deny: Acl, allow: Acl) -> bool:
    return (
        deny.resource_type is allow.resource_type
        and deny.principal in (allow.principal, str(EVERYONE))
        and deny.host in (allow.host, WILDCARD)
        and deny.operation in (allow.operation, Operation.ALL)
        and _covers_pattern(deny, allow)
    )


def _covers_pattern(wide: Acl, narrow: Acl) -> bool:
    if wide.pattern_type is PatternType.PREFIXED:
        is_all = narrow.pattern_type is PatternType.LITERAL and narrow.resource_name == WILDCARD
        return narrow.resource_name.startswith(wide.resource_name) and not is_all
    if wide.resource_name == WILDCARD:
        return True
    return narrow.pattern_type is PatternType.LITERAL and narrow.resource_name == wide.resource_name


def find_unknown(acls: Iterable[Acl], is_known: Callable[[Principal], bool]) -> list[str]:
    """The principals of ACLs whom nobody knows."""
    named = sorted({acl.principal for acl in acls if acl.principal != str(EVERYONE)})
    return [text for text in named if not is_known(Principal.parse(text))]
