"""A skill that does what its commands say, for the tests of plugins that are programs."""

import json
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

from conjure_plugin import Call, Failure, Result, Setup, Skill, file_ref

skill = Skill("odd", "Does what it is told")
skill.permissions(secrets=["TOKEN"], http=["api.example.org"])


@dataclass
class Point:
    x: float
    y: float = 0.0


@skill.on_create
def create(setup: Setup) -> dict:
    if setup.config == "refuse":
        raise Failure("no instance is wanted")
    return {"count": 0, "session": setup.session}


@skill.tool(stateless=True)
def typed(
    call: Call,
    points: Annotated[list[Point], "Some points"],
    color: Literal["red", "blue"] = "red",
    scale: Optional[float] = None,
) -> Any:
    "Adds points up."
    x = sum(point.x for point in points) * (scale or 1.0)
    return {"x": x, "y": sum(point.y for point in points), "color": color}


def attempt(what: str) -> None:
    verb, _, rest = what.partition(" ")
    if verb == "list":
        os.listdir(rest)
    elif verb == "read":
        Path(rest).read_bytes()
    elif verb == "write":
        Path(rest).write_text("written")
    elif verb == "fork":
        if os.fork() == 0:
            os._exit(0)
    elif verb == "connect":
        socket.create_connection(("127.0.0.1", int(rest)), 2).close()
    elif verb == "kill":
        os.kill(int(rest), 0)
    else:
        raise Failure(f"no such attempt: {verb}")


@skill.execute("count | print | pid | … ")
def execute(call: Call, command: str) -> Any:
    verb, _, rest = command.partition(" ")
    if verb == "count":
        call.state["count"] += 1
        return str(call.state["count"])
    if verb == "program":
        return sys.argv[0]
    if verb == "pid":
        return str(os.getpid())
    if verb == "print":
        print("what an author prints", flush=True)
        os.write(1, b"\xff\xff\xff\xff and writes to descriptor 1\n")
        os.system("true") if rest else None
        return "printed"
    if verb == "output":
        for number in range(int(rest)):
            call.stdout(f"{number}\n")
        call.stderr("and errors")
        call.progress(1, 2, "half")
        return "said"
    if verb == "fail":
        raise Failure(rest)
    if verb == "raise":
        raise ValueError(rest)
    if verb == "wait":
        call.stdout("waiting")
        try:
            call.sleep(60)
        finally:
            call.log("info", "cleaned up")
        return "never"
    if verb == "ignore":
        call.stdout("waiting")
        time.sleep(60)
    if verb == "abort":
        print("just before the end", file=sys.stderr, flush=True)
        os.abort()
    if verb == "exit":
        print("the last words")
        os._exit(int(rest))
    if verb == "eat":
        kept = []
        while True:
            kept.append(bytearray(16 * 1024 * 1024))
    if verb == "recurse":
        return execute(call, command)
    if verb == "large":
        return "x" * int(rest)
    if verb == "file":
        path = call.working_dir / rest
        path.write_text("made")
        return Result("made", files=[file_ref(path)])
    if verb == "host":
        return {
            "kept": [call.kv_get("a"), call.kv_set("a", 1)],
            "secret": call.secret("TOKEN"),
            "http": call.http("GET", "https://api.example.org/x").json(),
            "roots": call.roots(),
        }
    if verb == "hosts":
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(call.kv_get("a"))) for _ in range(int(rest))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return str(len(answers))
    if verb == "environment":
        return json.dumps({"names": sorted(os.environ), "open": sorted(map(int, os.listdir("/proc/self/fd"))),
                           "here": sorted(os.listdir("."))})
    if verb == "try":
        try:
            attempt(rest)
        except OSError as error:
            return f"error {error.errno}"
        return "done"
    raise Failure(f"no such command: {verb}")


@skill.state_export
def export(call: Call) -> Any:
    return call.state


@skill.state_import
def take(call: Call, state: Any, version: str) -> None:
    call.state.update(state)


if __name__ == "__main__":
    skill.run()
