// The TypeScript SDK, version 1: `node typescript-1.mjs JSON`.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { check } from "./check.mjs";

const { stdio, url, addition } = JSON.parse(process.argv[2]);
const client = new Client({ name: "typescript-1", version: "1.0.0" });
let changes = 0;
client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
  changes += 1;
});
const transport = stdio ? new StdioClientTransport(stdio) : new StreamableHTTPClientTransport(new URL(url));
let version;
transport.setProtocolVersion = ((set) =>
  function (negotiated) {
    version = negotiated;
    set?.call(this, negotiated);
  })(transport.setProtocolVersion);
await client.connect(transport);
await check(
  {
    version: () => version,
    list: async () => (await client.listTools()).tools,
    call: (name, args, { progress, signal } = {}) =>
      client.callTool({ name, arguments: args }, undefined, { onprogress: progress, signal }),
    changes: () => changes,
  },
  addition,
);
await client.close();
