"""The Python SDK, version 1: `python python_1.py JSON`."""

import json
import sys
from contextlib import asynccontextmanager

import anyio
import mcp.types as types
from check import check
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


class Client:
    def __init__(self, session, version, changed):
        self.session = session
        self.version = lambda: version
        self.changed = changed

    async def tools(self):
        return await self.session.list_tools()

    async def call(self, name, arguments=None, progress=None):
        return await self.session.call_tool(name, arguments or {}, progress_callback=progress)

    def is_error(self, result):
        return result.isError

    async def cancel(self, scope):
        # This SDK tells the server nothing when a call is given up, so the test does: the last
        # request is the call.
        last = self.session._request_id - 1
        params = types.CancelledNotificationParams(requestId=last, reason="enough")
        cancelled = types.CancelledNotification(params=params)
        await self.session.send_notification(types.ClientNotification(cancelled))
        scope.cancel()

    @asynccontextmanager
    async def changes(self):
        async def changed():
            await self.changed[0].wait()
            self.changed[0] = anyio.Event()

        self.changed[0] = anyio.Event()
        yield changed


async def main():
    given = json.loads(sys.argv[1])
    changed = [anyio.Event()]

    async def heard(message):
        if isinstance(message, types.ServerNotification):
            if isinstance(message.root, types.ToolListChangedNotification):
                changed[0].set()

    if "stdio" in given:
        transport = stdio_client(StdioServerParameters(**given["stdio"]))
    else:
        transport = streamable_http_client(given["url"])
    async with transport as (read, write, *_):
        async with ClientSession(read, write, message_handler=heard) as session:
            initialized = await session.initialize()
            client = Client(session, initialized.protocolVersion, changed)
            await check(client, given.get("addition"))


anyio.run(main)
