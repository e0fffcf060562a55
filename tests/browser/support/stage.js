// A server with something to see in every view, and the list of all views and dialogs.

// Fills a server: sessions with a conversation, a fork, personas, MCP servers, use.
export async function furnish({ server, model, session }) {
  await server.api('POST', '/personas', { name: 'keeper', version: '2', persona_text: 'You keep a lighthouse.\nYou are calm.' });
  await server.api('POST', '/mcp-servers', { name: 'notes', settings: { url: 'https://notes.example/mcp' } });
  await server.api('POST', '/mcp-servers', { name: 'lamp', enabled: false, settings: { command: 'lamp-server', args: ['--on'] } });
  await session('lighthouse', { persona: { name: 'keeper', version: '2', persona_text: 'You keep a lighthouse.' } });
  await session('a-second-session-with-a-rather-long-name');
  await model.step({ content: [
    { type: 'thinking', thinking: 'The person wants to know what is here.' },
    { type: 'text', text: 'I look first.' },
    { type: 'tool_use', id: 'call_1', name: 'local_bash_tool', input: { command: 'ls -la && echo one two three' } },
  ] });
  await model.says('# What is here\n\nA *directory* with `notes.txt`.\n\n```rust\nfn main() { println!("a long line that does not fit on a phone, however one turns it"); }\n```\n\n| name | size |\n|---|---|\n| notes.txt | 18 |\n');
  const said = await server.api('POST', '/sessions/lighthouse/turns', { text: 'What is in this directory?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  await server.api('POST', '/sessions/lighthouse/thread', { kind: 'fork', thread: said.thread });
  await model.says('Another way.');
  const fork = await server.api('POST', '/sessions/lighthouse/turns', { text: 'And another way?' });
  await server.api('GET', `/turns/${fork.turn}?wait=20`);
  const { items: servers } = await server.api('GET', '/mcp-servers');
  const { items: personas } = await server.api('GET', '/personas');
  const { items: auths } = await server.api('GET', '/auths');
  return { thread: said.thread, mcp: servers[0].id, persona: personas[0].id, auth: auths[0].id };
}

// Every view: its name, its address, and in dialogs what opens it.
export function views({ mcp, persona, auth }) {
  const dialogs = [
    ['new-session', '/', '#session-new', '/new'],
    ['config', '/sessions/lighthouse', '#config', '/sessions/lighthouse/config'],
    ['rename', '/sessions/lighthouse', '#rename'],
    ['clear', '/sessions/lighthouse', ['#chat-more', '#clear-chat']],
    ['import-chat', '/sessions/lighthouse', ['#chat-more', '#import-chat'], '/sessions/lighthouse/import'],
    ['shortcuts', '/', '#shortcuts-open'],
    ['delete-session', '/', '[id^=session-delete-]', '/sessions/lighthouse/delete'],
    ['new-auth', '/auths', '#auth-new', '/auths/new'],
    ['edit-auth', '/auths', `#auth-edit-${auth}`, `/auths/${auth}`],
    ['remove-auth', '/auths', `#auth-remove-${auth}`, `/auths/${auth}/remove`],
    ['new-persona', '/personas', '#persona-new', '/personas/new'],
    ['edit-persona', '/personas', `#persona-edit-${persona}`, `/personas/${persona}`],
    ['new-mcp', '/mcp', '#mcp-new', '/mcp/new'],
    ['import-mcp', '/mcp', '#mcp-import', '/mcp/import'],
    ['edit-mcp', '/mcp', `#mcp-edit-${mcp}`, `/mcp/servers/${mcp}`],
    ['login-mcp', '/mcp', `#mcp-login-${mcp}`, `/mcp/servers/${mcp}/login`],
    ['new-plugin', '/plugins', '#plugin-new', '/plugins/new'],
  ];
  return [
    ['dashboard', '/'],
    ['conversation', '/sessions/lighthouse'],
    ['empty-conversation', '/sessions/a-second-session-with-a-rather-long-name'],
    ['routes', '/sessions/lighthouse/routes'],
    ['auths', '/auths'],
    ['personas', '/personas'],
    ['mcp', '/mcp'],
    ['plugins', '/plugins'],
    ['usage', '/usage'],
    ['search', '/search?q=directory'],
    ['search-nothing', '/search?q=nobody+said+this'],
    ...dialogs,
  ];
}

// Goes to a view, and opens its dialog where it is one.
export async function visit(page, [, url, opens]) {
  await page.goto(url);
  for (const selector of [opens ?? []].flat()) await page.locator(selector).first().click();
  if (opens) await page.locator('dialog[open], #rename-form:not([hidden])').waitFor();
}
