"""What is put into the database: tables, functions, triggers. Pure.

A row is stored as its own text, all columns at once (`new::text`), written with fixed settings: so a trigger need not
know columns, and goes on unchanged when a column is added. Which columns they were is the shape, looked up once a
statement and stored when it is new, by whoever writes, in the same transaction.
"""

# ruff: noqa: S608 - the capture's name is checked, the others are quoted

from headrace.connect.postgres.catalog import quote
from headrace.connect.postgres.rows import literal
from headrace.connect.postgres.values import SESSION

_PINNED = " ".join(f"set {name} = '{value}'" for name, value in SESSION.items() if name != "client_encoding")


def install(capture: str) -> list[str]:
    """The statements that make what capture needs; all in one transaction."""
    safe = f"security definer set search_path = pg_catalog, {capture}, pg_temp"
    return [
        f"create schema if not exists {capture}",
        f"create table {capture}.state (installed text not null, system text, tables jsonb, horizon text)",
        f"insert into {capture}.state (installed) values (md5(random()::text || clock_timestamp()))",
        f"""create table {capture}.shapes (
            id int generated always as identity primary key, root oid not null, relation oid not null,
            schema text not null, name text not null, fingerprint text not null, columns jsonb not null,
            key text[] not null, gone bool not null default false, unique (relation, fingerprint))""",
        f"""create table {capture}.changes (
            position bigint generated always as identity primary key, xid xid8 not null, at timestamptz not null,
            shape int not null, op "char" not null, before text, after text)""",
        f"create index changes_xid on {capture}.changes (xid, position)",
        f"""create function {capture}.shape_of(of_root oid, of_relation oid) returns int
        language plpgsql {safe} as $$
        declare found int; found_schema text; found_name text; found_columns jsonb; found_key text[]; mark text;
        begin
            select n.nspname, c.relname into found_schema, found_name
            from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = of_root;
            select jsonb_agg(jsonb_build_array(attname, atttypid::bigint, atttypmod, attgenerated <> '') order by attnum
            ) into found_columns from pg_attribute where attrelid = of_relation and attnum > 0 and not attisdropped;
            select coalesce(array_agg(a.attname::text order by o.place), '{{}}') into found_key
            from (select * from pg_index x where x.indrelid = of_root and x.indisunique and x.indpred is null
                      and x.indimmediate and (x.indisprimary or not exists (select from pg_attribute n
                          where n.attrelid = of_root and n.attnum = any(x.indkey) and not n.attnotnull)
                          and 0 <> all(x.indkey))
                  order by x.indisprimary desc, x.indexrelid limit 1) x
            cross join unnest(x.indkey::int2[]) with ordinality o(number, place)
            join pg_attribute a on a.attrelid = of_root and a.attnum = o.number where o.place <= x.indnkeyatts;
            mark := md5(found_schema || '.' || found_name || found_columns::text || found_key::text);
            select id into found from {capture}.shapes s where s.relation = of_relation and s.fingerprint = mark;
            if found is null then
                insert into {capture}.shapes (root, relation, schema, name, fingerprint, columns, key)
                values (of_root, of_relation, found_schema, found_name, mark, found_columns, found_key)
                on conflict (relation, fingerprint) do update set root = excluded.root returning id into found;
            end if;
            return found;
        end $$""",
        f"""create function {capture}.look() returns trigger language plpgsql {safe} as $$
        begin
            perform set_config('{capture}.r' || tg_relid, {capture}.shape_of(tg_argv[0]::oid, tg_relid)::text, true);
            return null;
        end $$""",
        f"""create function {capture}.write() returns trigger language plpgsql {safe} {_PINNED} as $$
        declare shape int := nullif(current_setting('{capture}.r' || tg_relid, true), '')::int;
        begin
            if shape is null then shape := {capture}.shape_of(tg_argv[0]::oid, tg_relid); end if;
            insert into {capture}.changes (xid, at, shape, op, before, after) values (
                pg_current_xact_id(), clock_timestamp(), shape,
                case tg_op when 'INSERT' then 'c' when 'UPDATE' then 'u' when 'DELETE' then 'd' else 't' end,
                case when tg_op in ('UPDATE', 'DELETE') then old::text end,
                case when tg_op in ('INSERT', 'UPDATE') then new::text end);
            return null;
        end $$""",
        f"revoke all on schema {capture} from public",
        f"grant usage on schema {capture} to public",
    ]


def trigger_names(capture: str) -> tuple[str, str, str]:
    return f"{capture}_look", f"{capture}_write", f"{capture}_truncate"


def triggers(capture: str, table: str, root: int) -> list[str]:
    """The statements that put triggers on a table, whose name is quoted; they act for replicated writes as well."""
    look, write, truncate = trigger_names(capture)
    any_change = f"insert or update or delete on {table}"
    act = f"execute function {capture}.write('{root}')"
    made = [
        f"create trigger {look} before {any_change} for each statement execute function {capture}.look('{root}')",
        f"create trigger {write} after {any_change} for each row {act}",
        f"create trigger {truncate} after truncate on {table} for each statement {act}",
    ]
    dropped = [f"drop trigger if exists {name} on {table}" for name in (look, write, truncate)]
    return dropped + made + [f"alter table {table} enable always trigger {name}" for name in (look, write, truncate)]


def note(capture: str, shape: str, op: str, why: str = "") -> str:
    """The statement that writes an event without values; `shape` is SQL.

    Besides a truncate (`t`) there is what may have changed rows unseen (`h`, and why), and that all rows follow (`e`).
    """
    return (
        f"insert into {capture}.changes (xid, at, shape, op, after) "
        f"values (pg_current_xact_id(), clock_timestamp(), {shape}, '{op}', nullif({literal(why)}, ''))"
    )


def every_row(capture: str, table: str, root: int) -> str:
    """The statement that writes every row of a table as read."""
    alias = quote("headrace row")
    return (
        f"insert into {capture}.changes (xid, at, shape, op, after) select pg_current_xact_id(), clock_timestamp(), "
        f"{capture}.shape_of({root}, {alias}.tableoid), 'r', {alias}::text from {table} as {alias}"
    )
