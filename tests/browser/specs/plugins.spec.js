// Routes, Plugins and Usage: what is there, what comes while one looks, and what it cost.

import { greeter } from '../support/greeter.js';
import { expect, test } from '../support/test.js';

test('a plugin that is added while one looks appears in Routes', async ({ page, server, session }) => {
  await session('site', { tools: { backend: [{ kind: 'local' }, { kind: 'native' }], policy: { allow: ['*'] } } });
  await page.goto('/sessions/site/routes');
  const table = page.getByRole('region', { name: 'Routing table' });
  await expect(table.getByText('local_bash_tool')).toBeVisible();
  await expect(page.locator('#routes-summary')).toContainText(/about \d+ tokens/);
  await expect(table.getByText('log-fetcher')).toHaveCount(0);
  await page.evaluate(() => { window.same = true; });
  server.plugin(process.env.CONJURE_PLUGIN_SKILL);
  const row = table.getByRole('row', { name: /log-fetcher_execute/ });
  await expect(row).toBeVisible({ timeout: 20_000 });
  await expect(row).toContainText('native');
  await row.locator('summary').click();
  await expect(row.locator('pre')).toContainText('"type"');
  expect(await page.evaluate(() => window.same)).toBe(true);
});

test('a backend that is down says so', async ({ page, server, session }) => {
  await session('site', { tools: { backend: [{ kind: 'nothing-like-it' }] } });
  await page.goto('/sessions/site/routes');
  await expect(page.getByRole('alert').filter({ hasText: 'nothing-like-it' })).toBeVisible();
});

test('a plugin is installed by its file, removed and put back', async ({ page }) => {
  await page.goto('/plugins');
  await expect(page.getByRole('heading', { name: /^local/ })).toBeVisible();
  await page.getByRole('link', { name: 'Add plugin' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('File').setInputFiles({ name: 'no.so', mimeType: 'application/octet-stream', buffer: Buffer.from('no library') });
  await dialog.getByRole('button', { name: 'Install' }).click();
  await expect(dialog.getByRole('alert')).toBeVisible();
  await dialog.getByLabel('File').setInputFiles(process.env.CONJURE_PLUGIN_SKILL);
  await dialog.getByRole('button', { name: 'Install' }).click();
  await dialog.getByLabel('It may').check();
  await dialog.getByRole('button', { name: 'Install' }).click();
  await expect(dialog.getByText('Installed: log-fetcher')).toBeVisible({ timeout: 30_000 });
  await dialog.getByRole('link', { name: 'Show all plugins' }).click();
  const card = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: /^log-fetcher/ }) });
  await expect(card).toContainText('loaded');
  await card.getByText('May do').click();
  await expect(card.locator('details[open]')).toContainText(/Reach the hosts|Nothing/);
  await card.getByRole('button', { name: 'Load again: log-fetcher' }).click();
  await expect(page.getByText('Loaded again')).toBeVisible();
  await card.getByRole('link', { name: 'Remove log-fetcher' }).click();
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await expect(card).toHaveCount(0);
  await page.getByRole('link', { name: 'Put back log-fetcher' }).click();
  await dialog.getByRole('button', { name: 'Put back' }).click();
  await expect(card).toContainText('loaded');
  await expect(page.getByText(/log-fetcher put back/)).toBeVisible();
});

// The lines of a list in a dialog.
const lines = (dialog) => dialog.getByRole('listitem');

test('an upgrade and the way back say what a build may do and shows otherwise, and are agreed to', async ({ page, server }) => {
  await page.goto('/plugins');
  const dialog = page.getByRole('dialog');
  const choose = async (version) => {
    await page.getByRole('link', { name: 'Add plugin' }).click();
    await dialog.getByLabel('File').setInputFiles(greeter(server, version));
    await dialog.getByRole('button', { name: 'Install' }).click();
    await expect(dialog.getByText('It asks for what nobody has allowed yet')).toBeVisible({ timeout: 30_000 });
  };
  const agree = async (button) => {
    await dialog.getByLabel('It may').check();
    await dialog.getByRole('button', { name: button }).click();
  };
  const version = async () => {
    const { plugins } = await server.api('GET', '/plugins');
    return plugins.find(({ name }) => name === 'greeter')?.version;
  };

  // The first of its name: all that it asks for. Nothing is there before somebody says yes.
  await choose('0.1.0');
  await expect(lines(dialog)).toHaveText(['requests to lamp.example']);
  expect(await version()).toBeUndefined();
  await agree('Install');
  await expect(dialog.getByText('Installed: greeter 0.1.0')).toBeVisible({ timeout: 30_000 });
  await dialog.getByRole('link', { name: 'Show all plugins' }).click();

  // Another build: only what it asks for beyond the one before, tools among it.
  await choose('0.2.0');
  await expect(lines(dialog)).toHaveText(['the secret LAMP_KEY', 'to show a model tools that are new or look otherwise']);
  expect(await version()).toBe('0.1.0');
  await agree('Install');
  await expect(dialog.getByText('Installed: greeter 0.2.0')).toBeVisible({ timeout: 30_000 });
  for (const line of [
    'May do now: the secret LAMP_KEY', 'May do no more: requests to lamp.example',
    'New tools: bow', 'Changed tools: greet', 'Tools that are gone: wave',
  ]) await expect(lines(dialog).filter({ hasText: line })).toHaveCount(1);
  await dialog.getByRole('link', { name: 'Show all plugins' }).click();
  const card = page.locator('#plugins li.card').filter({ has: page.getByRole('heading', { name: /^greeter/ }) });
  await expect(card.getByRole('heading')).toHaveText('greeter 0.2.0');
  await card.getByText('May do', { exact: true }).click();
  await expect(card.locator('details[open]')).toContainText('Read the secrets: LAMP_KEY');
  await card.getByText('Tools and origin').click();
  await expect(card.locator('details[open]').last()).toContainText('bow');

  // Back: what the older build may do beyond this one is asked for as well.
  await page.getByRole('link', { name: 'Roll back greeter' }).click();
  await expect(dialog.getByLabel('Version').locator('option')).toHaveText(['What the last change took away', '0.1.0', '0.2.0']);
  await dialog.getByRole('button', { name: 'Put back' }).click();
  await expect(dialog.getByText('It asks for what nobody has allowed yet')).toBeVisible({ timeout: 30_000 });
  await expect(lines(dialog)).toHaveText(['requests to lamp.example', 'to show a model tools that are new or look otherwise']);
  expect(await version()).toBe('0.2.0');
  await agree('Put back');
  await expect(dialog).toHaveCount(0, { timeout: 30_000 });
  await expect(card.getByRole('heading')).toHaveText('greeter 0.1.0');
  const history = page.getByRole('region', { name: 'What was changed' }).getByRole('listitem');
  await expect(history).toHaveText([/greeter put back: 0\.2\.0 → 0\.1\.0$/, /greeter added: 0\.1\.0 → 0\.2\.0$/, /greeter added: 0\.1\.0$/]);
});

