"""The messages and methods that `headrace.proto` declares, from its compiled form.

What always holds: they are in a pool of their own, so that a program which has generated code of the same file can have
a gateway in it too.
"""

from functools import cache
from importlib import resources
from typing import Any, Final

SERVICE: Final = "headrace.v1.Log"
_COMPILED: Final = "headrace.binpb"


@cache
def pool() -> Any:
    """With our file, and those of the services beside ours."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    made = descriptor_pool.DescriptorPool()
    compiled = resources.files(__package__).joinpath(_COMPILED).read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled).file:
        made.AddSerializedFile(file.SerializeToString())
    for known in (health_pb2, reflection_pb2):
        made.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    return made


@cache
def message(name: str) -> Any:
    """The class of a message."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(pool().FindMessageTypeByName(f"headrace.v1.{name}"))


def methods() -> list[Any]:
    """The descriptors of the methods of the service."""
    return list(pool().FindServiceByName(SERVICE).methods)
