"""A whole stack in one file: what `headrace.toml` says, checked, and the supervisor that runs it.

From the file to processes, each step a module:

- `positions` finds the line of a key, `keys` checks values, `overrides` takes them from the environment, `loading` puts
  it together and tells every mistake at once;
- `kinds/` has a file for each kind of section: its keys, what is wrong with them, and the processes it needs;
  `registry` lists them in the order in which they start. A new kind is a file there and a line here;
- `machine` (pure) decides what to start, stop and restart; `supervisor` does it, with `processes` and `tether`;
- `journal` writes the one log, `state_file` what `headrace status` and `headrace top` read, `lock` keeps a second
  supervisor out.
"""
