"""Kafka's wire protocol, sans-IO: messages, their bytes, and the frames that carry them.

`messages` declares every API in the language of `schema`; `api` lists them. `codec` compiles an encoder or a decoder
for a class and version when one is first needed (`encoder`, `decoder`, `source`, `primitives`). `frame` puts `header`
and body together and finds frames in a stream. `errors` is the table of error codes, and what this package raises.

What always holds: nothing here does input or output, knows the time, or keeps state between calls other than compiled
code; and bytes from outside raise `MalformedMessage` or `FrameTooLarge`, nothing else, whatever they are.
"""
