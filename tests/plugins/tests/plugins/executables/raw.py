"""A plugin on no SDK that breaks the protocol in the way that its argument names."""

import json
import os
import struct
import sys
import time

MODE = sys.argv[1]


def write(data):
    while data:
        data = data[os.write(1, data):]


def frame(kind, call_id, body):
    write(struct.pack("<IBQ", len(body) + 9, kind, call_id) + body)


def read(length):
    data = b""
    while len(data) < length:
        piece = os.read(0, length - len(data))
        if not piece:
            if MODE == "garbage that ends":
                os._exit(0)
            while MODE == "garbage":
                time.sleep(60)
            os._exit(0)
        data += piece
    return data


manifest = {"manifest": 1, "kind": "skill", "name": "raw", "version": "1.0.0",
            "tools": [{"op": "skill.execute", "name": "execute", "input_schema": {"type": "object"}}],
            "capabilities": ["skill.execute/1"]}
if MODE == "exit at start":
    print("a module is missing", file=sys.stderr)
    sys.exit(7)
if MODE == "hang at start":
    time.sleep(60)
if MODE.startswith("says "):
    _, field, value = MODE.split()
    manifest[field] = value

while True:
    length, kind, call_id = struct.unpack("<IBQ", read(13))
    body = read(length - 9)
    if kind != 1:
        continue
    verb, instance, credit, named = struct.unpack_from("<BQIH", body)
    op = body[15:15 + named]
    if verb == 0:
        reply = b"no JSON" if MODE == "manifest" else json.dumps(manifest).encode()
        frame(2, call_id, b"\0" + reply)
    elif verb == 1:
        frame(2, call_id, b"\0")
    elif op != b"skill.execute" or b"\"well\"" in body:
        frame(2, call_id, b"\0" + json.dumps({"content": [{"type": "text", "text": "well"}]}).encode())
    elif MODE.startswith("garbage"):
        write(b"Hello, this is what a program prints.\n" * 3)
    elif MODE == "huge":
        write(struct.pack("<IBQ", 64 * 1024 * 1024, 2, call_id))
    elif MODE == "endless":
        write(struct.pack("<IBQ", 16 * 1024 * 1024, 3, call_id))
        while True:
            write(b"x" * 10)
            time.sleep(0.01)
    elif MODE == "flood":
        while True:
            frame(3, call_id, struct.pack("<I", 0) + b"x" * 100)
    elif MODE == "kind":
        frame(99, call_id, b"")
    elif MODE == "wrong side":
        frame(4, call_id, struct.pack("<I", 1))
    elif MODE == "malformed":
        frame(2, call_id, b"\7")
    elif MODE == "no JSON":
        frame(2, call_id, b"\0no JSON")
    elif MODE == "cut":
        write(struct.pack("<IBQ", 100, 2, call_id) + b"\0{")
        os._exit(0)
