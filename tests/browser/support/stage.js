// A server with something to see in every view, and the list of all views and dialogs; and what a view is
// for a while only, or after something was done in it.

import { greeter } from './greeter.js';
import { expect } from './test.js';

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
export function views({ thread, mcp, persona, auth }) {
  const dialogs = [
    ['new-session', '/', '#session-new', '/new'],
    ['config', '/sessions/lighthouse', '#config', '/sessions/lighthouse/config'],
    ['rename', '/sessions/lighthouse', '#rename'],
    ['summarise', '/sessions/lighthouse', ['#chat-more', '#summarise-chat'], `/sessions/lighthouse/threads/${thread}/summarise`],
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
    ['replay', `/sessions/lighthouse/threads/${thread}/replay`],
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

// Makes a session with a chat of two turns, of which the first is long enough to be summarised. The thread.
export async function longChat({ server, model, session }, name) {
  await session(name, { tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] }, compact_at: 8000 } });
  await model.calls(`call_${name}`, 'local_bash_tool', { command: 'seq 1 1500' });
  await model.says('Counted.');
  await model.says('Nothing more.');
  let said;
  for (const text of ['Count to a thousand', 'And now?']) {
    said = await server.api('POST', `/sessions/${name}/turns`, { text });
    await server.api('GET', `/turns/${said.turn}?wait=20`);
  }
  return said.thread;
}

// Brings about what is there for a while only. It stays until the server ends: what streams is held, and
// what asks is never answered.
export async function linger({ server, model, session }) {
  const waits = async (name, what) => {
    await expect.poll(async () => (await server.api('GET', `/sessions/${name}/${what}`)).items.length).toBe(1);
  };
  const say = (name, text) => server.api('POST', `/sessions/${name}/turns`, { text });
  const ends = async (said) => server.api('GET', `/turns/${said.turn}?wait=20`);

  await session('files');
  await model.calls('call_files', 'local_bash_tool', { command: `printf 'The lamp is lit.\\nAll is well.\\n' > log.txt; seq 1 4000` });
  await model.says('Written.');
  await ends(await say('files', 'Write it down'));

  const summed = await longChat({ server, model, session }, 'summed');
  await model.says('They counted to a thousand, and *nobody* said why.');
  await server.api('POST', `/threads/${summed}/compact`, { session: 'summed' });

  await session('downs', { mcps: { gone: { command: '/nowhere/at-all' } }, tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] } } });

  await session('asks', { tools: { backend: [{ kind: 'local' }], policy: { ask: ['*'] } } });
  await model.calls('call_asks', 'local_bash_tool', { command: 'touch lamp.txt' }, { text: 'I would like to make a file.' });
  await say('asks', 'Make a file');
  await waits('asks', 'approvals');

  await session('questions', {
    mcps: { notes: { command: process.env.CONJURE_MOCK_MCP } },
    tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] } },
  });
  await model.calls('call_questions', 'notes_ask', {});
  await say('questions', 'Ask me');
  await waits('questions', 'questions');

  await session('fails');
  await model.fails(401);
  await ends(await say('fails', 'Say something'));

  await session('holds', { mcps: { notes: { command: process.env.CONJURE_MOCK_MCP, args: ['turns'] } }, tools: { policy: { allow: ['*'] } } });
  await model.calls('call_holds', 'notes_change', {});
  await model.says('Turned.');
  await ends(await say('holds', 'Turn'));
  await expect.poll(async () => (await server.api('GET', '/held-tools')).items.length, { timeout: 20_000 }).toBe(1);

  for (const version of ['0.1.0', '0.2.0']) await server.install(greeter(server, version));

  await session('streams');
  await model.says('# A story\n\nOf the sea, and its end.', { thinking: 'It wants a story.', hold: { gate: 'sea', event: 12 }, delta: 8 });
  await say('streams', 'Tell a story');
  await model.reached('sea');
  await say('streams', 'And another one');
}

// What lingers, as `views` lists views: a name, an address, what opens it, and what there is to see.
// `page` is who looks where that is somebody else, `widths` where it is there at some only. `login` and
// `shared` are addresses for a stranger: of the server, and of a chat that was saved as HTML.
export function states({ mcp, persona }, { stranger, login, shared } = {}) {
  const see = (name, url, opens, sees, more = {}) => ({ name, url, opens, sees, ...more });
  const find = ['#chat-more', '#find-in-chat'];
  return [
    // First: it says how it is with the sessions, and what asks is given up after a while.
    see('phone-menu', '/sessions/lighthouse', ['#menu-open'], '#menu:popover-open', { widths: [390] }),
    see('approval', '/sessions/asks', [], '[id$="-allow"]'),
    see('summarised', '/sessions/summed', ['.mark summary'], '.mark form'),
    see('backend-states', '/sessions/downs/routes', [], '#routes-backends .badge.bad'),
    see('question', '/sessions/questions', [], 'form.ask'),
    see('stream', '/sessions/streams', [], '#live h1'),
    see('edit-follow-up', '/sessions/streams', ['#queue a'], '#dialog[open] textarea'),
    see('failed-turn', '/sessions/fails', [], '.entry.error'),
    see('held', '/sessions/holds/routes', [], '#routes-held'),
    see('file-preview', '/sessions/files', ['[id*="-preview-"]'], '#dialog[open] pre'),
    see('whole-result', '/sessions/files', ['details.call > summary', '[id$="-all"]'], '#dialog[open] pre'),
    see('find', '/sessions/lighthouse', find, '#dialog[open] #find-words'),
    see('find-hits', '/sessions/lighthouse', [...find, ['#find-words', 'another']], '#find-hits li'),
    see('edit-and-fork', '/sessions/lighthouse', ['[id^="edit-"]'], '#dialog[open] textarea'),
    see('remove-persona', '/personas', [`#persona-remove-${persona}`], '#dialog[open] > section'),
    see('delete-mcp', '/mcp', [`#mcp-remove-${mcp}`], '#dialog[open] > section'),
    see('installed-plugin', '/plugins', [], '[id^="plugin-rollback-"]'),
    see('roll-back-plugin', '/plugins', ['[id^="plugin-rollback-"]'], '#plugin-rollback-form'),
    see('remove-plugin', '/plugins', ['[id^="plugin-remove-"]'], '#plugin-remove-yes'),
    see('login', login, [], 'pre.command', { page: stranger }),
    see('not-found', '/sessions/nobody', [], '.problem'),
    see('shared', shared, [], 'details.call', { page: stranger }),
  ];
}

// Goes to what lingers, and does what it takes to see it.
export async function visitState(page, { url, opens, sees }) {
  await page.goto(url);
  for (const step of opens) {
    const [selector, words] = [step].flat();
    const element = page.locator(selector).first();
    if (words) {
      await element.fill(words);
      await element.press('Enter');
    } else {
      await element.click();
    }
  }
  await page.locator(sees).first().waitFor();
}

// Goes to a view, and opens its dialog where it is one.
export async function visit(page, [name, url, opens]) {
  await page.goto(url);
  // A narrow window has the list of keys in the menu.
  const isInMenu = name === 'shortcuts' && !await page.locator(opens).isVisible();
  for (const selector of [isInMenu ? '#menu-open' : [], opens ?? []].flat()) await page.locator(selector).first().click();
  if (opens) await page.locator('dialog[open], #rename-form:not([hidden])').waitFor();
}
