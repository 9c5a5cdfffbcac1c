"""Values that are not what was to be expected of their key: `flag_anomalies`, and the ways to expect.

A way (`ewma`, `robust`, `seasonal`) is a frozen dataclass that expects a value from those before it; `flags` is the
step that they have in common. Loops over many keys are compiled, one call serves all of them.
"""
