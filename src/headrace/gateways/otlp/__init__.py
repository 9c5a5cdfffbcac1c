"""Logs, metrics and traces from OpenTelemetry (OTLP over HTTP) into topics.

`messages` reads requests and writes answers, `records` makes records of them (both pure), `settings` is what a section
says, `server` the shell.
"""
