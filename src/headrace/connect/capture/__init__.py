"""Captures as a user has them: from a section `[cdc.NAME]` or the options of a command to a connector that runs.

`settings` says what there is to say and which databases there are, `running` puts captures together, runs them and
hears what is asked of them through a topic, `verification` compares tables with their topics.
"""
