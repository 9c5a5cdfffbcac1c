"""Coordinators: pure state machines over internal topics.

A coordinator is asked with an event and the time, and answers with a decision: what to tell whom, what to write, when
to be asked again. Deciding changes nothing. The shell writes the decision's records to the internal topic, then has
them applied, then sends the answers; after a crash, applying the topic's records from the start gives the same state.
There is no clock, socket, file or randomness in here: times, fresh ids and facts about topics come in as arguments.
"""
