"""Forgetting: personal fields sealed with a key for each subject, which is destroyed to forget it.

`sealed.py` is the form of a sealed value, `key_store.py` the contract of what keeps keys (`sql_keys.py` in SQLite and
PostgreSQL), `master_key.py` what wraps them, `keyring.py` what seals and opens. `ledger.py` tells all parts who was
forgotten. `report.py` is what was done where, `search.py` how stores are looked through.

What always holds: a value that was sealed is nowhere of ours in plain; once its key is destroyed nobody opens it, in
whatever copy; and no text of ours, log or error, holds a key or a value.
"""

from typing import TYPE_CHECKING

from headrace.extras import export_lazily

if TYPE_CHECKING:
    from headrace.forgetting.errors import ForgettingError, SubjectForgotten
    from headrace.forgetting.keyring import FORGOTTEN, Keyring, open_keys

__all__ = ["FORGOTTEN", "ForgettingError", "Keyring", "SubjectForgotten", "open_keys"]

_HOMES = {"errors": ("ForgettingError", "SubjectForgotten"), "keyring": ("FORGOTTEN", "Keyring", "open_keys")}

__getattr__, __dir__ = export_lazily(
    __name__, {name: f"{__name__}.{home}" for home, names in _HOMES.items() for name in names}
)
