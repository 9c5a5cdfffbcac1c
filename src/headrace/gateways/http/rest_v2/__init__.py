"""The paths of Kafka's REST proxy, version 2, for programs that know them: topics, produce, and consumers in groups.

`forms.py` reads and writes the bodies (pure), `consumers.py` holds the consumers, `routes.py` is the paths.
"""
