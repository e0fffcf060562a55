"""Plugins for Conjure in Python, with nothing but its standard library (Python 3.9 or newer).

This one file is all: copy it beside your plugin. A skill is an object whose tools are functions::

    from typing import Annotated
    from conjure_plugin import Call, Skill

    skill = Skill("greeter", "Greets people")

    @skill.tool(read_only=True)
    def greet(call: Call, name: Annotated[str, "Whom to greet"]) -> str:
        "Greets somebody."
        return f"Hello, {name}!"

    if __name__ == "__main__":
        skill.run()

The schema of a tool's arguments comes from its annotations, its description from the docstring. What
is printed goes to standard error and so to the host's log; standard output belongs to the protocol,
which `any-language.md` of the SDK describes. Each call runs on a thread of its own.
"""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import enum
import hashlib
import inspect
import io
import itertools
import json
import os
import struct
import sys
import threading
import time
import traceback
import types
import typing
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Callable, Iterable, Mapping, NoReturn, Optional, TypeVar, Union

__all__ = [
    "Backend", "Call", "Cancelled", "Context", "Executor", "Failure", "Fault", "Http", "Plugin", "Result",
    "Setup", "Skill", "TestCall", "TestHost", "file_ref", "lazy_file",
]

__version__ = "1.0.0"

#: The most bytes of a frame behind its head.
MAX_FRAME = 32 * 1024 * 1024
#: The most bytes that cross as JSON; what is larger goes to a file of the exchange directory.
INLINE_LIMIT = 64 * 1024
#: Calls and instances at the same time, and host requests of one call.
MAX_CALLS, MAX_HOST_REQUESTS = 4096, 256

_OVERHEAD = 128 * 1024
# Bytes of a thread's stack: the usual 8 MiB of many calls at once are more than a process may have.
_STACK = 2 * 1024 * 1024
_KEEP_INLINE = 8 * 1024
_HEAD = struct.Struct("<IBQ")
_REQUEST, _REPLY, _EMIT, _CREDIT, _CANCEL, _LOG, _HOST_REQUEST, _HOST_REPLY = range(1, 9)
_MANIFEST, _CREATE, _CALL, _START = range(4)
_STDOUT, _STDERR, _EVENT = range(3)
_LEVELS = {"error": 0, "warn": 1, "info": 2, "debug": 3, "trace": 4}

Json = Any
_F = TypeVar("_F", bound=Callable[..., Any])


class Fault(Exception):
    """An operation that could not be carried out at all, with one of the protocol's codes."""

    UNSUPPORTED, INVALID, PANIC, CANCELLED, TIMEOUT = 1, 2, 3, 4, 5
    FAILED, DENIED, NOT_FOUND, GONE, BUSY = 6, 7, 8, 9, 10

    def __init__(self, message: str, code: int = 6) -> None:
        super().__init__(message)
        self.code = code


class Cancelled(Fault):
    """The call was cancelled. Let it pass: what has to be cleaned up goes into `finally`."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled", Fault.CANCELLED)


class Failure(Exception):
    """A tool that failed, with what the model needs to go on: raise it out of a tool."""


@dataclasses.dataclass
class Result:
    """What a tool gives back, where a text or data alone is not enough."""

    text: Optional[str] = None
    #: Data for the tool's output schema; without a text it is the text too.
    structured: Json = None
    is_error: bool = False
    #: Files that the call made; see `file_ref`.
    files: "list[dict[str, Json]]" = dataclasses.field(default_factory=list)
    #: More parts behind the text, as the protocol has them; see `Result.image`.
    parts: "list[dict[str, Json]]" = dataclasses.field(default_factory=list)
    #: Data for programs, which the model does not see.
    meta: "Optional[dict[str, Json]]" = None

    @staticmethod
    def image(data: bytes, media_type: str) -> "dict[str, Json]":
        """A part that is an image, such as `image/png`."""
        return {"type": "image", "media_type": media_type, "data": base64.b64encode(data).decode()}

    def to_json(self) -> "dict[str, Json]":
        """The result as the protocol has it."""
        text = self.text
        if text is None and self.structured is not None:
            text = json.dumps(self.structured, ensure_ascii=False, allow_nan=False)
        content = ([] if text is None else [{"type": "text", "text": text}]) + list(self.parts)
        reply: "dict[str, Json]" = {"content": content, "is_error": self.is_error}
        if self.structured is not None:
            reply["structured"] = self.structured
        if self.files:
            reply["files"] = self.files
        if self.meta is not None:
            reply["meta"] = self.meta
        return reply


def file_ref(path: "Union[str, Path]", name: Optional[str] = None, media_type: Optional[str] = None) -> "dict[str, Json]":
    """A file of the working or the exchange directory, for `Result.files` and `Context.register`."""
    path = Path(path).absolute()
    ref: "dict[str, Json]" = {"name": name or path.name, "path": str(path)}
    if media_type is not None:
        ref["media_type"] = media_type
    if path.is_file():
        ref["size"] = path.stat().st_size
    return ref


def lazy_file(id: str, name: str) -> "dict[str, Json]":
    """A file that stays where it is until the host asks for it by `files.get`, under this id."""
    return {"id": id, "name": name}


@dataclasses.dataclass
class Http:
    """The answer to an HTTP request."""

    status: int
    headers: "list[tuple[str, str]]"
    body: bytes

    @property
    def text(self) -> str:
        """The body as text; what is not UTF-8 is replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Json:
        """The body as JSON."""
        return json.loads(self.body)


# What a call is to the host.


