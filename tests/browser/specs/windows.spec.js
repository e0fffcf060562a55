// What is done elsewhere to a chat that one looks at: by another window, and by another program.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { expect, test } from '../support/test.js';

const run = promisify(execFile);

test('two windows agree on a name and on a chat that is cleared, whoever does it', async ({ page, context, server, model, session }) => {
  await session('site');
  await model.says('Something.');
  const { turn, thread } = await server.api('POST', '/sessions/site/turns', { text: 'Say something' });
  await server.api('GET', `/turns/${turn}?wait=20`);
  await page.goto('/sessions/site');
  const other = await context.newPage();
  await other.goto('/sessions/site');
  await page.locator('#rename').click();
  await page.locator('#rename-label').fill('Named here');
  await page.locator('#rename-label').press('Enter');
  for (const window of [page, other]) await expect(window.locator('#thread-label')).toHaveText('Named here');
  // Another program does it, which only writes into the same database.
  const conjure = (...args) => run(process.env.CONJURE_BIN, args, { env: server.environment(), cwd: server.work });
  await conjure('thread', 'rename', thread, 'Named elsewhere');
  for (const window of [page, other]) {
    await expect(window.locator('#thread-label')).toHaveText('Named elsewhere');
    await expect(window.locator(`#thread-${thread}`)).toContainText('Named elsewhere');
  }
  await server.api('DELETE', `/threads/${thread}/entries`);
  for (const window of [page, other]) await expect(window.getByText('Nothing was said here yet.')).toBeVisible();
});

