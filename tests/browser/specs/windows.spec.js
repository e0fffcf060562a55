// What is done elsewhere to a chat that one looks at: by another window, and by another program.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { expect, test } from '../support/test.js';

const run = promisify(execFile);

test('two windows agree on a name and on a chat that is cleared, whoever does it', async ({ page, context, watch, server, model, session }) => {
  await session('site');
  await model.says('Something.');
  const { turn, thread } = await server.api('POST', '/sessions/site/turns', { text: 'Say something' });
  await server.api('GET', `/turns/${turn}?wait=20`);
  await page.goto('/sessions/site');
  const other = await context.newPage();
  await watch(other);
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