class _Line:
    """One call or instance on the stream."""

    def __init__(self, stream: "_Stream", call_id: int, credit: int) -> None:
        self.stream, self.call_id, self.credit = stream, call_id, credit
        self.cancelled = self.over = False
        self.changed = threading.Condition()
        self.waiting: "dict[int, list[Union[bytes, Fault]]]" = {}
        self.next_host = 0

    def cancel(self, over: bool = False) -> None:
        with self.changed:
            self.cancelled = True
            self.over = self.over or over
            self.changed.notify_all()

    def add_credit(self, pieces: int) -> None:
        with self.changed:
            self.credit += pieces
            self.changed.notify_all()

    def answered(self, host_id: int, reply: "Union[bytes, Fault]") -> None:
        with self.changed:
            if host_id in self.waiting:
                self.waiting[host_id].append(reply)
                self.changed.notify_all()

    def emit(self, kind: int, piece: bytes) -> None:
        if len(piece) > MAX_FRAME - _OVERHEAD:
            raise Fault("the event is over the limit: send what is large as a file", Fault.INVALID)
        with self.changed:
            while self.credit == 0 and not self.cancelled:
                self.changed.wait()
            if self.cancelled:
                raise Cancelled()
            self.credit -= 1
            self.stream.send(_EMIT, self.call_id, struct.pack("<I", kind) + piece)

    def host(self, op: str, request: Json) -> bytes:
        body, name = _dump(request), op.encode()
        if len(name) + len(body) > MAX_FRAME - _OVERHEAD:
            raise Fault("the host request is over the limit: send what is large as a file", Fault.INVALID)
        with self.changed:
            if self.over:
                raise Fault("the call is over", Fault.GONE)
            if len(self.waiting) >= MAX_HOST_REQUESTS:
                raise Fault(f"{MAX_HOST_REQUESTS} host requests of this call are under way already", Fault.BUSY)
            host_id, self.next_host = self.next_host, (self.next_host + 1) % 2**32
            answer: "list[Union[bytes, Fault]]" = []
            self.waiting[host_id] = answer
            self.stream.send(
                _HOST_REQUEST, self.call_id, struct.pack("<IH", host_id, len(name)) + name + body
            )
            try:
                while not answer and not self.over:
                    self.changed.wait()
            finally:
                del self.waiting[host_id]
                if not answer and not self.over:
                    self.stream.send(_CANCEL, self.call_id, struct.pack("<BI", 2, host_id))
        if not answer:
            raise Fault("the call is over", Fault.GONE)
        if isinstance(answer[0], Fault):
            raise answer[0]
        return answer[0]


class Context:
    """The way to the host, for as long as a call runs or an instance lives."""

    def __init__(self, line: _Line, create: "Mapping[str, Json]") -> None:
        self._line, self._create = line, create

    @property
    def config(self) -> Json:
        """What the person configured, checked against the plugin's `config_schema`."""
        return self._create.get("config")

    @property
    def data_dir(self) -> Optional[Path]:
        """A directory that is the plugin's own and outlives it."""
        return _path(self._create.get("data_dir"))

    @property
    def operations(self) -> "list[str]":
        """What the host serves, such as `kv.get/1`."""
        return list(self._create.get("host", {}).get("operations", []))

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled, or is over."""
        return self._line.cancelled

    def check(self) -> None:
        """Raises `Cancelled` when the call was cancelled; for loops."""
        if self._line.cancelled:
            raise Cancelled()

    def sleep(self, seconds: float) -> None:
        """Waits; raises `Cancelled` as soon as the call is cancelled."""
        end = time.monotonic() + seconds
        with self._line.changed:
            while not self._line.cancelled and (left := end - time.monotonic()) > 0:
                self._line.changed.wait(left)
        self.check()

    def stdout(self, data: "Union[str, bytes]") -> None:
        """Hands over output of the call, and waits while the host is busy with earlier pieces."""
        self._output(_STDOUT, data)

    def stderr(self, data: "Union[str, bytes]") -> None:
        """The same for error output."""
        self._output(_STDERR, data)

    def _output(self, kind: int, data: "Union[str, bytes]") -> None:
        data = data.encode("utf-8", "replace") if isinstance(data, str) else bytes(data)
        for start in range(0, len(data), INLINE_LIMIT):
            self._line.emit(kind, data[start : start + INLINE_LIMIT])

    def event(self, event: "Mapping[str, Json]") -> None:
        """Hands over an event, as the protocol has it."""
        self._line.emit(_EVENT, _dump(event))

    def progress(self, done: float, total: Optional[float] = None, message: Optional[str] = None) -> None:
        """Says how far the call is, in any unit."""
        event: "dict[str, Json]" = {"event": "progress", "done": done}
        if total is not None:
            event["total"] = total
        if message is not None:
            event["message"] = message
        self.event(event)

    def message(self, level: str, data: Json) -> None:
        """Tells whoever asked for the call: `debug`, `info`, `notice`, `warning`, `error`."""
        self.event({"event": "log", "level": level, "data": data})

    def log(self, level: str, message: str) -> None:
        """Writes a line to the host's log: `trace`, `debug`, `info`, `warn` or `error`."""
        number, line = _LEVELS.get(level, 4), message.encode("utf-8", "replace")[: 16 * 1024]
        self._line.stream.send(_LOG, self._line.call_id, struct.pack("<IH", number, 0) + line)

    def host(self, op: str, request: Json = None) -> Json:
        """Asks for an operation of the host and waits for its reply; raises `Fault`."""
        return json.loads(self._line.host(op, {} if request is None else request))

    def kv_get(self, key: str, default: Json = None) -> Json:
        """A value of the plugin's own namespace, which outlives the session."""
        return self.host("kv.get", {"key": key}).get("value", default)

    def kv_set(self, key: str, value: Json) -> None:
        """Keeps a value: at most 64 KiB of JSON."""
        self.host("kv.set", {"key": key, "value": value})

    def kv_delete(self, key: str) -> None:
        """Keeps a value no more."""
        self.host("kv.delete", {"key": key})

    def kv_list(self, prefix: str = "") -> "list[str]":
        """The keys that begin so."""
        return list(self.host("kv.list", {"prefix": prefix})["keys"])

    def secret(self, name: str) -> str:
        """A secret that the plugin's permissions name."""
        return str(self.host("secret.get", {"name": name})["value"])

    def http(
        self,
        method: str,
        url: str,
        headers: "Union[Mapping[str, str], Iterable[tuple[str, str]]]" = (),
        body: "Union[str, bytes, None]" = None,
    ) -> Http:
        """Sends a request to a host that the plugin's permissions name. Any status is an answer.

        Bytes that are not UTF-8 go through a file, for which there must be an exchange directory.
        """
        pairs = headers.items() if isinstance(headers, collections.abc.Mapping) else headers
        request: "dict[str, Json]" = {"method": method, "url": url, "headers": [list(pair) for pair in pairs]}
        if isinstance(body, bytes):
            try:
                body = body.decode()
            except UnicodeDecodeError:
                request["body_file"] = self._spilled(typing.cast(bytes, body), "body")
        if isinstance(body, str) and len(body) > INLINE_LIMIT and self._exchange() is not None:
            request["body_file"] = self._spilled(body.encode("utf-8", "replace"), "body")
        elif isinstance(body, str):
            request["body"] = body
        reply = self.host("http.send", request)
        file = reply.get("body_file")
        content = Path(file["path"]).read_bytes() if file else (reply.get("body") or "").encode()
        return Http(reply["status"], [(name, value) for name, value in reply.get("headers", [])], content)

    def sample(self, prompt: str, system: Optional[str] = None, max_tokens: Optional[int] = None) -> str:
        """Asks the session's model, where the plugin's permissions say `sample`."""
        request: "dict[str, Json]" = {"messages": [{"role": "user", "text": prompt}]}
        if system is not None:
            request["system"] = system
        if max_tokens is not None:
            request["max_tokens"] = max_tokens
        return str(self.host("sample", request)["text"])

    def elicit(self, message: str, schema: Json = None) -> "Optional[dict[str, Json]]":
        """Asks the person; nothing when they decline. `schema` is a flat JSON Schema of the answer."""
        request: "dict[str, Json]" = {"message": message}
        if schema is not None:
            request["schema"] = schema
        reply = self.host("elicit", request)
        return dict(reply.get("content", {})) if reply["action"] == "accept" else None

    def roots(self) -> "list[str]":
        """The directories that the session works in, as `file:` URIs."""
        return [root["uri"] for root in self.host("roots")["roots"]]

    def register(self, file: "Mapping[str, Json]") -> str:
        """Registers a file that a call made; gives its handle."""
        return str(self.host("file", {"file": file})["artifact"])

    def _exchange(self) -> Optional[Path]:
        return None

    def _spilled(self, data: bytes, name: str) -> "dict[str, Json]":
        directory = self._exchange()
        if directory is None:
            raise Fault("the host gave no directory for what is not text", Fault.FAILED)
        path = directory / f"out-{os.getpid()}-{next(_NUMBERS)}"
        with open(path, "xb") as file:
            file.write(data)
        return {
            "name": name, "path": str(path), "size": len(data), "sha256": hashlib.sha256(data).hexdigest(),
        }


