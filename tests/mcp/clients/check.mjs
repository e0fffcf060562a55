// What every client in JavaScript does once it is connected, and how it says what came of it: one
// line of JSON. `client` has the SDK's own ways behind five functions.

import { renameSync } from "node:fs";

const DEADLINE = 20_000;

/** Waits until `look` gives something, or fails. */
export async function until(what, look) {
  const end = Date.now() + DEADLINE;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false) return found;
    if (Date.now() > end) throw new Error(`${what}: not within ${DEADLINE} ms`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** The text of a result. */
export function text(result) {
  return result.content.map((part) => part.text ?? `[${part.type}]`).join("");
}

/**
 * Lists, calls, hears progress, cancels, and sees a skill that is added meanwhile.
 * `client`: `version()`, `list()`, `call(name, arguments, {progress, signal})`, `changes()` (how
 * often the tools were said to be others).
 */
export async function check(client, addition) {
  const said = { version: client.version() };
  const names = async () => (await client.list()).map((tool) => tool.name);
  said.listed = (await names()).includes("test_simple_text");
  said.text = text(await client.call("test_simple_text", {}));
  said.failed = (await client.call("test_error_handling", {})).isError === true;

  const progress = [];
  await client.call("test_tool_with_progress", {}, { progress: (p) => progress.push(p.progress) });
  said.progress = progress;

  const abort = new AbortController();
  let waiting = false;
  const cancelled = client
    .call("test_cancellation", {}, { progress: () => (waiting = true), signal: abort.signal })
    .then(() => "an answer", () => "no answer");
  await until("the call began", () => waiting);
  abort.abort();
  said.cancelled = await cancelled;
  said.cancellations = await until("the call was cancelled", async () => {
    const count = text(await client.call("test_cancellations", {}));
    return count !== "0" && count;
  });

  if (addition) {
    let seen = client.changes();
    renameSync(addition.from, addition.to);
    // A server may say it once more than there is anything new.
    said.added = await until("the tools were said to be others, and were", async () => {
      if (client.changes() === seen) return false;
      seen = client.changes();
      return (await names()).includes("execute");
    });
    said.stored = text(await client.call("execute", { command: "set a b" }));
  }
  console.log(JSON.stringify(said));
}
