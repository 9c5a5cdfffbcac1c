"""The root of every error that Headrace raises on purpose.

Each package derives one base of its own from `HeadraceError`, with the facts as attributes beside the text.
The text of an error that a user can cause is one sentence: what, where, and how to mend it.
"""


class HeadraceError(Exception):
    """Anything that went wrong and that Headrace itself noticed."""