_NUMBERS = itertools.count()


class Setup(Context):
    """What an instance is made with. It lasts as long as the instance."""

    @property
    def session(self) -> Optional[str]:
        """The session that the instance is for, where it is for one."""
        return self._create.get("session")

    @property
    def instance(self) -> Optional[str]:
        """The name of an executor's or a backend's instance, as it was configured."""
        return self._create.get("instance")


class Call(Context):
    """One call, as its tool sees it."""

    def __init__(
        self, line: _Line, create: "Mapping[str, Json]", envelope: "Mapping[str, Json]", state: Any
    ) -> None:
        super().__init__(line, create)
        self.envelope = envelope
        #: What `Plugin.on_create` made for this instance; an empty dictionary without it.
        self.state = state
        #: What `Backend.on_open` made for the session that asks.
        self.opened: Any = None
        self._begun = time.monotonic()

    @property
    def session(self) -> Optional[str]:
        """The session that asks."""
        return self.envelope.get("session")

    @property
    def call_id(self) -> Optional[str]:
        """The call's name, unique in its thread."""
        return self.envelope.get("call_id")

    @property
    def working_dir(self) -> Optional[Path]:
        """Where the session works."""
        return _path(self.envelope.get("working_dir"))

    @property
    def skill_dir(self) -> Optional[Path]:
        """The directory of the skill that the call is for."""
        return _path(self.envelope.get("skill_dir"))

    @property
    def exchange_dir(self) -> Optional[Path]:
        """Where large payloads cross as files."""
        return self._exchange()

    @property
    def remaining(self) -> Optional[float]:
        """Seconds that are left for the call; nothing when it has no deadline."""
        limit = self.envelope.get("deadline_ms", 0)
        return max(0.0, limit / 1000 - (time.monotonic() - self._begun)) if limit else None

    def _exchange(self) -> Optional[Path]:
        return _path(self.envelope.get("exchange_dir"))


def _path(text: Optional[str]) -> Optional[Path]:
    return None if text is None else Path(text)


