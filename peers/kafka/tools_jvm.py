"""Kafka's tools one after another in one JVM: a tool takes a tenth of a second, a JVM to start it in one and a half.

Each run has what a process of its own would give it: the tool's classes loaded anew (some count in static fields), its
own standard streams, an exit status, and shutdown hooks that are run at its end, through Kafka's own seam for them
(`Exit`). The clients' classes, which have no such state, are loaded once. The JVM ends with the process that has it.
"""

from __future__ import annotations

import atexit
import contextlib
import signal
import subprocess
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from peers.java import QUICK_START, PeerError, jars_of, java

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TOOLS: Final = "kafka-tools-*.jar"
_STARTING: Final = threading.Lock()


class ToolsJvm:
    """A JVM that runs a tool at a time; threads wait for each other."""

    _shared: ClassVar[ToolsJvm | None] = None

    @classmethod
    def shared(cls, *, heap: str, system_properties: Mapping[str, str]) -> ToolsJvm:
        """Return the one of this process, started now if none lives."""
        with _STARTING:
            if cls._shared is None or not cls._shared.is_alive:
                cls._shared = cls(heap=heap, system_properties=system_properties)
            return cls._shared

    def __init__(self, *, heap: str, system_properties: Mapping[str, str]) -> None:
        self._running = threading.Lock()
        jars = jars_of("kafka")
        tools = set(jars.glob(_TOOLS))
        options = [f"-Xmx{heap}", *QUICK_START, *(f"-D{name}={value}" for name, value in system_properties.items())]
        port, self._process = launch_gateway(
            classpath=":".join(str(jar) for jar in sorted(jars.glob("*.jar")) if jar not in tools),
            javaopts=options,
            die_on_exit=True,
            java_path=java(),
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        server = self._gateway.java_gateway_server
        callbacks = self._gateway.get_callback_server().get_listening_port()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), callbacks)
        self._java = self._gateway.jvm.java
        self._urls = self._array(self._java.net.URL, [self._java.net.URL(jar.as_uri()) for jar in sorted(tools)])
        atexit.register(self.end)

    @property
    def is_alive(self) -> bool:
        """Whether tools can be run in it."""
        return self._process.poll() is None

    def run(
        self, main_class: str, args: Sequence[str], *, standard_input: str, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool to its end and return what it said; `subprocess.TimeoutExpired` ends the JVM with it."""
        with self._running:
            timer = threading.Timer(timeout_s, self._process.kill)
            timer.start()
            try:
                return self._run(main_class, args, standard_input)
            except Py4JNetworkError as error:
                if self._process.wait() == -signal.SIGKILL:
                    raise subprocess.TimeoutExpired([main_class, *args], timeout_s) from error
                raise PeerError(f"{main_class} ended the JVM in which it ran") from error
            finally:
                timer.cancel()
                timer.join()

    def _run(self, main_class: str, args: Sequence[str], standard_input: str) -> subprocess.CompletedProcess[str]:
        system, output, errors = self._java.lang.System, *(self._java.io.ByteArrayOutputStream() for _ in range(2))
        system.setIn(self._java.io.ByteArrayInputStream(standard_input.encode()))
        self._write_to(output, errors)
        nowhere = self._java.io.OutputStream.nullOutputStream()
        ends, hooks = _Ends(lambda: self._write_to(nowhere, nowhere)), _Hooks()
        kafka = self._gateway.jvm.org.apache.kafka.common.utils.Exit
        kafka.setExitProcedure(ends)
        kafka.setHaltProcedure(ends)
        kafka.setShutdownHookAdder(hooks)
        loader = self._java.net.URLClassLoader(self._urls, self._java.lang.ClassLoader.getSystemClassLoader())
        try:
            self._call_main(loader, main_class, args)
        except Py4JJavaError as error:
            if ends.status is None:  # what a JVM says of an exception that nobody caught
                ends.status = 1
                error.java_exception.getCause().printStackTrace()
        finally:
            self._write_to(output, errors)
            for hook in hooks.added:
                hook.run()
            loader.close()
        said = [bytes(stream.toByteArray()).decode(errors="replace") for stream in (output, errors)]
        return subprocess.CompletedProcess([main_class, *args], ends.status or 0, *said)

    def _write_to(self, output: Any, errors: Any) -> None:
        self._java.lang.System.setOut(self._java.io.PrintStream(output, True, "UTF-8"))
        self._java.lang.System.setErr(self._java.io.PrintStream(errors, True, "UTF-8"))

    def _call_main(self, loader: Any, main_class: str, args: Sequence[str]) -> None:
        """Run `main` to its end, in a thread that finds classes by `loader`.

        The tool has a thread of its own because the gateway answers calls of one Python thread in any of its own.
        """
        strings = self._array(self._gateway.jvm.String, args)
        main = loader.loadClass(main_class).getMethod("main", self._array(self._java.lang.Class, [strings.getClass()]))
        handles = self._java.lang.invoke.MethodHandles
        handle = handles.insertArguments(
            handles.publicLookup().unreflect(main), 0, self._array(self._java.lang.Object, [strings])
        )
        called = self._java.lang.Class.forName("java.util.concurrent.Callable")
        task = self._java.util.concurrent.FutureTask(
            self._java.lang.invoke.MethodHandleProxies.asInterfaceInstance(called, handle)
        )
        thread = self._java.lang.Thread(task, main_class)
        thread.setContextClassLoader(loader)
        thread.start()
        task.get()

    def _array(self, kind: Any, items: Sequence[Any]) -> Any:
        array = self._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def end(self) -> None:
        """End the JVM."""
        atexit.unregister(self.end)
        with contextlib.suppress(Py4JError):
            self._gateway.shutdown()
        self._process.kill()  # a gateway that is shut down waits on for the end of its standard input
        self._process.wait()


class _Ended(Exception):
    """Thrown through the tool, as what comes after an exit is not executed."""


class _Ends:
    """Kafka's `Exit.Procedure`: the first status counts, and nothing that the tool does after it is seen."""

    class Java:
        implements: Final = ["org.apache.kafka.common.utils.Exit$Procedure"]

    def __init__(self, end: Callable[[], None]) -> None:
        self.status: int | None = None
        self._end = end

    def execute(self, status: int, message: str | None) -> None:  # noqa: ARG002 - Kafka's signature
        if self.status is None:
            self.status = status
            self._end()
        raise _Ended


class _Hooks:
    """Kafka's `Exit.ShutdownHookAdder`."""

    class Java:
        implements: Final = ["org.apache.kafka.common.utils.Exit$ShutdownHookAdder"]

    def __init__(self) -> None:
        self.added: list[Any] = []

    def addShutdownHook(self, name: str, runnable: Any) -> None:  # noqa: ARG002, N802 - Kafka's names
        self.added.append(runnable)
