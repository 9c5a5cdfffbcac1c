"""The driver's errors as ours."""

import contextlib
from collections.abc import Iterator

import psycopg

from headrace.connect.errors import SourceRefused, SourceUnavailable


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """What the database says, in our words."""
    try:
        yield
    except psycopg.OperationalError as error:
        raise SourceUnavailable(f"the database is not there ({' '.join(str(error).split())})") from error
    except psycopg.errors.InsufficientPrivilege as error:
        said = " ".join(str(error).split())
        raise SourceRefused(f"this user may not do it ({said})", "GRANT SELECT ON TABLE … TO …") from error
    except psycopg.Error as error:
        # A table that was altered, renamed or dropped since it was looked at is looked at anew.
        raise SourceUnavailable(f"the database refused a question ({' '.join(str(error).split())})") from error