def _dump(value: Json) -> bytes:
    """As JSON: half of a surrogate pair becomes `?`, and `ValueError` says that a number is none."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


# What a plugin is.

#: What every plugin of a kind answers, with nothing where its author says nothing.
_BASICS = {
    "skill": ("conjure.ping", "conjure.shutdown"),
    "executor": ("conjure.ping", "conjure.shutdown", "executor.init", "executor.cleanup"),
    "backend": ("conjure.ping", "conjure.shutdown", "backend.open", "backend.close"),
}


class Plugin:
    """Any plugin, at the level of the protocol: operations by their names. `Skill` is the usual one.

    Opening and closing sessions of an executor or a backend need not be written. `version` is that of
    the description when it is not given.
    """

    def __init__(self, kind: str, name: str, description: str, version: Optional[str] = None) -> None:
        if kind not in _BASICS:
            raise ValueError(f"`{kind}` is no kind of plugin; there are {', '.join(_BASICS)}")
        self.kind, self.name, self.description = kind, name, description
        self.version = version or os.environ.get("CONJURE_PLUGIN_VERSION", "0.0.0")
        #: JSON Schema of the configuration.
        self.config_schema: Json = None
        #: Host operations that the plugin cannot do without, such as `http.send/1`.
        self.requires: "list[str]" = []
        #: One instance serves all sessions; executors and backends always do.
        self.shared = kind != "skill"
        self._permissions: "dict[str, Json]" = {}
        self._operations: "dict[str, Callable[[Call, Json], Json]]" = {}
        self._tools: "list[dict[str, Json]]" = []
        self._examples: "list[dict[str, Json]]" = []
        self._create: "Optional[Callable[[Setup], Any]]" = None

    def permissions(
        self,
        secrets: Iterable[str] = (),
        http: Iterable[str] = (),
        read: Iterable[str] = (),
        write: Iterable[str] = (),
        sample: bool = False,
        network: bool = False,
        commands: bool = False,
    ) -> None:
        """What the plugin asks to be allowed; its process is confined to it."""
        lists = {"secrets": list(secrets), "http": list(http), "read": list(read), "write": list(write)}
        flags = {"sample": sample, "network": network, "commands": commands}
        self._permissions = {name: value for name, value in {**lists, **flags}.items() if value}

    def on_create(self, make: "Callable[[Setup], Any]") -> "Callable[[Setup], Any]":
        """Decorates what makes the state of an instance, `Call.state`. A `Failure` refuses it."""
        self._create = make
        return make

    def operation(self, op: str) -> "Callable[[_F], _F]":
        """Decorates `(call, body) -> reply` as an operation of the protocol, such as `backend.call`."""

        def register(run: _F) -> _F:
            if op in self._operations:
                raise ValueError(f"`{op}` is there twice")
            self._operations[op] = run
            return run

        return register

    def example(
        self, tool: str, arguments: "Mapping[str, Json]", result: Optional[str] = None, is_error: bool = False
    ) -> None:
        """An example of a call, for people and for tests: `result` is in what it says."""
        example: "dict[str, Json]" = {"tool": tool, "arguments": dict(arguments)}
        if result is not None:
            example["result"] = result
        if is_error:
            example["is_error"] = True
        self._examples.append(example)

    def manifest(self) -> "dict[str, Json]":
        """What the plugin says about itself."""
        capabilities = ["stream/1"]
        for op in (*_BASICS[self.kind], *self._operations):
            capability = ("skill.tool" if op.startswith("skill.tool.") else op) + "/1"
            if capability not in capabilities:
                capabilities.append(capability)
        manifest: "dict[str, Json]" = {
            "manifest": 1, "kind": self.kind, "name": self.name, "version": self.version,
            "description": self.description, "capabilities": capabilities, "tools": self._tools,
            "permissions": self._permissions, "requires": {"host": self.requires},
            "state": "shared" if self.shared else "session",
        }
        if self.config_schema is not None:
            manifest["config_schema"] = self.config_schema
        if self._examples:
            manifest["examples"] = self._examples
        return manifest

    def run(self) -> NoReturn:
        """Serves the host that started this program, until it is not needed any more."""
        if "--manifest" in sys.argv[1:]:
            print(json.dumps(self.manifest(), indent=2, ensure_ascii=False))
            raise SystemExit(0)
        if os.environ.get("CONJURE_PROTOCOL") != "1":
            print(
                f"{self.name} is a plugin of Conjure, which starts it: try `conjure plugin check FILE` with "
                "its description. `--manifest` shows what it says about itself.",
                file=sys.stderr,
            )
            raise SystemExit(2)
        reader, writer = _take_streams()
        if threading.stack_size() == 0:
            threading.stack_size(_STACK)
        code = 0
        try:
            _Server(self, _Stream(writer)).serve(reader)
        except (Fault, OSError, struct.error) as error:
            print(f"error: {error}", file=sys.stderr)
            code = 2
        _flush()
        # Threads that do not stop are not waited for.
        os._exit(code)


class _WithTools(Plugin):
    """A plugin whose functions are tools of the model."""

    def tool(
        self,
        name: Optional[str] = None,
        *,
        description: Optional[str] = None,
        read_only: bool = False,
        destructive: bool = False,
        stateless: bool = False,
        timeout_ms: Optional[int] = None,
        title: Optional[str] = None,
        input_schema: Json = None,
        output_schema: Json = None,
        annotations: Json = None,
    ) -> "Callable[[_F], _F]":
        """Decorates a function as a tool: `(call, **arguments)`.

        Schema and checks come from its annotations. With an `input_schema` it is `(call, arguments)`,
        and what it gets is not checked. Without `stateless`, calls of one session run one at a time.
        """

        def register(run: _F) -> _F:
            tool = name or getattr(run, "__name__", "tool")
            said = description if description is not None else inspect.getdoc(run) or ""
            signature = None if input_schema is not None else _Signature(run)
            schema = input_schema if signature is None else signature.schema()
            declared: "dict[str, Json]" = {"name": tool, "description": said, "input_schema": schema}
            if read_only or destructive:
                declared["effects"] = "read" if read_only else "destructive"
            if stateless:
                declared["mode"] = "stateless"
            more = {
                "timeout_ms": timeout_ms, "title": title, "output_schema": output_schema,
                "annotations": annotations,
            }
            declared.update((key, value) for key, value in more.items() if value is not None)
            self._add(declared, _tool_of(tool, run, signature))
            return run

        return register

    def _add(self, declared: "dict[str, Json]", run: "Callable[[Call, Json], Json]") -> None:
        raise NotImplementedError


class Skill(_WithTools):
    """A skill: each function that is registered is a tool of the model."""

    def __init__(self, name: str, description: str, version: Optional[str] = None) -> None:
        super().__init__("skill", name, description, version)

    def execute(self, grammar: str) -> "Callable[[_F], _F]":
        """Decorates `(call, command: str)`: a command in the skill's own grammar, which the model is shown."""
        return self._callback("execute", f"Runs a command. Grammar: {grammar}")

    def read(self, what: str) -> "Callable[[_F], _F]":
        """Decorates `(call, path: str, offset: Optional[int] = None, limit: Optional[int] = None)`."""
        return self._callback("read", f"Reads: {what}")

    def write(self, what: str) -> "Callable[[_F], _F]":
        """Decorates `(call, path: str, content: str)`."""
        return self._callback("write", f"Writes: {what}")

    def modify(self, what: str) -> "Callable[[_F], _F]":
        """Decorates `(call, path: str, old_content: str, new_content: str)`."""
        return self._callback("modify", f"Modifies: {what}")

    def state_export(self, export: "Callable[[Call], Json]") -> "Callable[[Call], Json]":
        """Decorates what hands an instance's state to the next version, as JSON."""
        self.operation("state.export")(lambda call, _body: {"version": "", "state": export(call)})
        return export

    def state_import(self, take: "Callable[[Call, Json, str], None]") -> "Callable[[Call, Json, str], None]":
        """Decorates `(call, state, version)`, which takes what that version handed out."""

        def run(call: Call, body: Json) -> Json:
            take(call, body.get("state"), body.get("version", ""))
            return {}

        self.operation("state.import")(run)
        return take

    def _callback(self, name: str, description: str) -> "Callable[[_F], _F]":
        words = {
            "execute": {"command": "The command, in this skill's grammar"},
            "read": {"path": "What to read"},
            "write": {"path": "Where to write", "content": "What to write"},
            "modify": {
                "path": "What to modify", "old_content": "The passage to replace",
                "new_content": "What to put in its place",
            },
        }[name]
        schema: "dict[str, Json]" = {
            "type": "object",
            "properties": {key: {"type": "string", "description": said} for key, said in words.items()},
            "required": list(words),
        }
        if name == "read":
            for key, said in (("offset", "How many units to skip"), ("limit", "How many units at the most")):
                schema["properties"][key] = {"type": "integer", "minimum": 0, "description": said}

        def register(run: _F) -> _F:
            declared: "dict[str, Json]" = {
                "op": f"skill.{name}", "name": name, "description": description, "input_schema": schema,
            }
            if name == "read":
                declared["effects"] = "read"
            self._add(declared, _tool_of(name, run, _Signature(run)))
            return run

        return register

    def _add(self, declared: "dict[str, Json]", run: "Callable[[Call, Json], Json]") -> None:
        declared.setdefault("op", f"skill.tool.{declared['name']}")
        self.operation(declared["op"])(run)
        self._tools.append(declared)