test('a follow-up that is edited keeps its place', async ({ page, model, session }) => {
  await session('site');
  await model.says('First done.', { when: 'first', hold: { gate: 'first' } });
  await model.says('Other done.', { when: 'other' });
  await model.says('Third done.', { when: 'third' });
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  for (const text of ['first', 'second', 'third']) {
    await message.fill(text);
    await message.press('Enter');
    await expect(message).toHaveValue('');
    if (text === 'first') await model.reached('first');
  }
  const waiting = page.getByRole('list', { name: 'Follow-ups that wait' }).getByRole('listitem');
  await expect(waiting).toContainText(['second', 'third']);
  await waiting.first().getByRole('link', { name: 'Edit' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Message').fill('other');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(waiting).toContainText(['other', 'third']);
  await model.release('first');
  await expect(page.getByText('Third done.')).toBeVisible();
  const said = page.locator('#conversation .person .said, #conversation .person .text');
  await expect(said).toHaveText(['first', 'other', 'third']);
});

// A session with two chats, of which the newer one is looked at, and what its page is told.
async function twoChats({ page, server, model, session }) {
  await session('site');
  await session('other');
  await model.says('All is well.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'How is it?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  await server.api('PATCH', `/threads/${said.thread}`, { label: 'The first' });
  const { thread } = await server.api('POST', '/sessions/site/thread', { kind: 'fork', thread: said.thread });
  await page.addInitScript(() => {
    window.told = '';
    const Plain = window.EventSource;
    window.EventSource = class extends Plain {
      constructor(url) {
        super(url);
        this.addEventListener('message', ({ data }) => { window.told += data; });
      }
    };
  });
  await page.goto('/sessions/site');
  await expect(page.getByRole('link', { name: 'The first', exact: true })).toBeVisible();
  const rename = async (label) => {
    await server.api('PATCH', `/threads/${thread.id}`, { label });
    await page.waitForFunction((label) => window.told.includes(label), label);
  };
  return { first: said.thread, rename };
}

test('a press is a click also where what is pressed would be replaced before its release', async ({ page, server, model, session }) => {
  const { first, rename } = await twoChats({ page, server, model, session });
  // By the key that presses a button.
  await page.getByRole('button', { name: 'Rename' }).focus();
  await page.keyboard.down(' ');
  await rename('Renamed once');
  await expect(page.locator('#thread-label')).not.toHaveText('Renamed once');
  await page.keyboard.up(' ');
  await expect(page.getByLabel('Name of this chat')).toBeVisible();
  await page.getByLabel('Name of this chat').press('Escape');
  // By a pointer.
  await page.getByRole('link', { name: 'The first', exact: true }).hover();
  await page.mouse.down();
  await rename('Renamed twice');
  await page.mouse.up();
  await expect(page).toHaveURL(new RegExp(`/threads/${first}$`));
});

test('a press that becomes no click holds nothing up', async ({ page, server, model, session }) => {
  const { rename } = await twoChats({ page, server, model, session });
  const button = page.getByRole('button', { name: 'Rename' });
  // The release of what is dragged, and the one behind a menu, may go elsewhere.
  for (const end of ['dragend', 'contextmenu']) {
    await button.hover();
    await page.mouse.down();
    await button.dispatchEvent(end);
    await rename(`Renamed behind ${end}`);
    await expect(page.locator('#thread-label')).toHaveText(`Renamed behind ${end}`);
    await page.mouse.move(0, 0);
    await page.mouse.up();
  }
  // With this key a press opens a menu on some systems.
  await button.hover();
  await page.keyboard.down('Control');
  await page.mouse.down();
  await rename('Renamed once more');
  await expect(page.locator('#thread-label')).toHaveText('Renamed once more');
  await page.mouse.move(0, 0);
  await page.mouse.up();
  await page.keyboard.up('Control');
});

test('the focus stays on a link whose list is replaced', async ({ page, server, model, session }) => {
  const { rename } = await twoChats({ page, server, model, session });
  const thread = page.getByRole('link', { name: 'The first', exact: true });
  await thread.focus();
  await rename('Renamed');
  await expect(page.locator('#thread-label')).toHaveText('Renamed');
  await expect(thread).toBeFocused();
  const sessions = page.getByRole('navigation', { name: 'Sessions' });
  const other = sessions.getByRole('link', { name: 'other', exact: true });
  await other.focus();
  await model.says('A long story.', { hold: { gate: 'story' } });
  await server.api('POST', '/sessions/site/turns', { text: 'Tell one' });
  await expect(sessions.getByRole('link', { name: /site/ })).toContainText('ACTIVE');
  await expect(other).toBeFocused();
  await model.release('story');
});

test('a chat that was only named is in the sidebar when one comes back', async ({ page, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  const newChat = async () => {
    const before = page.url();
    await page.getByRole('button', { name: 'Start New Chat' }).click();
    await page.waitForURL((url) => url.href !== before);
  };
  await newChat();
  await page.getByRole('button', { name: 'Rename' }).click();
  const field = page.getByLabel('Name of this chat');
  await field.fill('Plans');
  await field.press('Enter');
  await expect(page.locator('#thread-label')).toHaveText('Plans');
  await newChat();
  await expect(page.locator('#thread-label')).toHaveText('New chat');
  await page.getByRole('navigation', { name: 'Threads' }).getByRole('link', { name: 'Plans', exact: true }).click();
  await expect(page.locator('#thread-label')).toHaveText('Plans');
});

test('the sidebar says how it is with the other sessions', async ({ page, server, model, session }) => {
  await session('site');
  const { id } = await session('other', { tools: { backend: [{ kind: 'local' }], policy: { ask: ['*'] } } });
  await model.calls('call_1', 'local_bash_tool', { command: 'echo hello' });
  await model.says('Done.');
  await page.goto('/sessions/site');
  const other = page.getByRole('navigation', { name: 'Sessions' }).getByRole('link', { name: /^other/ });
  await expect(other).toHaveText('other');
  await server.api('POST', `/sessions/${id}/turns`, { text: 'Greet me' });
  await expect(other).toContainText('ASKS');
  // Only the list is another one.
  await page.evaluate(() => { window.threads = document.getElementById('threads'); });
  await server.api('POST', `/sessions/${id}/approvals/call_1`, { decision: 'allow' });
  await expect(other).toHaveText('other');
  expect(await page.evaluate(() => window.threads.isConnected)).toBe(true);
  await server.api('DELETE', `/sessions/${id}`);
  await expect(other).toHaveCount(0);
});

test('what is said while one looks at older entries leads to the newest, with it', async ({ page, server, model, session }) => {
  await session('site');
  await model.says('One.');
  const { turn, thread } = await server.api('POST', '/sessions/site/turns', { text: 'first' });
  await server.api('GET', `/turns/${turn}?wait=20`);
  const newest = `${server.url}/sessions/site/threads/${thread}`;
  await page.goto(`${newest}?before=3`);
  await expect(page.getByRole('link', { name: 'The newest entries' })).toBeVisible();
  await model.says('Two.');
  await page.getByLabel('Message').fill('second');
  await page.getByLabel('Message').press('Enter');
  await expect(page).toHaveURL(newest);
  await expect(page.getByText('Two.', { exact: true })).toBeVisible();
  await expect(page.getByLabel('Message')).toHaveValue('');
  await page.goto(`${newest}?before=3`);
  await model.says('Three.');
  await page.getByRole('button', { name: 'Go on' }).click();
  await expect(page).toHaveURL(newest);
  await expect(page.getByText('Three.', { exact: true })).toBeVisible();
});
