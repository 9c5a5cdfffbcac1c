"""A whole stack in one file: what `headrace.toml` says, checked, and the supervisor that runs it.

From the file to processes, each step a module:

- `document` reads the file, with the environment over it, `positions` finds the line of a key, `keys` checks values,
  `loading` puts it together and reports every mistake at once;
- `kinds/` has a file for each kind of section: its keys, what is wrong with them, and the processes it needs;
  `registry` lists them in the order in which they start. A new kind is a file there and a line here;
- `machine` (pure) decides what to start, stop and restart; `supervisor` does it, with `processes` and `tether`;
- `lines` reads what processes say, `journal` writes the one log, `state_file` what `headrace status` and `headrace top`
  read, with the lock that keeps a second supervisor out.
"""

from typing import Final

DEFAULT_FILE: Final = "headrace.toml"