class Executor(Plugin):
    """An executor: something that runs commands and keeps files, for all sessions of a host.

    Each operation is a function `(call, body) -> reply` with the JSON of the protocol, registered by its
    name, such as `executor.bash`; the host makes tools of them. `executor.init` gets a session's skill
    folders and variables, `call.session` says whose call it is. Files that are not the host's are given
    as `lazy_file`, and fetched and brought by `files.get` and `files.put`.
    """

    def __init__(self, name: str, description: str, version: Optional[str] = None) -> None:
        super().__init__("executor", name, description, version)


class Backend(_WithTools):
    """A backend: tools of its own for all sessions of a host, each of which it opens and closes."""

    def __init__(self, name: str, description: str, version: Optional[str] = None) -> None:
        super().__init__("backend", name, description, version)
        self._catalog: "list[dict[str, Json]]" = []
        self._run: "dict[str, Callable[[Call, Json], Json]]" = {}
        self._open: "Optional[Callable[[Call, Json], Any]]" = None
        self._close: "Optional[Callable[[Call], None]]" = None
        #: What each session that is open has, and the lock of the list. One backend serves one instance.
        self._sessions: "dict[Optional[str], Any]" = {}
        self._lock = threading.Lock()
        self.operation("backend.open")(self._opening)
        self.operation("backend.catalog")(self._listing)
        self.operation("backend.call")(self._calling)
        self.operation("backend.close")(self._closing)

    def on_open(self, make: "Callable[[Call, Json], Any]") -> "Callable[[Call, Json], Any]":
        """Decorates `(call, options)`: what it returns is the session's, `call.opened`. A `Failure` refuses."""
        self._open = make
        return make

    def on_close(self, end: "Callable[[Call], None]") -> "Callable[[Call], None]":
        """Decorates `(call)`: ends what the session has, `call.opened`."""
        self._close = end
        return end

    def _add(self, declared: "dict[str, Json]", run: "Callable[[Call, Json], Json]") -> None:
        if declared["name"] in self._run:
            raise ValueError(f"the tool `{declared['name']}` is there twice")
        declared.setdefault("op", "backend.call")
        self._run[declared["name"]] = run
        self._catalog.append(declared)

    def _opening(self, call: Call, body: Json) -> Json:
        options = body.get("options") if isinstance(body, dict) else None
        opened = None if self._open is None else self._open(call, options)
        with self._lock:
            self._sessions[call.session] = opened
        return {}

    def _of_session(self, call: Call) -> None:
        with self._lock:
            if call.session not in self._sessions:
                raise Fault(f"the session `{call.session}` is not open", Fault.NOT_FOUND)
            call.opened = self._sessions[call.session]

    def _listing(self, call: Call, _body: Json) -> Json:
        self._of_session(call)
        return {"tools": self._catalog}

    def _calling(self, call: Call, body: Json) -> Json:
        if not isinstance(body, dict) or not isinstance(body.get("name"), str):
            raise Fault("the request for `backend.call` does not fit: it names no tool", Fault.INVALID)
        run = self._run.get(body["name"])
        if run is None:
            raise Fault(f"there is no tool `{body['name']}`", Fault.NOT_FOUND)
        self._of_session(call)
        return run(call, body.get("arguments"))

    def _closing(self, call: Call, _body: Json) -> Json:
        with self._lock:
            is_open = call.session in self._sessions
            call.opened = self._sessions.pop(call.session, None)
        if is_open and self._close is not None:
            self._close(call)
        return {}


def _tool_of(
    name: str, run: "Callable[..., Any]", signature: "Optional[_Signature]"
) -> "Callable[[Call, Json], Json]":
    """A tool as an operation: what does not fit, and a `Failure`, is an error result."""

    def operate(call: Call, body: Json) -> Json:
        arguments = {} if body is None else body
        try:
            if signature is None:
                result = run(call, arguments)
            else:
                result = run(call, **signature.convert(arguments))
        except _Misfit as error:
            result = Result(f"The arguments do not fit: {error}.", is_error=True)
        except Failure as error:
            result = Result(str(error), is_error=True)
        try:
            reply = _as_result(result).to_json()
            size = len(_dump(reply))
        except (TypeError, ValueError, RecursionError) as error:
            said = f"The tool `{name}` failed: what it gave is not JSON ({error})."
            print(said, file=sys.stderr)
            return Result(said, is_error=True).to_json()
        return _small(reply, size, call)

    return operate


def _as_result(value: Any) -> Result:
    if isinstance(value, Result):
        return value
    if value is None or isinstance(value, str):
        return Result(value)
    return Result(structured=_plain(value))


def _plain(value: Any) -> Json:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return _plain(value.value)
    if isinstance(value, collections.abc.Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return value


def _small(result: "dict[str, Json]", size: int, call: Call) -> "dict[str, Json]":
    """Moves large texts and data of a result to files, where there is a place for them."""
    if call.exchange_dir is None or size <= INLINE_LIMIT:
        return result
    for part in result["content"]:
        if part["type"] == "text" and len(part["text"]) > _KEEP_INLINE:
            file = call._spilled(part.pop("text").encode("utf-8", "replace"), "output.txt")
            part.update(type="file", file={**file, "media_type": "text/plain"})
    if len(_dump(result.get("structured"))) > _KEEP_INLINE:
        file = call._spilled(_dump(result.pop("structured")), "structured.json")
        result.setdefault("files", []).append({**file, "media_type": "application/json"})
    return result


# From annotations to schemas, and from JSON to values.


class _Misfit(Exception):
    pass


_UNIONS: "tuple[Any, ...]" = (Union, getattr(types, "UnionType", Union))
_SIMPLE: "dict[Any, str]" = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class _Signature:
    """The arguments of a tool."""

    def __init__(self, run: "Callable[..., Any]") -> None:
        hints = typing.get_type_hints(run, include_extras=True)
        parameters = list(inspect.signature(run).parameters.values())
        if not parameters:
            raise TypeError(f"{getattr(run, '__name__', run)} takes no call: its first parameter is that")
        # A model may not give what the host does.
        self.first = parameters[0].name if parameters[0].kind is parameters[0].POSITIONAL_OR_KEYWORD else None
        self.rest: Any = None
        self.fields: "dict[str, tuple[Any, bool]]" = {}
        for parameter in parameters[1:]:
            if parameter.kind is parameter.VAR_KEYWORD:
                self.rest = hints.get(parameter.name, Any)
            elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                needed = parameter.default is parameter.empty
                self.fields[parameter.name] = (hints.get(parameter.name, Any), needed)
            else:
                raise TypeError(f"`{parameter.name}` cannot be given by its name")
        self.defaults = {
            parameter.name: parameter.default
            for parameter in parameters[1:]
            if parameter.default is not parameter.empty
        }
        # What has no schema is said when the plugin is made, and not when it is called.
        self.schema()

    def schema(self) -> "dict[str, Json]":
        schema = _object_schema(self.fields)
        for name, default in self.defaults.items():
            if default is not None:
                schema["properties"][name]["default"] = _plain(default)
        return schema

    def convert(self, arguments: Json) -> "dict[str, Any]":
        converted = _object(arguments, self.fields, self.rest, "")
        if self.first in converted:
            raise _Misfit(f"`{self.first}` is no argument of this tool")
        return converted


def _object_schema(fields: "Mapping[str, tuple[Any, bool]]") -> "dict[str, Json]":
    schema: "dict[str, Json]" = {
        "type": "object", "properties": {name: _schema(kind) for name, (kind, _) in fields.items()},
    }
    needed = [name for name, (_, is_needed) in fields.items() if is_needed]
    if needed:
        schema["required"] = needed
    return schema


def _fields(kind: Any) -> "dict[str, tuple[Any, bool]]":
    hints = typing.get_type_hints(kind, include_extras=True)
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }


