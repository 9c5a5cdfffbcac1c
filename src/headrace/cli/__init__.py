"""The command line: one file per group of commands, all of one shape.

A command parses, calls one function of the layer below, and shows the answer: a table for people, `--json` for
machines. Errors are one sentence on standard error and exit code 1; a wrong call is exit code 2.
"""
