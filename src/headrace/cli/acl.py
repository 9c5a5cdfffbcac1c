"""`headrace acl`: who may do what on a broker that authorises its clients, ours or any Kafka."""

import shlex
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import click

from headrace.cli.output import json_option, print_json, print_table
from headrace.cli.parameters import InvalidText, Parsed, bootstrap_option, connect
from headrace.client.acls import add_acls, list_acls, read_rules, remove_acls
from headrace.client.address import Address
from headrace.errors import nearest
from headrace.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    is_some_host,
)
from headrace.security.authorizer import OPERATIONS, Action
from headrace.security.explanation import Rules, explain, hosts_that_differ
from headrace.security.principal import Principal

_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.CLUSTER: "--cluster",
}
_BY_WORD = {operation.name.lower().replace("_", "-"): operation for operation in Operation if operation > Operation.ANY}


def _word_of(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def _read_principal(text: str) -> Principal:
    return Principal.parse(text) if ":" in text else Principal(text)


def _read_operations(text: str) -> tuple[Operation, ...]:
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in _BY_WORD:
            choices = ", ".join(_BY_WORD)
            raise InvalidText(
                f"operation {word!r} is unknown: {nearest(word, _BY_WORD, otherwise=f'choose of {choices}')}"
            )
    return tuple(_BY_WORD[word] for word in words)


def _read_host(text: str) -> str:
    host = text.strip().strip("[]")
    if not is_some_host(host):
        raise InvalidText(
            f"{text!r} is not the address of a client, so it would bear on nobody: write one as 10.0.0.7, or *"
        )
    return host


_principal_argument = click.argument("principal", type=Parsed("principal", _read_principal))
_operations_type = Parsed("operations", _read_operations)


def _resource_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for decorate in reversed(
        (
            click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic, or * for all."),
            click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group, or * for all."),
            click.option(
                "--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="One, or * for all."
            ),
            click.option("--cluster", is_flag=True, help="The cluster itself: its topics, ACLs and settings."),
            click.option("--prefix", is_flag=True, help="The names stand for all that begin with them."),
        )
    ):
        command = decorate(command)
    return command


class _Resources:
    """The resources that a command line names."""

    def __init__(
        self,
        topics: tuple[str, ...],
        groups: tuple[str, ...],
        transactional_ids: tuple[str, ...],
        *,
        cluster: bool,
        prefix: bool,
    ) -> None:
        pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
        named = (
            (ResourceType.TOPIC, topics),
            (ResourceType.GROUP, groups),
            (ResourceType.TRANSACTIONAL_ID, transactional_ids),
        )
        self.named = [(kind, name, pattern) for kind, names in named for name in names]
        if cluster:
            self.named.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        if prefix and any(name == WILDCARD for _, name, _ in self.named):
            raise click.UsageError("* stands for all names already: leave --prefix out")


def _check_possible(operations: tuple[Operation, ...], resources: list[tuple[ResourceType, str, PatternType]]) -> None:
    if not resources:
        raise click.UsageError("name what it is about: --topic, --group, --transactional-id or --cluster")
    for operation, (kind, _, _) in product(operations, resources):
        if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
            allowed = ", ".join(map(_word_of, OPERATIONS[kind]))
            raise click.UsageError(f"{_word_of(operation)} is not possible with {_OPTIONS[kind]}: choose of {allowed}")


@click.group()
def acl() -> None:
    """Say who may do what, on a broker that was started with authorization=on, or any Kafka."""


@acl.command("list")
@click.option("--principal", type=Parsed("principal", _read_principal), help="Of this user alone, as alice.")
@click.option("--topic", help="Those that bear on this topic, by its name, a prefix of it, or *.")
@click.option("--group", help="The same for a consumer group.")
@bootstrap_option
@json_option
def list_command(
    principal: Principal | None, topic: str | None, group: str | None, bootstrap: tuple[Address, ...], as_json: bool
) -> None:
    """List the ACLs."""
    if topic is not None and group is not None:
        raise click.UsageError("give either --topic or --group")
    wanted = AclFilter(principal=str(principal) if principal else None)
    if topic is not None or group is not None:
        kind = ResourceType.TOPIC if topic is not None else ResourceType.GROUP
        wanted = wanted._replace(resource_type=kind, resource_name=topic or group, pattern_type=PatternType.MATCH)
    with connect(bootstrap) as cluster:
        acls = list_acls(cluster, wanted)
    if as_json:
        print_json([_as_json(each) for each in acls])
    elif not acls:
        click.echo("no ACLs: add one with headrace acl add PRINCIPAL OPERATION --topic NAME")
    else:
        _print(acls)


@acl.command()
@_principal_argument
@click.argument("operations", type=_operations_type, metavar="OPERATION[,…]")
@_resource_options
@click.option(
    "--host",
    type=Parsed("address", _read_host),
    default=WILDCARD,
    metavar="ADDRESS",
    help="From this address alone; by default from every one.",
)
@click.option("--deny", is_flag=True, help="Deny it, whatever other ACLs allow.")
@bootstrap_option
@json_option
def add(
    principal: Principal,
    operations: tuple[Operation, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    host: str,
    deny: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Allow a user operations on topics, groups, transactional ids or the cluster.

    Who may read, write, delete or alter something may describe it, too.

    \b
      headrace acl add alice read --topic orders --group billing
      headrace acl add alice write,create --topic logs. --prefix
      headrace acl add mallory all --topic orders --deny
      headrace acl add '*' describe --topic '*'
    """
    resources = _Resources(topics, groups, transactional_ids, cluster=cluster, prefix=prefix).named
    _check_possible(operations, resources)
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [
        Acl(*resource, str(principal), host, operation, permission)
        for resource, operation in product(resources, operations)
    ]
    with connect(bootstrap) as connected:
        add_acls(connected, acls)
    _report("added", acls, as_json=as_json)


@acl.command()
@_principal_argument
@click.argument("operations", type=_operations_type, metavar="[OPERATION[,…]]", required=False)
@_resource_options
@click.option("--host", metavar="ADDRESS", help="Only those for this address.")
@click.option("--deny", is_flag=True, help="Only those that deny.")
@bootstrap_option
@json_option
def remove(
    principal: Principal,
    operations: tuple[Operation, ...] | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    host: str | None,
    deny: bool,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Remove ACLs of a user: all, or those of some operations or resources.

    \b
      headrace acl remove alice write --topic orders
      headrace acl remove alice
    """
    resources: list[tuple[ResourceType, str | None, PatternType]] = [
        *_Resources(topics, groups, transactional_ids, cluster=cluster, prefix=prefix).named
    ]
    filters = [
        AclFilter(*resource, str(principal), host, operation, Permission.DENY if deny else Permission.ANY)
        for resource, operation in product(
            resources or [(ResourceType.ANY, None, PatternType.ANY)], operations or (Operation.ANY,)
        )
    ]
    with connect(bootstrap) as connected:
        removed = remove_acls(connected, filters)
    _report("removed", removed, as_json=as_json)


# --- why


@acl.command()
@_principal_argument
@click.argument("operation", type=Parsed("operation", _read_operations))
@_resource_options
@click.option("--host", type=Parsed("address", _read_host), metavar="ADDRESS", help="As seen from this address.")
@bootstrap_option
@json_option
@click.pass_context
def why(
    context: click.Context,
    principal: Principal,
    operation: tuple[Operation, ...],
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    cluster: bool,
    prefix: bool,
    host: str | None,
    bootstrap: tuple[Address, ...],
    as_json: bool,
) -> None:
    """Say why a user may or may not do something: the rule that decides, or the one that is missing, as a command.

    Ends with 1 if something is denied. Without --host it is about an address that no ACL names.

    \b
      headrace acl why alice read --topic orders --group billing
      headrace acl why alice write --topic orders --host 10.0.0.7
    """
    if prefix:
        raise click.UsageError("name one resource instead of a prefix: what is allowed may differ among them")
    resources = _Resources(topics, groups, transactional_ids, cluster=cluster, prefix=False).named
    _check_possible(operation, resources)
    with connect(bootstrap) as connected:
        rules = read_rules(connected)
    if rules is None:
        if as_json:
            print_json([])
        else:
            click.echo("everything is allowed to everybody: the broker runs without authorization")
        return
    answers = [
        _Answer(rules, Action(principal, host or _ELSEWHERE, each, kind, name))
        for (kind, name, _), each in product(resources, operation)
    ]
    if as_json:
        print_json([answer.as_json() for answer in answers])
    else:
        for answer in answers:
            answer.show()
        if rules.super_users is None:
            click.echo("note: the broker does not tell who its super users are, who may do everything", err=True)
    if not all(answer.found.is_allowed for answer in answers):
        context.exit(1)


_ELSEWHERE: Final = ""  # an address that no ACL names


class _Answer:
    """Why one action is allowed or denied, and what would change that."""

    def __init__(self, rules: Rules, action: Action) -> None:
        self._action = action
        self.found = explain(rules, action)
        self._elsewhere = {} if action.host else hosts_that_differ(rules, action)
        self._mends = [] if self.found.is_allowed else list(self._find_mends())

    def _find_mends(self) -> Iterator[str]:
        for each in self.found.deciding:
            yield _command("remove", each) + (" --deny" if each.permission is Permission.DENY else "")
        if self.found.needs_allowing:
            action = self._action
            pattern = (action.resource_type, action.name, PatternType.LITERAL)
            host = action.host or WILDCARD
            yield _command("add", Acl(*pattern, str(action.principal), host, action.operation, Permission.ALLOW))

    def as_json(self) -> dict[str, Any]:
        found, action = self.found, self._action
        return {
            "principal": str(action.principal),
            "operation": _word_of(action.operation),
            "resource": action.resource_type.name.lower().replace("_", "-"),
            "name": action.name,
            "host": action.host or None,
            "allowed": found.is_allowed,
            "reason": found.reason,
            "deciding": [_as_json(each) for each in found.deciding],
            "mend": self._mends,
            "others": [_as_json(each) for each in found.others],
            "otherwise_from": {host: each.is_allowed for host, each in self._elsewhere.items()},
        }

    def show(self) -> None:
        action, found = self._action, self.found
        what = f"{_word_of(action.operation)} {_OPTIONS[action.resource_type].strip('-')} {action.name}"
        where = f" from {action.host}" if action.host else ""
        click.echo(f"{action.principal} {'may' if found.is_allowed else 'may not'} {what}{where}: {found.reason}")
        for each in found.deciding:
            click.echo(f"  {_sentence_of(each)}")
        for mend in self._mends:
            click.echo(f"  to change that: {mend}")
        for host, there in self._elsewhere.items():
            click.echo(f"  from {host} it is {'allowed' if there.is_allowed else 'denied'}: {there.reason}")
        if not found.is_allowed:
            for other in found.others:
                click.echo(f"  there is, but for something else: {_sentence_of(other)}")


def _sentence_of(each: Acl) -> str:
    host = "" if each.host == WILDCARD else f" from {each.host}"
    name = each.resource_name + ("…" if each.pattern_type is PatternType.PREFIXED else "")
    kind = each.resource_type.name.lower().replace("_", "-")
    return f"{each.principal}: {each.permission.name.lower()} {_word_of(each.operation)} {kind} {name}{host}"


def _command(verb: str, each: Acl) -> str:
    """A command line that adds an ACL, or removes it, to be copied into a shell."""
    principal = Principal.parse(each.principal)
    who = principal.name if principal.kind == Principal("").kind and ":" not in principal.name else each.principal
    words = ["headrace", "acl", verb, who, _word_of(each.operation), _OPTIONS[each.resource_type]]
    words += [each.resource_name] if each.resource_type is not ResourceType.CLUSTER else []
    words += ["--prefix"] if each.pattern_type is PatternType.PREFIXED else []
    words += ["--host", each.host] if each.host != WILDCARD else []
    return shlex.join(words)


def _report(done: str, acls: list[Acl], *, as_json: bool) -> None:
    if as_json:
        print_json({done: [_as_json(each) for each in acls]})
    else:
        click.echo(f"{done} {len(acls)} ACL{'' if len(acls) == 1 else 's'}")
        if acls:
            _print(acls)


def _print(acls: list[Acl]) -> None:
    rows = [
        (
            each.principal,
            each.permission.name.lower(),
            _word_of(each.operation),
            each.resource_type.name.lower().replace("_", "-"),
            each.resource_name + ("…" if each.pattern_type is PatternType.PREFIXED else ""),
            each.host,
        )
        for each in acls
    ]
    print_table(["principal", "permission", "operation", "resource", "name", "from"], rows)
    for host in sorted({each.host for each in acls if not is_some_host(each.host)}):
        click.echo(f"warning: {host!r} is not the address of a client: what is said of it bears on nobody", err=True)


def _as_json(each: Acl) -> dict[str, str]:
    return {
        "principal": each.principal,
        "permission": each.permission.name.lower(),
        "operation": _word_of(each.operation),
        "resource": each.resource_type.name.lower().replace("_", "-"),
        "name": each.resource_name,
        "pattern": each.pattern_type.name.lower(),
        "host": each.host,
    }