def _schema(kind: Any) -> "dict[str, Json]":
    """The JSON Schema of a type."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        schema = dict(_schema(inner[0]))
        for extra in inner[1:]:
            if isinstance(extra, str):
                schema["description"] = extra
            elif isinstance(extra, collections.abc.Mapping):
                schema.update(extra)
        return schema
    if kind is Any:
        return {}
    if kind in _SIMPLE:
        return {"type": _SIMPLE[kind]}
    if origin in _UNIONS:
        some = [part for part in inner if part is not type(None)]
        schemas = [_schema(part) for part in some]
        if len(schemas) == 1 and len(some) < len(inner) and isinstance(schemas[0].get("type"), str):
            return {**schemas[0], "type": [schemas[0]["type"], "null"]} if "enum" not in schemas[0] else {
                "anyOf": [schemas[0], {"type": "null"}]
            }
        return {"anyOf": [_schema(part) for part in inner]}
    if origin is typing.Literal:
        kinds = {_SIMPLE.get(type(value)) for value in inner}
        schema = {"enum": list(inner)}
        return {"type": kinds.pop(), **schema} if len(kinds) == 1 else schema
    if kind in (list, dict):
        return {"type": "array" if kind is list else "object"}
    if origin in (list, collections.abc.Sequence):
        return {"type": "array", "items": _schema(inner[0])}
    if origin in (dict, collections.abc.Mapping) and inner[0] is str:
        return {"type": "object", "additionalProperties": _schema(inner[1])}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _object_schema(_fields(kind))
    raise TypeError(f"{kind!r} has no JSON Schema; give the tool an `input_schema`")


def _object(value: Json, fields: "Mapping[str, tuple[Any, bool]]", rest: Any, where: str) -> "dict[str, Any]":
    if not isinstance(value, dict):
        raise _Misfit(f"{where or 'they'} must be an object")
    for name, (_, is_needed) in fields.items():
        if is_needed and name not in value:
            raise _Misfit(f"`{_at(where, name)}` is missing")
    converted = {}
    for name, item in value.items():
        kind = fields[name][0] if name in fields else rest
        if kind is not None:
            converted[name] = _convert(item, kind, _at(where, name))
    return converted


def _at(where: str, name: object) -> str:
    return f"{where}.{name}" if where else str(name)


def _convert(value: Json, kind: Any, where: str) -> Any:
    """The value as its type, or `_Misfit`."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _convert(value, inner[0], where)
    if kind is Any:
        return value
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind in _SIMPLE:
        if type(value) is not kind:
            raise _Misfit(f"`{where}` must be of type {_SIMPLE[kind]}")
        return value
    if origin in _UNIONS:
        misfits = []
        for part in inner:
            try:
                return _convert(value, part, where)
            except _Misfit as error:
                misfits.append(str(error))
        raise _Misfit(misfits[0])
    if origin is typing.Literal:
        if not any(type(value) is type(word) and value == word for word in inner):
            raise _Misfit(f"`{where}` must be one of {', '.join(map(repr, inner))}")
        return value
    if kind is list or origin in (list, collections.abc.Sequence):
        if not isinstance(value, list):
            raise _Misfit(f"`{where}` must be a list")
        part = inner[0] if inner else Any
        return [_convert(item, part, _at(where, number)) for number, item in enumerate(value)]
    if kind is dict or origin in (dict, collections.abc.Mapping):
        return _object(value, {}, inner[1] if inner else Any, f"`{where}`")
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            words = ", ".join(repr(member.value) for member in kind)
            raise _Misfit(f"`{where}` must be one of {words}") from None
    return kind(**_object(value, _fields(kind), None, where))


# The stream.


def _take_streams() -> "tuple[BinaryIO, BinaryIO]":
    """Takes standard input and output for the protocol: what is printed goes to standard error."""
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    # Python saw a pipe and so keeps what is printed until there is much of it.
    _flush()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    return os.fdopen(reader, "rb", 256 * 1024), os.fdopen(writer, "wb", 0)


