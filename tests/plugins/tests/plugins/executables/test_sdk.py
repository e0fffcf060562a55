"""The SDK for Python by itself: its frames, its schemas, what its small host for tests does."""

import base64
import contextlib
import enum
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Dict, List, Literal, Optional, Union
from unittest import mock

import conjure_plugin
from conjure_plugin import Call, Cancelled, Failure, Fault, Plugin, Result, Setup, Skill, TestHost

FRAMES = json.loads(Path(os.environ["CONJURE_FRAMES"]).read_text())


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Box:
    width: int
    colors: List[Color] = field(default_factory=list)


def body_of(message: Dict[str, Any]) -> bytes:
    """The body of a frame, as the page says it."""
    text = {name: bytes.fromhex(message[name]) for name in ("op", "body", "bytes", "target", "text") if name in message}

    def named(name: str) -> bytes:
        return struct.pack("<H", len(text[name])) + text[name]

    def reply() -> bytes:
        answer = message["reply"]
        fault = conjure_plugin.Fault(bytes.fromhex(answer.get("text", "")).decode(), answer.get("code", 0))
        return conjure_plugin._reply(bytes.fromhex(answer["body"]) if "body" in answer else fault)

    kind = message["kind"]
    if kind == "request":
        head = struct.pack("<BQI", message["verb"], message["instance"], message["credit"])
        return head + named("op") + text["body"]
    if kind == "reply":
        return reply()
    if kind == "emit":
        return struct.pack("<I", message["of"]) + text["bytes"]
    if kind == "credit":
        return struct.pack("<I", message["pieces"])
    if kind == "cancel":
        return bytes([message["what"]]) + (struct.pack("<I", message["id"]) if "id" in message else b"")
    if kind == "log":
        return struct.pack("<I", message["level"]) + named("target") + text["text"]
    if kind == "host request":
        return struct.pack("<I", message["id"]) + named("op") + text["body"]
    return struct.pack("<I", message["id"]) + reply()


class Frames(unittest.TestCase):
    KINDS = ["request", "reply", "emit", "credit", "cancel", "log", "host request", "host reply"]

    def test_each_frame_has_the_bytes_that_the_host_has(self) -> None:
        self.assertGreater(len(FRAMES), 10)
        for frame in FRAMES:
            kind, body = self.KINDS.index(frame["message"]["kind"]) + 1, body_of(frame["message"])
            written = io.BytesIO()
            conjure_plugin._Stream(written).send(kind, frame["call_id"], body)
            self.assertEqual(written.getvalue().hex(), frame["frame"], frame)
            reader = io.BytesIO(bytes.fromhex(frame["frame"]))
            self.assertEqual(conjure_plugin._read_frame(reader), (kind, frame["call_id"], body))
            self.assertIsNone(conjure_plugin._read_frame(reader))

    def test_a_reply_reads_back(self) -> None:
        self.assertEqual(conjure_plugin._read_reply(conjure_plugin._reply(b"{}")), b"{}")
        fault = conjure_plugin._read_reply(conjure_plugin._reply(Fault("nö", 77)))
        assert isinstance(fault, Fault)
        self.assertEqual((str(fault), fault.code), ("nö", 77))

    def test_what_is_no_frame_is_refused(self) -> None:
        for data in (b"\x08\0\0\0\1" + b"\0" * 8, b"\xff\xff\xff\xff\1" + b"\0" * 8, b"\x09\0", b"\x0a\0\0\0\1" + b"\0" * 8):
            with self.assertRaises(Fault):
                conjure_plugin._read_frame(io.BytesIO(data))


class Schemas(unittest.TestCase):
    def test_types_have_schemas_and_take_what_fits(self) -> None:
        for kind, schema, fits, misfits in [
            (str, {"type": "string"}, ["a"], [1, None, ["a"]]),
            (int, {"type": "integer"}, [1, -2, 3.0], [True, 1.5, "1"]),
            (float, {"type": "number"}, [1, 1.5], [True, "1"]),
            (bool, {"type": "boolean"}, [True], [1, "true"]),
            (Any, {}, [None, 1, {}], []),
            (Optional[int], {"type": ["integer", "null"]}, [1, None], ["1"]),
            (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}, [1, "1"], [None, 1.5]),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, ["a"], ["c", 1]),
            (Literal[1, 2], {"type": "integer", "enum": [1, 2]}, [1], [True, 3]),
            (List[int], {"type": "array", "items": {"type": "integer"}}, [[], [1]], [["1"], "1"]),
            (Dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "1"}, []]),
            (Color, {"enum": ["red", "blue"]}, ["red"], ["green", 1]),
            (Annotated[str, "Why", {"minLength": 1}], {"type": "string", "description": "Why", "minLength": 1}, ["a"], [1]),
        ]:
            self.assertEqual(conjure_plugin._schema(kind), schema)
            for value in fits:
                conjure_plugin._convert(value, kind, "it")
            for value in misfits:
                with self.assertRaises(conjure_plugin._Misfit, msg=f"{value!r} as {kind}"):
                    conjure_plugin._convert(value, kind, "it")

    def test_a_dataclass_is_an_object(self) -> None:
        schema = conjure_plugin._schema(Box)
        self.assertEqual(schema["required"], ["width"])
        box = conjure_plugin._convert({"width": 1, "colors": ["blue"], "unknown": 1}, Box, "")
        self.assertEqual(box, Box(1, [Color.BLUE]))
        with self.assertRaisesRegex(conjure_plugin._Misfit, "`it.colors.0` must be one of 'red', 'blue'"):
            conjure_plugin._convert({"width": 1, "colors": ["green"]}, Box, "it")

    def test_what_has_no_schema_is_said_when_the_skill_is_made(self) -> None:
        skill = Skill("s", "")
        with self.assertRaisesRegex(TypeError, "input_schema"):

            @skill.tool()
            def bad(call: Call, what: complex) -> str:
                return ""

        with self.assertRaisesRegex(ValueError, "twice"):
            for _ in range(2):
                skill.tool("same")(lambda call: "")


