"""Doors of the log: what comes from programs that speak no Kafka, and goes into topics.

A folder each, with a pure core and a thin shell; a section `[gateways.NAME]` of `headrace.toml`, whose `kind` names the
folder, or `headrace gateway start NAME` runs it, and it reports its status as every part does.
"""