def _flush() -> None:
    """Writes what was printed and is still kept."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            pass  # There is none, or nobody reads it any more.


class _Stream:
    """The writing end; whole frames, whoever sends them."""

    def __init__(self, writer: BinaryIO) -> None:
        self._writer, self._lock = writer, threading.Lock()

    def send(self, kind: int, call_id: int, body: bytes) -> None:
        frame = memoryview(_HEAD.pack(len(body) + 9, kind, call_id) + body)
        with self._lock:
            while frame:
                frame = frame[self._writer.write(frame) :]


def _read_frame(reader: BinaryIO) -> "Optional[tuple[int, int, bytes]]":
    """Kind, call and body of the next frame; nothing at the end of the stream."""
    head = reader.read(_HEAD.size)
    if not head:
        return None
    if len(head) < _HEAD.size:
        raise Fault("the stream ended inside a frame", Fault.GONE)
    length, kind, call_id = _HEAD.unpack(head)
    if not 9 <= length <= MAX_FRAME + 9:
        raise Fault(f"a frame gives itself the length {length}", Fault.INVALID)
    body = reader.read(length - 9)
    if len(body) < length - 9:
        raise Fault("the stream ended inside a frame", Fault.GONE)
    return kind, call_id, body


def _read_reply(body: bytes) -> "Union[bytes, Fault]":
    if body[:1] == b"\0":
        return body[1:]
    (code,) = struct.unpack_from("<I", body, 1)
    return Fault(body[5:].decode("utf-8", "replace"), code)


def _reply(reply: "Union[bytes, Fault]") -> bytes:
    if isinstance(reply, Fault):
        return b"\1" + struct.pack("<I", reply.code) + str(reply).encode("utf-8", "replace")
    return b"\0" + reply


class _Server:
    """The plugin's end of the stream."""

    def __init__(self, plugin: Plugin, stream: _Stream) -> None:
        self.plugin, self.stream = plugin, stream
        self.lock = threading.Lock()
        self.lines: "dict[int, _Line]" = {}
        self.instances: "dict[int, tuple[Mapping[str, Json], Any]]" = {}
        self.threads: "set[threading.Thread]" = set()

    def serve(self, reader: BinaryIO) -> None:
        while (frame := _read_frame(reader)) is not None:
            self.take(*frame)
        # What runs is cancelled and has a moment for its own clean-up.
        with self.lock:
            lines, threads = list(self.lines.values()), list(self.threads)
        for line in lines:
            line.cancel(over=True)
        end = time.monotonic() + 1.5
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def take(self, kind: int, call_id: int, body: bytes) -> None:
        with self.lock:
            line = self.lines.get(call_id)
        if kind == _REQUEST:
            verb, instance, credit, length = struct.unpack_from("<BQIH", body)
            op, json_body = body[15 : 15 + length], body[15 + length :]
            self.request(call_id, verb, instance, credit, op, json_body)
        elif kind == _CREDIT:
            if line is not None:
                line.add_credit(struct.unpack("<I", body)[0])
        elif kind == _CANCEL and body[:1] == b"\0":
            if line is not None:
                line.cancel()
        elif kind == _CANCEL and body[:1] == b"\1":
            with self.lock:
                self.lines.pop(call_id, None)
                self.instances.pop(call_id, None)
            if line is not None:
                line.cancel(over=True)
        elif kind == _HOST_REPLY:
            if line is not None:
                line.answered(struct.unpack_from("<I", body)[0], _read_reply(body[4:]))
        else:
            raise Fault(f"a frame of kind {kind} is none that a host sends", Fault.INVALID)

    def request(self, call_id: int, verb: int, instance: int, credit: int, op: bytes, body: bytes) -> None:
        line = _Line(self.stream, call_id, credit)
        with self.lock:
            if call_id in self.lines:
                raise Fault(f"call {call_id} was begun twice", Fault.INVALID)
            is_busy = len(self.lines) >= MAX_CALLS
            if not is_busy:
                self.lines[call_id] = line
        if is_busy:
            self.stream.send(_REPLY, call_id, _reply(Fault(f"{MAX_CALLS} calls are under way already", Fault.BUSY)))
            return
        thread = threading.Thread(target=self.answer, args=(line, verb, instance, op, body), daemon=True)
        with self.lock:
            self.threads.add(thread)
        try:
            thread.start()
        except (RuntimeError, MemoryError) as error:
            with self.lock:
                self.lines.pop(call_id, None)
                self.threads.discard(thread)
            fault = Fault(f"no thread can be started for the call: {error}", Fault.BUSY)
            self.stream.send(_REPLY, call_id, _reply(fault))

    def answer(self, line: _Line, verb: int, instance: int, op: bytes, body: bytes) -> None:
        reply: "Union[bytes, Fault]"
        try:
            reply = self.carry_out(line, verb, instance, op, body)
            if len(reply) > MAX_FRAME - _OVERHEAD:
                reply = Fault(f"the reply has {len(reply)} bytes: send what is large as a file")
        except Fault as fault:
            reply = fault
        except BaseException as error:
            traceback.print_exc(file=sys.stderr)
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
            reply = Fault(said, Fault.PANIC)
        lasts = verb == _CREATE and not isinstance(reply, Fault)
        with self.lock:
            is_wanted = line.call_id in self.lines
            if not lasts:
                self.lines.pop(line.call_id, None)
            self.threads.discard(threading.current_thread())
        if not lasts:
            line.cancel(over=True)
        if is_wanted:
            try:
                self.stream.send(_REPLY, line.call_id, _reply(reply))
            except OSError:
                pass  # The host is gone; the reader sees that too.

    def carry_out(self, line: _Line, verb: int, instance: int, op: bytes, body: bytes) -> bytes:
        if verb == _MANIFEST:
            return _dump(self.plugin.manifest())
        if verb == _CREATE:
            create = json.loads(body)
            make = self.plugin._create
            try:
                state = {} if make is None else make(Setup(line, create))
            except Failure as error:
                raise Fault(str(error), Fault.FAILED) from error
            with self.lock:
                # It may have been dropped while it was made.
                if self.lines.get(line.call_id) is not line:
                    raise Fault("the instance is not wanted any more", Fault.GONE)
                self.instances[line.call_id] = (create, state)
            return b""
        if verb not in (_CALL, _START):
            raise Fault(f"there is no verb {verb}", Fault.UNSUPPORTED)
        with self.lock:
            made = self.instances.get(instance)
        if made is None:
            raise Fault("there is no such instance", Fault.GONE)
        name = op.decode("utf-8", "replace")
        run = self.plugin._operations.get(name)
        is_basic = run is None and name in _BASICS[self.plugin.kind]
        if run is None and not is_basic:
            raise Fault(f"this plugin has no operation `{name}`", Fault.UNSUPPORTED)
        try:
            envelope = json.loads(body)
            content = envelope.pop("body")
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise Fault(f"the request for `{name}` does not fit: {error}", Fault.INVALID) from error
        if self.plugin.kind != "skill":
            content = {} if content is None else content
            if not isinstance(content, dict):
                raise Fault(f"the request for `{name}` does not fit: its body is no object", Fault.INVALID)
        if run is None:
            is_init = name == "executor.init"
            return _dump({"working_dir": envelope.get("working_dir") or "/"} if is_init else {})
        try:
            reply = run(Call(line, made[0], envelope, made[1]), content)
        except Failure as error:
            raise Fault(str(error), Fault.FAILED) from error
        try:
            return _dump(reply)
        except (TypeError, ValueError, RecursionError) as error:
            raise Fault(f"what `{name}` gave is not JSON: {error}", Fault.PANIC) from error


# For tests.


@dataclasses.dataclass
class TestCall:
    """What came of a call in a test."""

    __test__ = False

    reply: Json
    stdout: bytes
    stderr: bytes
    events: "list[dict[str, Json]]"

    @property
    def text(self) -> str:
        """All text of a tool's result."""
        return "\n".join(part["text"] for part in self.reply["content"] if part["type"] == "text")

    @property
    def is_error(self) -> bool:
        """Whether the tool failed."""
        return bool(self.reply["is_error"])


