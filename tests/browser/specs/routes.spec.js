// Routes: what is kept out of the table and why, and a plugin of which another build comes.

import { greeter } from '../support/greeter.js';
import { expect, test } from '../support/test.js';

test.use({ plugins: [process.env.CONJURE_PLUGIN_LOCAL, process.env.CONJURE_PLUGIN_MCP] });

// Goes to the routes until a tool of the server is among them, which may still start.
async function goTo(page, tool) {
  const table = page.getByRole('region', { name: 'Routing table' });
  await expect(async () => {
    await page.goto('/sessions/site/routes');
    await expect(table.getByText(tool)).toBeVisible({ timeout: 2_000 });
  }).toPass({ timeout: 20_000 });
  return table;
}

test('a build that takes the place of another shows while one looks, and an older one beside it is shadowed', async ({ page, server, session }) => {
  await session('site', { tools: { backend: [{ kind: 'native' }], policy: { allow: ['*'] } } });
  server.plugin(greeter(server, '0.1.0'), 'greeter.plugin');
  await page.goto('/sessions/site/routes');
  const table = page.getByRole('region', { name: 'Routing table' });
  const greets = table.getByRole('row', { name: /greeter_greet/ });
  await expect(greets).toContainText('greeter 0.1.0', { timeout: 20_000 });
  await expect(table.getByText('greeter_wave')).toBeVisible();
  await page.evaluate(() => { window.same = true; });

  server.plugin(greeter(server, '0.2.0'), 'greeter.plugin');
  await expect(greets).toContainText('greeter 0.2.0', { timeout: 20_000 });
  await expect(table.getByText('greeter_bow')).toBeVisible();
  await expect(table.getByText('greeter_wave')).toHaveCount(0);
  await greets.locator('summary').click();
  await expect(greets).toContainText('Greets somebody by name.');
  const shadowed = page.getByRole('region', { name: 'Shadowed' });
  await expect(shadowed).toHaveCount(0);

  server.plugin(greeter(server, '0.1.0'), 'greeter-old.plugin');
  const old = shadowed.getByRole('listitem').filter({ hasText: 'greeter_greet' });
  await expect(old).toContainText('version 0.2.0 of the skill is routed', { timeout: 20_000 });
  await expect(greets).toContainText('greeter 0.2.0');
  expect(await page.evaluate(() => window.same)).toBe(true);
});

test('a tool that is held is quarantined, with the reason', async ({ page, server, model, session }) => {
  const notes = { command: process.env.CONJURE_MOCK_MCP, args: ['turns'] };
  await session('site', { mcps: { notes }, tools: { policy: { allow: ['*'] } } });
  await model.calls('call_1', 'notes_change', {});
  await model.says('Turned.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'Turn' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  // The list of the server comes on its own; the others of it stay.
  const table = await goTo(page, 'notes_count');
  const quarantined = page.getByRole('region', { name: 'Quarantined' });
  const echo = quarantined.getByRole('listitem').filter({ hasText: 'notes_echo' });
  await expect(echo).toHaveCount(1, { timeout: 20_000 });
  // The name is said once; what is behind it is why.
  const why = (await echo.innerText()).replace(/^notes_echo\s*:\s*/, '');
  expect(why).toMatch(/approv/i);
  await expect(table.getByText('notes_echo')).toHaveCount(0);
  await page.getByRole('region', { name: 'Held' }).getByRole('button', { name: 'Approve echo of notes' }).click();
  await goTo(page, 'notes_echo');
  await expect(quarantined).toHaveCount(0);
});

test('backends and their servers say how they are, and a server that does not start is down, with why', async ({ page, server, model, session }) => {
  const gone = { command: '/nowhere/at-all' };
  const notes = { command: process.env.CONJURE_MOCK_MCP };
  await session('site', { mcps: { gone, notes }, tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] } } });
  // A session that is open has its servers started.
  await model.says('Here.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'Are you there?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  await page.goto('/sessions/site/routes');
  const backends = page.locator('#routes-backends');
  const row = (name) => backends.getByRole('row', { name });
  await expect(row(/^local ready/)).toBeVisible();
  await expect(async () => {
    await page.locator('#routes-look').click();
    await expect(row(/^mcp: gone/)).toContainText('down', { timeout: 1000 });
    await expect(row(/^mcp: notes/)).toContainText('ready', { timeout: 1000 });
  }).toPass({ timeout: 20_000 });
  await expect(row(/^mcp: gone/)).toContainText('at-all');
});

