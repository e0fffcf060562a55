"""What every client in Python does once it is connected, and how it says what came of it: one line
of JSON. `client` has the SDK's own ways behind a few methods."""

import json
import os

import anyio

DEADLINE = 20


async def until(what, look):
    """Waits until `look` gives something, or fails."""
    with anyio.move_on_after(DEADLINE):
        while not (found := await look()):
            await anyio.sleep(0.005)
        return found
    raise TimeoutError(f"{what}: not within {DEADLINE} s")


def text(result):
    """The text of a result."""
    return "".join(getattr(part, "text", f"[{part.type}]") for part in result.content)


async def check(client, addition):
    """Lists, calls, hears progress, cancels, and sees a skill that is added meanwhile."""
    said = {"version": client.version()}

    async def names():
        return [tool.name for tool in (await client.tools()).tools]

    said["listed"] = "test_simple_text" in await names()
    said["text"] = text(await client.call("test_simple_text"))
    said["failed"] = client.is_error(await client.call("test_error_handling"))

    progress = []

    async def heard(done, total, message):
        progress.append(done)

    await client.call("test_tool_with_progress", progress=heard)
    said["progress"] = progress

    waiting = anyio.Event()

    async def begun(done, total, message):
        waiting.set()

    async with anyio.create_task_group() as tasks:

        async def cancelled():
            await client.call("test_cancellation", progress=begun)
            said["cancelled"] = "an answer"

        tasks.start_soon(cancelled)
        with anyio.fail_after(DEADLINE):
            await waiting.wait()
        await client.cancel(tasks.cancel_scope)
    said.setdefault("cancelled", "no answer")

    async def cancellations():
        count = text(await client.call("test_cancellations"))
        return count if count != "0" else None

    said["cancellations"] = await until("the call was cancelled", cancellations)

    if addition:
        async with client.changes() as changed:
            os.rename(addition["from"], addition["to"])
            with anyio.fail_after(DEADLINE):
                # A server may say it once more than there is anything new.
                said["added"] = False
                while not said["added"]:
                    await changed()
                    said["added"] = "execute" in await names()
        said["stored"] = text(await client.call("execute", {"command": "set a b"}))
    print(json.dumps(said), flush=True)
