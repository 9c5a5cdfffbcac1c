"""What goes wrong with keys and sealed values. No text here ever holds a key, a subject's values, or a secret."""

from headrace.errors import HeadraceError


class ForgettingError(HeadraceError):
    """Anything that the keys, or what is sealed with them, noticed."""


class InvalidSubject(ForgettingError):
    """A subject that no key can belong to."""


class InvalidMasterKey(ForgettingError):
    """No master key, or a text that is none."""


class WrongMasterKey(ForgettingError):
    """A master key that another key store was made with; nothing can be opened with it, and nothing is written."""


class InvalidKeyStore(ForgettingError):
    """An address that names no key store."""


class KeyStoreUnavailable(ForgettingError):
    """The key store cannot be reached now."""


class UnknownKey(ForgettingError):
    """A sealed value whose key was never in this key store: another store's, or one that lost keys."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"a value is sealed with key {key_id}, which is not in the key store, nor was it destroyed there: use the "
            "key store that it was sealed with, or one restored whole"
        )
        self.key_id = key_id


class Tampered(ForgettingError):
    """A sealed value that does not open: it was altered, or belongs to another field or subject."""

    def __init__(self, field: str, reason: str = "it was altered, or sealed for another field") -> None:
        super().__init__(f"the sealed value in {field!r} does not open: {reason}")
        self.field = field


class SubjectForgotten(ForgettingError):
    """Something was to be sealed for a subject that was forgotten."""

    def __init__(self, key_id: str) -> None:
        super().__init__(
            f"the subject of key {key_id} was forgotten, and nothing about it is kept any more: whoever comes back on "
            "purpose gets a new key by Keyring.renew"
        )
        self.key_id = key_id