test.describe('of a plugin in a process of its own', () => {
  test.use({ plugins: [process.env.CONJURE_PLUGIN_LOCAL] });

  test('a backend that is slow, hangs, has ended or ends again and again says so', async ({ page, server, model, session }) => {
    test.setTimeout(120_000);
    // What is installed over the API runs in a process of its own, which starts no programs.
    await server.install(process.env.CONJURE_PLUGIN_MCP);
    // Opens a session with the backend; gives the worker that it has for it.
    const open = async (name) => {
      await session(name, {
        mcps: { notes: { command: process.env.CONJURE_MOCK_MCP } },
        tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] } },
      });
      await model.says('Here.');
      const said = await server.api('POST', `/sessions/${name}/turns`, { text: 'Are you there?' });
      await server.api('GET', `/turns/${said.turn}?wait=30`);
      const { plugins } = await server.api('GET', '/plugins');
      return plugins.find((plugin) => plugin.name === 'mcp').worker_pids.at(-1);
    };
    let pid = await open('site');
    await page.goto('/sessions/site/routes');
    const row = (name) => page.locator('#routes-backends').getByRole('row', { name });
    await expect(row(/^mcp /)).toContainText('ready');

    // It is stopped, and let go once it has been waited for.
    const look = async (stopped) => {
      process.kill(pid, 'SIGSTOP');
      const looked = page.locator('#routes-look').click();
      await new Promise((resolve) => setTimeout(resolve, stopped));
      process.kill(pid, 'SIGCONT');
      await looked;
    };
    await expect(async () => {
      await look(2_500);
      await expect(row(/^mcp /)).toContainText(/slow\s*It took \d+ ms to say how its servers are/, { timeout: 5_000 });
    }).toPass({ timeout: 30_000 });
    await look(5_500);
    await expect(row(/^mcp /)).toContainText('down');
    await expect(row(/^mcp: notes/)).toHaveCount(0);
    // The others are not kept waiting for, and are as they were.
    await expect(row(/^local ready/)).toBeVisible();

    for (const name of ['site', 'second', 'third']) {
      if (name !== 'site') pid = await open(name);
      process.kill(pid, 'SIGKILL');
      await expect(async () => {
        await page.goto(`/sessions/${name}/routes`);
        await expect(row(/^mcp /)).toContainText('its next call starts it again', { timeout: 1_000 });
      }).toPass({ timeout: 20_000 });
      await expect(row(/^mcp /)).toContainText('down');
    }
    // It works in another one, and is not to be relied on.
    await open('fourth');
    await page.goto('/sessions/fourth/routes');
    await expect(row(/^mcp /)).toContainText('failing');
    await expect(row(/^mcp /)).toContainText('ended by themselves 3 times');
  });
});

test('a tool that the provider does not take is not sent, with the reason, and is where another one takes it', async ({ page, server, model, session, auths }) => {
  const gemini = await server.api('POST', '/auths', {
    name: 'gems', provider: 'gemini', kind: 'api_key', secret: 'a-key-of-nobody', base_url: model.url,
  });
  await session('site', {
    auth: gemini.id, model: 'gemini-mock',
    mcps: { notes: { command: process.env.CONJURE_MOCK_MCP, args: ['tree'] } }, tools: { policy: { allow: ['*'] } },
  });
  const table = await goTo(page, 'notes_echo');
  const leftOut = page.getByRole('region', { name: 'Not sent' });
  await expect(leftOut.getByRole('listitem')).toHaveText([/^notes_tree: its schema refers to itself/]);
  await expect(table.getByText('notes_tree')).toHaveCount(0);
  await server.api('PATCH', '/sessions/site', { auth: auths.work.id, model: 'claude-mock' });
  await expect(leftOut).toHaveCount(0);
  await expect(table.getByText('notes_tree')).toBeVisible();
});
