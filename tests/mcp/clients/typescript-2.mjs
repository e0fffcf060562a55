// The TypeScript SDK, version 2: `node typescript-2.mjs JSON`. It speaks both eras.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { check } from "./check.mjs";

const { stdio, url, era, addition } = JSON.parse(process.argv[2]);
let changes = 0;
const client = new Client(
  { name: "typescript-2", version: "1.0.0" },
  {
    versionNegotiation: { mode: era === "modern" ? { pin: "2026-07-28" } : "legacy" },
    listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => (changes += 1) } },
  },
);
const transport = stdio ? new StdioClientTransport(stdio) : new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
await check(
  {
    version: () => client.getNegotiatedProtocolVersion(),
    list: async () => (await client.listTools()).tools,
    call: (name, args, { progress, signal } = {}) =>
      client.callTool({ name, arguments: args }, { onprogress: progress, signal }),
    changes: () => changes,
  },
  addition,
);
await client.close();