class TestHost:
    """A small host for tests: the plugin runs on a thread behind the same frames.

    `kv` and `secrets` are what it serves, `http` answers requests, and `operations` are more of them.
    """

    __test__ = False

    def __init__(
        self,
        plugin: Plugin,
        config: Json = None,
        secrets: "Optional[Mapping[str, str]]" = None,
        http: "Optional[Callable[[dict[str, Json]], dict[str, Json]]]" = None,
        operations: "Optional[Mapping[str, Callable[[Json], Json]]]" = None,
        working_dir: "Union[str, Path, None]" = None,
        data_dir: "Union[str, Path, None]" = None,
    ) -> None:
        self.plugin, self.working_dir = plugin, working_dir
        self.kv: "dict[str, Json]" = {}
        self._secrets, self._http, self._more = secrets or {}, http, dict(operations or {})
        self._changed = threading.Condition()
        self._outcomes: "dict[int, tuple[dict[int, list[bytes]], list[Union[bytes, Fault]]]]" = {}
        self._last = 0
        to_plugin, from_plugin = os.pipe(), os.pipe()
        self._stream = _Stream(os.fdopen(to_plugin[1], "wb", 0))
        served = _Server(plugin, _Stream(os.fdopen(from_plugin[1], "wb", 0)))
        plugin_reader = os.fdopen(to_plugin[0], "rb")
        host_reader = os.fdopen(from_plugin[0], "rb")
        self._threads = [
            threading.Thread(target=self._serve, args=(served, plugin_reader), daemon=True),
            threading.Thread(target=self._listen, args=(host_reader,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        host = {"name": "test", "version": __version__, "operations": []}
        create: "dict[str, Json]" = {"host": host, "session": "test", "config": config}
        if data_dir is not None:
            create["data_dir"] = str(data_dir)
        self._instance, _ = self._ask(_CREATE, 0, "", create, 30.0)

    def __enter__(self) -> "TestHost":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the plugin."""
        self._stream._writer.close()
        for thread in self._threads:
            thread.join(5)

    def manifest(self) -> "dict[str, Json]":
        """What the plugin says about itself."""
        return dict(json.loads(self._ask(_MANIFEST, 0, "", None, 30.0)[1].reply))

    def tool(self, name: str, arguments: "Optional[Mapping[str, Json]]" = None, timeout: float = 30.0) -> TestCall:
        """Calls a tool by its own name; a backend is opened first, with `call("backend.open", {})`."""
        if isinstance(self.plugin, Backend):
            return self.call("backend.call", {"name": name, "arguments": dict(arguments or {})}, timeout)
        declared = {tool["name"]: tool["op"] for tool in self.plugin._tools}
        return self.call(declared[name], dict(arguments or {}), timeout)

    def call(self, op: str, body: Json, timeout: float = 30.0) -> TestCall:
        """Carries out an operation; raises `Fault`, and cancels the call when the time is up."""
        envelope: "dict[str, Json]" = {"session": "test", "deadline_ms": int(timeout * 1000), "body": body}
        if self.working_dir is not None:
            envelope["working_dir"] = str(self.working_dir)
        done = self._ask(_CALL, self._instance, op, envelope, timeout)[1]
        done.reply = json.loads(done.reply)
        return done

    def _ask(self, verb: int, instance: int, op: str, body: Json, timeout: float) -> "tuple[int, TestCall]":
        pieces: "dict[int, list[bytes]]" = {}
        replies: "list[Union[bytes, Fault]]" = []
        with self._changed:
            self._last += 1
            call_id = self._last
            self._outcomes[call_id] = (pieces, replies)
        name = op.encode()
        head = struct.pack("<BQIH", verb, instance, 32, len(name)) + name
        self._stream.send(_REQUEST, call_id, head + (b"" if body is None else _dump(body)))
        with self._changed:
            # A moment more, in which the plugin may end the call by itself.
            if not self._changed.wait_for(lambda: replies, timeout + 1.0):
                self._stream.send(_CANCEL, call_id, b"\0")
                self._changed.wait_for(lambda: replies, 5.0)
            reply = replies[0] if replies else Fault("the call did not stop when told to", Fault.TIMEOUT)
        if isinstance(reply, Fault):
            raise reply
        events = [json.loads(event) for event in pieces.get(_EVENT, [])]
        done = TestCall(reply, b"".join(pieces.get(_STDOUT, [])), b"".join(pieces.get(_STDERR, [])), events)
        return call_id, done

    def _serve(self, served: _Server, reader: BinaryIO) -> None:
        served.serve(reader)
        served.stream._writer.close()
        reader.close()

    def _listen(self, reader: BinaryIO) -> None:
        while (frame := _read_frame(reader)) is not None:
            kind, call_id, body = frame
            with self._changed:
                pieces, replies = self._outcomes[call_id]
                if kind == _EMIT:
                    pieces.setdefault(struct.unpack_from("<I", body)[0], []).append(body[4:])
                elif kind == _REPLY:
                    replies.append(_read_reply(body))
                    self._changed.notify_all()
            if kind == _EMIT:
                self._stream.send(_CREDIT, call_id, struct.pack("<I", 1))
            elif kind == _HOST_REQUEST:
                host_id, length = struct.unpack_from("<IH", body)
                op, request = body[6 : 6 + length].decode(), json.loads(body[6 + length :])
                reply = _reply(self._host(op, request))
                self._stream.send(_HOST_REPLY, call_id, struct.pack("<I", host_id) + reply)
        reader.close()

    def _host(self, op: str, request: Json) -> "Union[bytes, Fault]":
        try:
            if op in self._more:
                return _dump(self._more[op](request))
            if op == "kv.get":
                found = self.kv.get(request["key"])
                return _dump({} if found is None else {"value": found})
            if op == "kv.set":
                self.kv[request["key"]] = request["value"]
                return b"{}"
            if op == "kv.delete":
                self.kv.pop(request["key"], None)
                return b"{}"
            if op == "kv.list":
                return _dump({"keys": sorted(key for key in self.kv if key.startswith(request["prefix"]))})
            if op == "secret.get" and request["name"] in self._secrets:
                return _dump({"value": self._secrets[request["name"]]})
            if op == "http.send" and self._http is not None:
                return _dump(self._http(request))
        except Fault as fault:
            return fault
        except Exception as error:
            return Fault(f"{type(error).__name__}: {error}", Fault.FAILED)
        return Fault(f"this host serves no `{op}` for {request}", Fault.UNSUPPORTED)
