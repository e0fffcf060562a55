// What the people who asked for the page will try, line by line, as they will do it.

import { existsSync, writeFileSync } from 'node:fs';

import { expect, test } from '../support/test.js';

// Says something as a person does.
async function say(page, text) {
  const field = page.getByLabel('Message');
  await field.fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(field).toHaveValue('');
}

// The text of a request to a model.
const asked = (request) => JSON.stringify(request.body);

test('the whole way: create, watch tools, switch, leave and come back, fork, new chat, rename', async ({ page, server, model, auths, session }) => {
  writeFileSync(`${server.work}/notes.txt`, 'the lamp is broken\n');
  await session('other');

  // Create a session: OpenAI as the filter, a saved auth, a model, a directory, a new chat, persona
  // and memory filled in.
  await page.goto('/');
  await page.getByRole('link', { name: 'New session' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name', { exact: true }).first().fill('lighthouse');
  await dialog.getByLabel('Provider').selectOption('openai');
  await expect(dialog.getByLabel('Saved auth').locator('option')).toHaveCount(1);
  await dialog.getByLabel('Model').fill('gpt-mock');
  await dialog.getByLabel('Working dir').fill(server.work);
  await dialog.getByLabel('New', { exact: true }).check();
  await dialog.getByLabel('Which').selectOption('new');
  const persona = dialog.getByRole('group', { name: 'Persona' });
  await persona.getByLabel('Name').fill('keeper');
  await persona.getByLabel('Text').fill('You keep a lighthouse.');
  await dialog.getByRole('group', { name: 'Memory' }).getByLabel('Text', { exact: true }).fill('Ada owns it.');
  await dialog.getByRole('button', { name: 'Create session' }).click();
  await expect(page).toHaveURL(`${server.url}/sessions/lighthouse`);
  await server.api('PATCH', '/sessions/lighthouse', {
    tools: { backend: [{ kind: 'local' }], policy: { allow: ['*'] } },
  });

  // Ask for a plan and watch tools run in the working directory.
  await model.calls('call_1', 'local_bash_tool', { command: 'cat notes.txt && touch seen.txt' }, { text: 'I look first.' });
  await model.says('The plan: **mend** the lamp.');
  await say(page, 'Make a plan for the lighthouse lamp');
  const card = page.locator('.call').filter({ hasText: 'local_bash_tool' });
  await expect(card).toContainText('Done');
  await card.locator('summary').click();
  await expect(card).toContainText('the lamp is broken');
  await expect(page.locator('article.model strong', { hasText: 'mend' })).toBeVisible();
  expect(existsSync(`${server.work}/seen.txt`)).toBe(true);
  const [first] = await model.requests();
  expect(asked(first)).toContain('You keep a lighthouse.');
  expect(asked(first)).toContain('Ada owns it.');
  const firstChat = await page.locator('#thread-label').textContent();

  // Config: Anthropic with another auth and model; go on with translated context and tool outputs.
  await page.getByRole('link', { name: 'Config', exact: true }).click();
  await dialog.getByLabel('Provider').selectOption('anthropic');
  await expect(dialog.getByLabel('Saved auth')).toContainText('work');
  await dialog.getByLabel('Model').fill('claude-mock');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.locator('#strip-provider')).toHaveText('anthropic');
  await expect(page.locator('#strip-model')).toHaveText('claude-mock');
  await model.says('I go on.');
  await say(page, 'Go on');
  await expect(page.getByText('I go on.')).toBeVisible();
  const second = (await model.requests()).at(-1);
  expect(second.path).toBe('/v1/messages');
  for (const said of ['the lamp is broken', 'I look first.', 'mend']) expect(asked(second)).toContain(said);

  // To another session while the first streams; come back and see its progress.
  await model.says('A long story of the sea, and its end.', { when: 'story', hold: { gate: 'sea', event: 5 }, delta: 6 });
  await model.says('Meanwhile.', { when: 'Are you' });
  await say(page, 'Tell a story');
  await model.reached('sea');
  await page.goto('/sessions/other');
  await say(page, 'Are you there?');
  await expect(page.getByText('Meanwhile.')).toBeVisible();
  await page.goto('/');
  await expect(page.locator('.card', { hasText: 'lighthouse' }).getByText('ACTIVE')).toBeVisible();
  await page.getByRole('link', { name: 'lighthouse', exact: true }).click();
  await expect(page.getByText(/A long/)).toBeVisible();
  await expect(page.getByText('and its end.')).toHaveCount(0);
  await model.release('sea');
  await expect(page.getByText('A long story of the sea, and its end.')).toBeVisible();

  // Fork the chat and try another way; both branches persist.
  const before = page.url();
  await page.getByRole('button', { name: 'Fork from here' }).first().click();
  await expect(page).not.toHaveURL(before);
  await model.says('Another way.');
  await say(page, 'Try another way');
  await expect(page.getByText('Another way.')).toBeVisible();
  await expect(page.getByText('and its end.')).toHaveCount(0);

  // A new chat has an automatic name; it is renamed in place, and the earlier one is still there.
  await page.getByRole('button', { name: 'Start New Chat' }).click();
  await expect(page.getByLabel('Message')).toBeFocused();
  await model.says('Paint it white.');
  await say(page, 'Which colour fits the lighthouse tower?');
  await expect(page.getByText('Paint it white.')).toBeVisible();
  const label = page.locator('#thread-label');
  await expect(label).toHaveText(/Colour.*Lighthouse/);
  await page.getByRole('button', { name: 'Rename' }).click();
  const field = page.getByLabel('Name of this chat');
  await field.fill('Not this');
  await field.press('Escape');
  await expect(label).toHaveText(/Colour/);
  await page.getByRole('button', { name: 'Rename' }).click();
  await field.fill('The tower');
  await field.press('Enter');
  await expect(label).toHaveText('The tower');
  const threads = page.getByRole('navigation', { name: 'Threads' });
  await expect(threads.getByRole('link')).toHaveCount(3);
  await threads.getByRole('link', { name: firstChat.trim(), exact: true }).first().click();
  await expect(page.getByText('A long story of the sea, and its end.')).toBeVisible();
});

test('two sessions stream at once, and one that is cancelled keeps what came', async ({ page, server, model, session }) => {
  await session('one');
  await session('two');
  for (const name of ['one', 'two']) {
    await model.says(`Slowly told by ${name}, to its end.`, { when: `tell ${name}`, hold: { gate: name, event: 5 }, delta: 6 });
    await page.goto(`/sessions/${name}`);
    await say(page, `tell ${name}`);
    await model.reached(name);
    await expect(page.getByText(/Slowly to/)).toBeVisible();
  }
  await page.goto('/');
  await expect(page.getByText('ACTIVE')).toHaveCount(2);
  await page.goto('/sessions/one');
  await page.getByRole('button', { name: 'Stop' }).click();
  await expect(page.getByRole('button', { name: 'Stop' })).toHaveCount(0);
  await expect(page.getByText(/Slowly to/)).toBeVisible();
  await expect(page.getByText('to its end')).toHaveCount(0);
  await page.goto('/sessions/two');
  await model.release('two');
  await expect(page.getByText('Slowly told by two, to its end.')).toBeVisible();
  const state = await server.api('GET', '/sessions/two');
  expect(state.state).toBe('idle');
});

test('a page that is closed in the middle of a stream misses nothing', async ({ page, context, model, session }) => {
  await session('site');
  await model.says('The beginning, the middle and the end.', { hold: { gate: 'middle', event: 5 }, delta: 6 });
  await page.goto('/sessions/site');
  const other = await context.newPage();
  await other.goto('/sessions/site');
  await say(other, 'Tell it');
  await model.reached('middle');
  await expect(other.getByText(/The beg/)).toBeVisible();
  await other.close();
  await model.release('middle');
  // Two windows agree, and a third that comes later.
  await expect(page.getByText('The beginning, the middle and the end.')).toBeVisible();
  const third = await context.newPage();
  await third.goto('/sessions/site');
  await expect(third.getByText('The beginning, the middle and the end.')).toHaveCount(1);
});

test('a server that is started again in the middle of a stream', async ({ page, server, model, session, expected }) => {
  expected.push(/Failed to load resource|net::ERR|ERR_CONNECTION/);
  await session('site');
  await model.says('Before the end of the server, and never after.', { hold: { gate: 'never', event: 5 }, delta: 6 });
  await page.goto('/sessions/site');
  await say(page, 'Tell it');
  await model.reached('never');
  await expect(page.getByText(/Before/)).toBeVisible();
  await server.stop();
  await expect(page.getByText('Connection lost')).toBeVisible();
  await server.start();
  await expect(page.getByText('Connection lost')).toBeHidden({ timeout: 20_000 });
  await expect(page.getByText(/Before/)).toHaveCount(1);
  await model.says('All is well.', { when: 'again' });
  await say(page, 'And again?');
  await expect(page.getByText('All is well.')).toBeVisible();
});

test('clearing a chat always asks, and keeps the chat', async ({ page, model, session }) => {
  await session('site');
  await model.says('Something.');
  await page.goto('/sessions/site');
  await say(page, 'Say something');
  await expect(page.getByText('Something.', { exact: true })).toBeVisible();
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Clear Current Chat…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Close' }).click();
  await expect(page.getByText('Something.', { exact: true })).toBeVisible();
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Clear Current Chat…' }).click();
  await dialog.getByRole('button', { name: /Clear/ }).click();
  await expect(page.getByText('Something.', { exact: true })).toHaveCount(0);
  await expect(page.getByRole('navigation', { name: 'Threads' }).getByRole('link')).toHaveCount(1);
});

test('a call that asks is decided where it stands', async ({ page, server, model, session }) => {
  await session('site', { tools: { backend: [{ kind: 'local' }], policy: { ask: ['*'] } } });
  await model.calls('call_1', 'local_bash_tool', { command: 'touch yes.txt' });
  await model.says('It is there.');
  await page.goto('/sessions/site');
  await say(page, 'Make a file');
  await page.getByRole('button', { name: 'Allow', exact: true }).click();
  await expect(page.getByText('It is there.')).toBeVisible();
  expect(existsSync(`${server.work}/yes.txt`)).toBe(true);
  await model.calls('call_2', 'local_bash_tool', { command: 'touch no.txt' });
  await model.says('Then not.');
  await say(page, 'Another');
  await expect(page.getByRole('button', { name: 'Deny' })).toBeVisible();
  // What says why not refuses with Enter too.
  await page.getByLabel('Why not').fill('not today');
  await page.getByLabel('Why not').press('Enter');
  await expect(page.getByText('Then not.')).toBeVisible();
  expect(asked((await model.requests()).at(-1))).toContain('not today');
  expect(existsSync(`${server.work}/no.txt`)).toBe(false);
  await model.calls('call_3', 'local_bash_tool', { command: 'touch no.txt' });
  await model.says('Neither.');
  await say(page, 'Again');
  await page.getByRole('button', { name: 'Deny' }).click();
  await expect(page.getByText('Neither.')).toBeVisible();
  expect(existsSync(`${server.work}/no.txt`)).toBe(false);
});

test('a call that is allowed before another one is decided about says so in every window', async ({ page, server, model, session, context }) => {
  await session('site', { tools: { backend: [{ kind: 'local' }], policy: { ask: ['*'] } } });
  await model.step({ content: ['one', 'two'].map((name) => (
    { type: 'tool_use', id: `call_${name}`, name: 'local_bash_tool', input: { command: `touch ${name}.txt` } })) });
  await model.says('Both are there.');
  await page.goto('/sessions/site');
  await say(page, 'Make two files');
  const other = await context.newPage();
  await other.goto('/sessions/site');
  await expect(other.getByRole('button', { name: 'Allow', exact: true })).toHaveCount(2);
  await page.locator('#call-call_two').getByRole('button', { name: 'Allow', exact: true }).click();
  for (const window of [page, other]) {
    await expect(window.locator('#call-call_two')).toContainText('Allowed, waits');
    await expect(window.getByRole('button', { name: 'Allow', exact: true })).toHaveCount(1);
  }
  await other.getByRole('button', { name: 'Allow', exact: true }).click();
  await expect(page.getByText('Both are there.')).toBeVisible();
  for (const name of ['one', 'two']) expect(existsSync(`${server.work}/${name}.txt`)).toBe(true);
});

test('follow-ups queue, run in order, and can be removed', async ({ page, model, session }) => {
  await session('site');
  await model.says('First done.', { when: 'first', hold: { gate: 'first' } });
  await model.says('Third done.', { when: 'third' });
  await page.goto('/sessions/site');
  await say(page, 'first');
  await model.reached('first');
  await say(page, 'second');
  const queue = page.getByRole('list', { name: 'Follow-ups that wait' });
  await expect(queue.getByRole('listitem')).toHaveCount(1);
  await say(page, 'third');
  await expect(queue.getByRole('listitem')).toHaveCount(2);
  await queue.getByRole('listitem').filter({ hasText: 'second' }).getByRole('button', { name: 'Remove' }).click();
  await expect(queue.getByRole('listitem')).toHaveCount(1);
  await model.release('first');
  await expect(page.getByText('Third done.')).toBeVisible();
  await expect(page.getByText('First done.')).toBeVisible();
});

test('an error stands in place and says what to do', async ({ page, model, session }) => {
  await session('site');
  await model.fails(401);
  await page.goto('/sessions/site');
  await say(page, 'Hello');
  await expect(page.locator('main')).toContainText(/key|auth/i);
  await expect(page.getByRole('button', { name: 'Stop' })).toHaveCount(0);
});

test('shortcuts lead where the overlay says', async ({ page, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  // A new chat has the cursor in its message.
  await expect(page.getByLabel('Message')).toBeFocused();
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  const overlay = page.getByRole('dialog', { name: 'Shortcuts' });
  await expect(overlay).toBeVisible();
  for (const keys of ['g n', 'g a', 'g d']) await expect(overlay.getByText(keys, { exact: true })).toBeVisible();
  await page.keyboard.press('Escape');
  await expect(overlay).toBeHidden();
  await page.locator('body').click({ position: { x: 700, y: 300 } });
  await page.keyboard.type('ga');
  await expect(page).toHaveURL(/\/auths$/);
  await page.keyboard.type('gd');
  await expect(page.getByRole('heading', { name: 'Sessions', level: 1 })).toBeVisible();
  await page.goBack();
  await expect(page).toHaveURL(/\/auths$/);
});
