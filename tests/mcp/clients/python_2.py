"""The Python SDK, version 2: `python python_2.py JSON`. It speaks both eras."""

import json
import sys
from contextlib import asynccontextmanager

import anyio
from check import check
from mcp import Client as SdkClient
from mcp import StdioServerParameters, types


class Client:
    def __init__(self, client, modern, changed):
        self.client = client
        self.modern = modern
        self.changed = changed

    def version(self):
        return self.client.protocol_version

    async def tools(self):
        return await self.client.list_tools()

    async def call(self, name, arguments=None, progress=None):
        return await self.client.call_tool(name, arguments or {}, progress_callback=progress)

    def is_error(self, result):
        return result.is_error

    async def cancel(self, scope):
        scope.cancel()

    @asynccontextmanager
    async def changes(self):
        async def changed():
            await self.changed[0].wait()
            self.changed[0] = anyio.Event()

        if not self.modern:
            self.changed[0] = anyio.Event()
            yield changed
            return
        async with self.client.listen(tools_list_changed=True) as subscription:
            yield subscription.__anext__


async def main():
    given = json.loads(sys.argv[1])
    modern = given["era"] == "modern"
    changed = [anyio.Event()]

    async def heard(message):
        if isinstance(message, types.ToolListChangedNotification):
            changed[0].set()

    server = StdioServerParameters(**given["stdio"]) if "stdio" in given else given["url"]
    mode = "2026-07-28" if modern else "legacy"
    async with SdkClient(server, mode=mode, message_handler=heard) as client:
        await check(Client(client, modern, changed), given.get("addition"))


anyio.run(main)
