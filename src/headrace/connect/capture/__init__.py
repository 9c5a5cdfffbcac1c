"""Captures as a user has them: from a section `[cdc.NAME]` or the options of a command to a connector that runs.

`settings` says what there is to say, `kinds` which databases there are, `connector` puts one together, `condition` is
how one stands (told in a topic), `orders` is what is asked of a running one (through another topic), `running` runs
them.
"""