class Running(unittest.TestCase):
    def setUp(self) -> None:
        self.skill = Skill("s", "For tests", version="1.2.3")

    def test_results_of_all_kinds(self) -> None:
        @self.skill.tool(input_schema={"type": "object"})
        def give(call: Call, arguments: Any) -> Any:
            return {
                "text": "text", "none": None, "data": {"a": [1]}, "box": Box(1, [Color.RED]),
                "image": Result("seen", parts=[Result.image(b"png", "image/png")], meta={"m": 1}),
            }[arguments["what"]]

        with TestHost(self.skill) as host:
            def reply(what: str) -> Any:
                return host.tool("give", {"what": what}).reply

            self.assertEqual(reply("text")["content"], [{"type": "text", "text": "text"}])
            self.assertEqual(reply("none"), {"content": [], "is_error": False})
            self.assertEqual(reply("data")["structured"], {"a": [1]})
            self.assertEqual(json.loads(reply("box")["content"][0]["text"]), {"width": 1, "colors": ["red"]})
            image = reply("image")
            self.assertEqual(base64.b64decode(image["content"][1]["data"]), b"png")
            self.assertEqual(image["meta"], {"m": 1})
            with self.assertRaisesRegex(Fault, "KeyError: 'other'"):
                reply("other")

    def test_large_texts_become_files_where_there_is_a_place(self) -> None:
        @self.skill.tool()
        def large(call: Call, size: int) -> Any:
            return Result("x" * size, structured=["y" * size])

        with tempfile.TemporaryDirectory() as directory, TestHost(self.skill) as host:
            envelope = {"body": {"size": 100_000}, "exchange_dir": directory, "deadline_ms": 0}
            _, done = host._ask(2, host._instance, "skill.tool.large", envelope, 10.0)
            reply = json.loads(done.reply)
            part = reply["content"][0]
            self.assertEqual((part["type"], part["file"]["size"]), ("file", 100_000))
            self.assertEqual(Path(part["file"]["path"]).read_text(), "x" * 100_000)
            self.assertNotIn("structured", reply)
            self.assertEqual(json.loads(Path(reply["files"][0]["path"]).read_text()), ["y" * 100_000])

    def test_the_small_host_serves_and_cancels(self) -> None:
        cleaned = []

        @self.skill.tool()
        def ask(call: Call) -> Any:
            call.kv_set("a/1", 1)
            sent = call.http("POST", "https://example.org", {"A": "b"}, b"body")
            return [call.kv_get("a/1"), call.kv_get("none", 7), call.kv_list("a/"), call.secret("KEY"), sent.text]

        @self.skill.tool()
        def wait(call: Call) -> str:
            try:
                call.sleep(60)
            except Cancelled:
                cleaned.append(True)
                raise
            return "never"

        sent: List[Dict[str, Any]] = []

        def http(request: Dict[str, Any]) -> Dict[str, Any]:
            sent.append(request)
            return {"status": 200, "headers": [["a", "b"]], "body": "answer"}

        with TestHost(self.skill, secrets={"KEY": "k"}, http=http) as host:
            self.assertEqual(host.tool("ask").reply["structured"], [1, 7, ["a/1"], "k", "answer"])
            self.assertEqual((sent[0]["method"], sent[0]["body"], sent[0]["headers"]), ("POST", "body", [["A", "b"]]))
            begun = time.monotonic()
            with self.assertRaises(Fault) as caught:
                host.tool("wait", timeout=0.2)
            self.assertEqual(caught.exception.code, Fault.CANCELLED)
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual(cleaned, [True])
            with self.assertRaises(Fault) as caught:
                host.call("skill.none", {})
            self.assertEqual(caught.exception.code, Fault.UNSUPPORTED)

    def test_a_backend_is_operations_by_their_names(self) -> None:
        backend = Plugin("backend", "b", "A backend", version="1.0.0")

        @backend.operation("backend.call")
        def call(call: Call, body: Any) -> Any:
            if body["name"] != "echo":
                raise Failure(f"there is no tool `{body['name']}`")
            return Result(body["arguments"]["text"]).to_json()

        manifest = backend.manifest()
        self.assertIn("backend.call/1", manifest["capabilities"])
        self.assertEqual((manifest["kind"], manifest["state"]), ("backend", "shared"))
        with TestHost(backend) as host:
            self.assertEqual(host.call("backend.call", {"name": "echo", "arguments": {"text": "hi"}}).text, "hi")
            with self.assertRaisesRegex(Fault, "no tool `other`"):
                host.call("backend.call", {"name": "other", "arguments": {}})

    def test_what_is_no_json_is_an_error_that_names_the_tool(self) -> None:
        @self.skill.tool(input_schema={"type": "object"})
        def give(call: Call, arguments: Any) -> Any:
            whole: List[Any] = []
            whole.append(whole)
            return {
                "nan": [float("nan")], "object": object(), "cycle": whole, "half": "a\ud800b",
                "data": {"half": "\udfff"}, "part": Result("t", meta={"m": float("inf")}),
            }[arguments["what"]]

        with TestHost(self.skill) as host:
            for what in ("nan", "object", "cycle", "part"):
                with contextlib.redirect_stderr(io.StringIO()) as said:
                    failed = host.tool("give", {"what": what})
                self.assertTrue(failed.is_error, what)
                self.assertIn("`give` failed: what it gave is not JSON", failed.text)
                self.assertIn("`give`", said.getvalue())
            self.assertEqual(host.tool("give", {"what": "half"}).text, "a?b")
            self.assertEqual(host.tool("give", {"what": "data"}).reply["structured"], {"half": "?"})

        backend = Plugin("backend", "b", "A backend")
        backend.operation("backend.call")(lambda call, body: float("nan"))
        with TestHost(backend) as host, self.assertRaisesRegex(Fault, "`backend.call` gave is not JSON"):
            host.call("backend.call", {})

    def test_a_call_for_which_there_is_no_thread_is_told_to_come_later(self) -> None:
        self.skill.tool("one")(lambda call: "1")
        with TestHost(self.skill) as host:
            error = RuntimeError("can't start new thread")
            with mock.patch.object(threading.Thread, "start", side_effect=error):
                with self.assertRaisesRegex(Fault, "can't start new thread") as caught:
                    host.tool("one")
            self.assertEqual(caught.exception.code, Fault.BUSY)
            self.assertEqual(host.tool("one").text, "1")

    def test_an_instance_that_is_dropped_while_it_is_made_is_not_kept(self) -> None:
        begun, go_on = threading.Event(), threading.Event()
        made: List[int] = []

        @self.skill.on_create
        def create(setup: Setup) -> int:
            if made:
                begun.set()
                go_on.wait(10)
            made.append(1)
            return 1

        written = io.BytesIO()
        server = conjure_plugin._Server(self.skill, conjure_plugin._Stream(written))
        for number in (1, 2):
            server.request(number, 1, 0, 0, b"", b"{}")
            if number == 1:
                for thread in list(server.threads):
                    thread.join(10)
        self.assertTrue(begun.wait(10))
        server.take(5, 2, b"\1")
        threads = list(server.threads)
        go_on.set()
        for thread in threads:
            thread.join(10)
        self.assertEqual((len(made), list(server.instances), list(server.lines)), (2, [1], [1]))

    def test_the_small_host_hands_a_fault_on(self) -> None:
        @self.skill.tool()
        def ask(call: Call) -> str:
            try:
                call.host("mine")
            except Fault as fault:
                return f"{fault.code} {fault}"
            return "no fault"

        def mine(request: Any) -> Any:
            raise Fault("not for you", Fault.DENIED)

        with TestHost(self.skill, operations={"mine": mine}) as host:
            self.assertEqual(host.tool("ask").text, "7 not for you")

    def test_a_model_gives_no_call(self) -> None:
        @self.skill.tool()
        def free(call: Call, **rest: int) -> Any:
            return rest

        with TestHost(self.skill) as host:
            self.assertEqual(host.tool("free", {"a": 1}).reply["structured"], {"a": 1})
            misfit = host.tool("free", {"call": 1})
            self.assertTrue(misfit.is_error)
            self.assertIn("`call` is no argument", misfit.text)

    def test_what_is_printed_is_not_kept_back(self) -> None:
        program = (
            "from conjure_plugin import Skill\nskill = Skill('s', '')\nprint('before')\n"
            "import conjure_plugin\nserve = conjure_plugin._Server.serve\n"
            "def noted(self, reader):\n    print('a line')\n    serve(self, reader)\n    print('half', end='')\n"
            "conjure_plugin._Server.serve = noted\nskill.run()\n"
        )
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        environment["CONJURE_PROTOCOL"] = "1"
        ended = subprocess.run(
            [sys.executable, "-B", "-c", program], env=environment, input=b"", capture_output=True, timeout=30
        )
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, b"", b"before\na line\nhalf"))


if __name__ == "__main__":
    print(sys.version)
    unittest.main()
