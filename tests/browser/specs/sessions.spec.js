// The dashboard, and the dialogs that create, configure and delete a session.

import { expect, test } from '../support/test.js';

test('a session is created with everything filled in', async ({ page, server, auths }) => {
  await page.goto('/');
  await page.getByRole('link', { name: 'New session' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name', { exact: true }).first().fill('lighthouse');
  // The provider filters the saved auths and chooses nothing else.
  const auth = dialog.getByLabel('Saved auth');
  await expect(auth.locator('option')).toHaveCount(2);
  await dialog.getByLabel('Provider').selectOption('openai');
  await expect(auth.locator('option')).toHaveCount(1);
  await expect(auth).toContainText('open');
  // The models are those of that auth's provider.
  await expect(dialog.getByText('4 models of this provider')).toBeVisible();
  await expect(dialog.locator('#new-models option').first()).toHaveAttribute('value', /mock/);
  await dialog.getByLabel('Model').fill('gpt-mock');
  await dialog.getByLabel('Working dir').fill(server.work);
  await expect(dialog.getByLabel('New', { exact: true })).toBeChecked();
  // A persona that is added to the list from here.
  await dialog.getByLabel('Which').selectOption('new');
  const persona = dialog.getByRole('group', { name: 'Persona' });
  await persona.getByLabel('Name').fill('keeper');
  await persona.getByLabel('Text').fill('You keep a lighthouse.');
  const memory = dialog.getByRole('group', { name: 'Memory' });
  await memory.getByLabel('Text', { exact: true }).fill('Ada owns it.');
  await dialog.getByRole('button', { name: 'Create session' }).click();

  await expect(page).toHaveURL(`${server.url}/sessions/lighthouse`);
  const made = await server.api('GET', '/sessions/lighthouse');
  expect(made.auth).toMatchObject({ name: 'open', provider: 'openai' });
  expect(made).toMatchObject({ model: 'gpt-mock', working_dir: server.work });
  expect(made.persona).toEqual({ name: 'keeper', version: '1', persona_text: 'You keep a lighthouse.' });
  expect(made.memory).toEqual({ memory_text: 'Ada owns it.' });
  const { items } = await server.api('GET', '/personas');
  expect(items.map(({ name }) => name)).toEqual(['keeper']);
});

test('what is wrong stands at its field, and what was filled in stays', async ({ page, auths }) => {
  await page.goto('/');
  await page.getByRole('link', { name: 'New session' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Model').fill('claude-mock');
  await dialog.getByLabel('Working dir').fill('/no/such/place');
  const memory = dialog.getByRole('group', { name: 'Memory' });
  await memory.getByText('Advanced').click();
  await memory.getByLabel('Memory as JSON').fill('{"a": 1}');
  await dialog.getByRole('button', { name: 'Create session' }).click();
  await expect(dialog.getByLabel('Working dir')).toHaveAttribute('aria-invalid', 'true');
  await expect(dialog.getByText('/no/such/place')).toBeVisible();
  await expect(dialog.getByLabel('Model')).toHaveValue('claude-mock');
  await expect(memory.getByLabel('Memory as JSON')).toHaveValue('{"a": 1}');
  await memory.getByLabel('Memory as JSON').fill('{"a" 1}');
  await dialog.getByRole('button', { name: 'Create session' }).click();
  await expect(memory.getByText('is no JSON')).toBeVisible();
});

test('among many sessions what was used last comes first, and words find the others', async ({ page, server, session }) => {
  for (let at = 0; at < 60; at += 1) await session(`team-${at}`);
  await server.api('PATCH', '/sessions/team-3', { model: 'claude-mock-2' });
  await page.goto('/');
  const cards = page.locator('#sessions > li');
  await expect(cards).toHaveCount(48);
  await expect(cards.first()).toContainText('team-3');
  await page.getByRole('link', { name: 'More sessions' }).click();
  await expect(cards).toHaveCount(12);
  await page.getByRole('link', { name: 'The latest sessions' }).click();
  await page.getByRole('searchbox', { name: 'Find a session' }).fill('TEAM-4');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/q=TEAM-4/);
  await expect(cards).toHaveCount(11);
  // One that comes is shown if it has the words.
  await session('team-47-b');
  await expect(cards).toHaveCount(12);
  await session('another');
  await server.api('PATCH', '/sessions/team-40', { model: 'claude-mock-3' });
  await expect(page.locator('#sessions')).toContainText('claude-mock-3');
  await expect(cards).toHaveCount(12);
  await page.goto('/?q=nobody');
  await expect(page.getByText('No session has these words.')).toBeVisible();
  await page.getByRole('link', { name: 'Show all' }).click();
  await expect(cards).toHaveCount(48);
  // The sidebar has the one that is looked at, too.
  await page.goto('/sessions/team-0');
  const listed = page.getByRole('navigation', { name: 'Sessions' }).getByRole('link');
  await expect(listed).toHaveCount(13);
  await expect(listed.last()).toHaveText('team-0');
  await expect(listed.last()).toHaveAttribute('aria-current', 'true');
});

test('a session goes on with a chat that there is, or with a fork of it', async ({ page, server, model, session }) => {
  await session('first');
  await model.says('The lamp is broken.');
  const said = await server.api('POST', '/sessions/first/turns', { text: 'What is wrong here?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  for (const [kind, name] of [['Existing', 'second'], ['Fork', 'third']]) {
    await page.goto('/');
    await page.getByRole('link', { name: 'New session' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Name', { exact: true }).first().fill(name);
    await dialog.getByLabel('Model').fill('claude-mock');
    await dialog.getByLabel('Working dir').fill(server.work);
    await dialog.getByLabel(kind, { exact: true }).check();
    await dialog.getByLabel('Chat', { exact: true }).selectOption({ index: 0 });
    await dialog.getByRole('button', { name: 'Create session' }).click();
    await expect(page).toHaveURL(`${server.url}/sessions/${name}`);
  }
  expect((await server.api('GET', '/sessions/second')).thread.id).toBe(said.thread);
  const fork = await server.api('GET', '/sessions/third');
  const { parent_thread_id } = await server.api('GET', `/threads/${fork.thread.id}`);
  expect(parent_thread_id).toBe(said.thread);
});

test('a card says ACTIVE while a reply streams, without being loaded anew', async ({ page, server, model, session }) => {
  await session('site');
  await page.goto('/');
  const card = page.getByRole('listitem').filter({ has: page.getByRole('link', { name: 'site', exact: true }) });
  await expect(card).toBeVisible();
  await expect(card.getByText('ACTIVE')).toHaveCount(0);
  await model.says('A long story of the sea.', { hold: { gate: 'sea' } });
  await server.api('POST', '/sessions/site/turns', { text: 'Tell a story' });
  await model.reached('sea');
  await expect(card.getByText('ACTIVE')).toBeVisible();
  await model.release('sea');
  await expect(card.getByText('ACTIVE')).toHaveCount(0);
  await expect(card).toContainText('1 turn');
  // A session that somebody else makes is there as well, and goes when they delete it.
  await session('other');
  await expect(page.getByRole('link', { name: 'other', exact: true })).toBeVisible();
  await server.api('DELETE', '/sessions/other');
  await expect(page.getByRole('link', { name: 'other', exact: true })).toHaveCount(0);
});

for (const keeps of [true, false]) {
  test(`deleting a session asks about its chat and ${keeps ? 'keeps' : 'deletes'} it`, async ({ page, server, session }) => {
    const { thread } = await session('site');
    await page.goto('/');
    await page.getByRole('link', { name: 'Delete site' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel(keeps ? /Keep the chat/ : /Delete the chat too/).check();
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await expect(page.getByText('There is no session yet')).toBeVisible();
    const { items } = await server.api('GET', '/threads');
    expect(items.map(({ id }) => id)).toEqual(keeps ? [thread.id] : []);
  });
}

test('the configuration saves in place, and says before what will change', async ({ page, server, model, session }) => {
  await session('site');
  await model.says('Fine.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'How is it?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  await page.goto('/');
  await page.evaluate(() => { window.same = true; });
  await page.getByRole('link', { name: 'Config of site' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Model')).toHaveValue('claude-mock');
  const report = dialog.locator('#config-report');
  await dialog.getByRole('button', { name: 'What will change?' }).click();
  await expect(report).toContainText('Nothing: all fields are as the session has them');
  await dialog.getByLabel('Provider').selectOption('openai');
  await expect(dialog.getByLabel('Model')).toHaveValue('');
  await dialog.getByLabel('Model').fill('gpt-mock');
  await dialog.getByRole('button', { name: 'What will change?' }).click();
  await expect(report).toContainText('The model is another one');
  await expect(report).toContainText(/prompt cache is lost/);
  await dialog.getByRole('group', { name: 'Tools', exact: true }).getByLabel('Ask').fill('local_bash_tool');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByText('openai · gpt-mock')).toBeVisible();
  expect(await page.evaluate(() => window.same)).toBe(true);
  const now = await server.api('GET', '/sessions/site');
  expect(now.auth.name).toBe('open');
  expect(now.tools.policy).toEqual({ allow: ['*'], ask: ['local_bash_tool'] });
  expect(now.tools.backend).toEqual([{ kind: 'local' }]);
});

test('the configuration keeps the chat, or goes on with another one, a new one or a fork', async ({ page, server, model, session }) => {
  const other = await session('other');
  await server.api('PATCH', `/threads/${other.thread.id}`, { label: 'The other chat' });
  await session('site');
  await model.says('The lamp is broken.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'What is wrong here?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  const dialog = page.getByRole('dialog');
  const history = dialog.getByRole('group', { name: 'Chat history' });
  const choose = async (kind) => {
    await page.goto('/sessions/site');
    await page.getByRole('link', { name: 'Config', exact: true }).click();
    await expect(history.getByRole('radio', { name: /^As it is/ })).toBeChecked();
    await history.getByLabel(kind, { exact: true }).check();
  };
  const save = () => dialog.getByRole('button', { name: 'Save', exact: true }).click();
  const now = async () => (await server.api('GET', '/sessions/site')).thread.id;

  await choose('Existing');
  await history.getByLabel('Chat', { exact: true }).selectOption(other.thread.id);
  await dialog.getByRole('button', { name: 'What will change?' }).click();
  await expect(dialog.locator('#config-report')).toContainText('The chat is another one');
  expect(await now()).toBe(said.thread);
  await save();
  await expect(page.getByRole('heading', { name: 'The other chat' })).toBeVisible();
  expect(await now()).toBe(other.thread.id);

  // What is wrong with the choice stands there, also where the rest was saved with it.
  await choose('Fork');
  await history.getByLabel('Chat', { exact: true }).selectOption(said.thread);
  await history.getByLabel('Fork behind entry').fill('999');
  await dialog.getByLabel('Model').fill('claude-other');
  await save();
  await expect(history.getByLabel('Chat', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  expect(await now()).toBe(other.thread.id);
  await history.getByLabel('Fork behind entry').fill('');
  await save();
  await expect(page.getByText('The lamp is broken.')).toBeVisible();
  expect((await server.api('GET', '/sessions/site')).model).toBe('claude-other');
  const fork = await now();
  expect((await server.api('GET', `/threads/${fork}`)).parent_thread_id).toBe(said.thread);

  await choose('New');
  await save();
  await expect(page.getByText('Nothing was said here yet.')).toBeVisible();
  expect([said.thread, other.thread.id, fork]).not.toContain(await now());
});

test('while a reply streams, a change holds now or on the next turn, as the person says', async ({ page, server, model, session }) => {
  for (const way of ['now', 'next']) {
    await session(way);
    await model.says('An old story that goes on and on.', { when: way, hold: { gate: way } });
    await model.says('A new story.', { when: way === 'now' ? way : 'again' });
    const { turn, thread } = await server.api('POST', `/sessions/${way}/turns`, { text: `Tell it ${way}` });
    await model.reached(way);
    await page.goto('/');
    await page.getByRole('link', { name: `Config of ${way}` }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Model').fill('claude-other');
    await expect(dialog.getByRole('button', { name: 'Save', exact: true })).toHaveCount(0);
    const name = way === 'now' ? 'Apply now (restart stream)' : 'Apply on next turn (defer)';
    await expect(dialog.getByRole('button', { name })).toBeVisible();
    // Enter in a field stops nothing that streams.
    if (way === 'now') await dialog.getByRole('button', { name }).click();
    else await dialog.locator('#config-name').press('Enter');
    await expect(dialog).toHaveCount(0);
    await model.release(way);
    await server.api('GET', `/turns/${turn}?wait=20`);
    if (way === 'next') {
      const again = await server.api('POST', '/sessions/next/turns', { text: 'again' });
      await server.api('GET', `/turns/${again.turn}?wait=20`);
    }
    const { entries } = await server.api('GET', `/threads/${thread}/entries`);
    const replies = entries.filter(({ message }) => message?.role === 'assistant');
    const told = replies.map(({ message }) => [message._meta.model, message.content.map(({ text }) => text).join('')]);
    // Now: what had come is kept, and the new model answers. Next: the old one comes to its end first.
    expect(told.at(-1)).toEqual(['claude-other', 'A new story.']);
    expect(told[0][0]).toBe('claude-mock');
    expect(told[0][1]).toMatch(way === 'now' ? /^An old/ : /^An old story that goes on and on\.$/);
    if (way === 'now') expect(told[0][1]).not.toContain('on and on.');
  }
});

test('a change that stands against another one says so', async ({ page, server, session }) => {
  await session('site');
  await page.goto('/');
  await page.getByRole('link', { name: 'Config of site' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByLabel('Model')).toHaveValue('claude-mock');
  await server.api('PATCH', '/sessions/site', { model: 'claude-theirs' });
  await dialog.getByLabel('Model').fill('claude-ours');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog.getByRole('alert')).toContainText('Somebody else changed this session');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  expect((await server.api('GET', '/sessions/site')).model).toBe('claude-ours');
});

test('what others saved is not put over unseen, also where a form was refused, or where only its chat is another one', async ({ page, server, session }) => {
  const other = await session('other');
  await server.api('PATCH', `/threads/${other.thread.id}`, { label: 'The other chat' });
  await session('site');
  const dialog = page.getByRole('dialog');
  const open = async () => {
    await page.goto('/sessions/site');
    await page.getByRole('link', { name: 'Config', exact: true }).click();
    await expect(dialog.getByLabel('Model')).not.toHaveValue('');
  };
  const save = () => dialog.getByRole('button', { name: 'Save', exact: true }).click();
  const changed = dialog.getByRole('alert').filter({ hasText: 'Somebody else changed this session' });

  await open();
  await server.api('PATCH', '/sessions/site', { model: 'claude-theirs' });
  // Refused by the form itself: no entry has such a number.
  const history = dialog.getByRole('group', { name: 'Chat history' });
  await history.getByLabel('Fork', { exact: true }).check();
  await history.getByLabel('Fork behind entry').fill('1e3');
  await save();
  await expect(history.getByLabel('Chat', { exact: true })).toHaveAttribute('aria-invalid', 'true');
  await history.getByRole('radio', { name: /^As it is/ }).check();
  await save();
  await expect(changed).toBeVisible();
  expect((await server.api('GET', '/sessions/site')).model).toBe('claude-theirs');

  await open();
  const { thread } = await server.api('PATCH', '/sessions/site', { model: 'claude-mine' });
  await dialog.getByLabel('Model').fill('claude-mine');
  await history.getByLabel('Existing', { exact: true }).check();
  await history.getByLabel('Chat', { exact: true }).selectOption(other.thread.id);
  await save();
  await expect(changed).toBeVisible();
  expect((await server.api('GET', '/sessions/site')).thread.id).toBe(thread.id);
  await save();
  await expect(dialog).toHaveCount(0);
  expect((await server.api('GET', '/sessions/site')).thread.id).toBe(other.thread.id);
});

test('without script a provider filters the saved auths, and what was filled in stays', async ({ visitor, server, session }) => {
  await session('site');
  const page = await visitor({ javaScriptEnabled: false });
  await page.goto(await server.link());
  for (const [url, where] of [['/sessions/site/config', 'config'], ['/new', 'new']]) {
    await page.goto(`${server.url}${url}`);
    await page.locator(`#${where}-name`).fill('renamed');
    await page.getByLabel('Provider').selectOption('openai');
    await page.getByRole('button', { name: 'Filter' }).click();
    await expect(page.getByLabel('Saved auth').locator('option')).toHaveText([/^open /]);
    await expect(page.locator(`#${where}-name`)).toHaveValue('renamed');
  }
  await page.goto(`${server.url}/sessions/site/config`);
  await page.getByLabel('Provider').selectOption('openai');
  await page.getByRole('button', { name: 'Filter' }).click();
  await page.getByLabel('Model').fill('gpt-mock');
  await page.getByRole('button', { name: 'Save' }).click();
  expect((await server.api('GET', '/sessions/site')).auth.name).toBe('open');
});

test('a session that is used moves before the others', async ({ page, server, model, session }) => {
  for (const name of ['first', 'second', 'third']) await session(name);
  await page.goto('/');
  const names = page.locator('#sessions h2');
  await expect(names).toHaveText(['third', 'second', 'first']);
  await model.says('Here.');
  const { turn } = await server.api('POST', '/sessions/first/turns', { text: 'Where are you?' });
  await server.api('GET', `/turns/${turn}?wait=20`);
  await expect(names).toHaveText(['first', 'third', 'second']);
});