test('a plugin in a process of its own says which one that is while it is used', async ({ page, server, model, session }) => {
  await server.install(greeter(server, '0.1.0'));
  await page.goto('/plugins');
  const place = page.locator('[id^="plugin-place-greeter-"]');
  await expect(place).toContainText('in a process of its own');
  await session('site', { tools: { backend: [{ kind: 'native' }], policy: { allow: ['*'] } } });
  await model.calls('call_1', 'greeter_greet', { name: 'Ada' });
  await model.says('Greeted.', { hold: { gate: 'greeted' } });
  await server.api('POST', '/sessions/site/turns', { text: 'Greet Ada' });
  await model.reached('greeted');
  await page.getByRole('link', { name: 'Look again' }).click();
  await expect(place).toContainText(/in use by 1 instance, process \d+/);
  const [, pid] = /process (\d+)/.exec(await place.innerText());
  // There is such a process.
  expect(process.kill(Number(pid), 0)).toBe(true);
  await model.release('greeted');
});

test('a file that is no plugin is shown as failed while one looks', async ({ page, server }) => {
  await page.goto('/plugins');
  const { writeFileSync, renameSync } = await import('node:fs');
  writeFileSync(`${server.root}/tmp/part`, 'no library');
  renameSync(`${server.root}/tmp/part`, `${server.root}/plugins/libbroken.so`);
  await expect(page.getByRole('alert').filter({ hasText: 'libbroken.so' })).toBeVisible({ timeout: 20_000 });
});

test('usage says what was spent, by chat, model, tool and cause, and as CSV', async ({ page, server, model, session }) => {
  await session('site');
  await model.calls('call_1', 'local_bash_tool', { command: 'echo hello' });
  await model.says('Done.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'Greet the harbour master' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  await page.goto('/usage');
  await expect(page.locator('#usage-total')).toContainText('in 2 replies');
  await expect(page.getByRole('img', { name: /^Tokens a day/ })).toBeVisible();
  await expect(page.getByRole('region', { name: 'By chat' }).locator('table')).toContainText('Harbour Master');
  await expect(page.getByRole('region', { name: 'By model' }).locator('table')).toContainText('claude-mock');
  await expect(page.getByRole('region', { name: 'By tool' }).locator('table')).toContainText('local_bash_tool');
  await expect(page.getByRole('region', { name: 'By cause' }).locator('table')).toContainText('Definitions of tools');
  const download = page.waitForEvent('download');
  await page.getByRole('link', { name: 'CSV' }).click();
  const { readFileSync } = await import('node:fs');
  const text = readFileSync(await (await download).path(), 'utf8');
  expect(text.split('\r\n')[0]).toMatch(/^kind,name,replies,input/);
  for (const kind of ['day', 'thread', 'model', 'tool', 'cause', 'total']) expect(text).toContain(`\r\n${kind},`);
});

test('settings that are saved are in Routes at once, whoever saves them', async ({ page, server, session }) => {
  await session('site');
  await page.goto('/sessions/site/routes');
  const tool = page.getByRole('region', { name: 'Routing table' }).getByText('local_bash_tool');
  await expect(tool).toBeVisible();
  await server.api('PATCH', '/sessions/site', { tools: { backend: [{ kind: 'native' }] } });
  await expect(tool).toHaveCount(0);
  await page.getByRole('link', { name: 'Config', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('group', { name: 'Backends' }).getByLabel('local', { exact: true }).check();
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(tool).toBeVisible();
});
