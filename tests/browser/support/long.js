// Threads that are long.

// A thread with many entries: one turn that was really made, exported, and written out again and
// again, until there are so many entries or so many turns. `change` is given each record and gives back
// what is written.
export async function longThread(server, thread, entries, { change = (record) => record, turns = Infinity } = {}) {
  const answer = await fetch(`${server.url}/api/v1/threads/${thread}/export`, { headers: server.token });
  const lines = (await answer.text()).trim().split('\n').map((line) => JSON.parse(line));
  const [first, ...records] = lines.filter(({ entry }) => entry).map(({ entry }) => entry);
  if (records.length === 0) throw new Error('the export has no entries of a turn');
  const ids = JSON.stringify(records).matchAll(/"(?:call_id|turn_id)":"([^"]+)"/g);
  const unique = new Set([...ids].map(([, id]) => id));
  const out = [first];
  for (let turn = 1; out.length < entries && turn <= turns; turn += 1) {
    let text = JSON.stringify(records);
    for (const id of unique) text = text.replaceAll(`"${id}"`, `"${id}-${turn}"`);
    for (const record of JSON.parse(text)) out.push(change({ ...record, seq: out.length + 1, turn }));
  }
  const made = await fetch(`${server.url}/api/v1/threads/import`, {
    method: 'POST',
    headers: { ...server.token, 'content-type': 'application/jsonl' },
    body: out.map((entry) => `${JSON.stringify({ entry })}\n`).join(''),
  });
  if (!made.ok) throw new Error(`the import was refused: ${await made.text()}`);
  return { id: (await made.json()).id, entries: out.length };
}
