// Summaries of the older part of a chat: asked for, refused, and taken back.

import { longChat } from '../support/stage.js';
import { expect, test } from '../support/test.js';

async function openDialog(page) {
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Summarise older messages…' }).click();
  return page.getByRole('dialog');
}

async function say(page, text) {
  const field = page.getByLabel('Message');
  await field.fill(text);
  await field.press('Enter');
  await expect(field).toHaveValue('');
}

const marks = (page) => page.locator('.mark').filter({ hasText: 'is summarised for the model' });
const takeBack = (page) => page.getByRole('button', { name: /^Take back the summary/ });

test('older messages are summarised when one asks, and the summary is taken back', async ({ page, context, server, model, session }) => {
  const thread = await longChat({ server, model, session }, 'site');
  await page.goto('/sessions/site');
  const other = await context.newPage();
  await other.goto('/sessions/site');
  const before = (await model.requests()).length;
  const dialog = await openDialog(page);
  await expect(dialog).toContainText('A model writes a summary');
  await expect(dialog).toContainText('Nothing is deleted');
  await expect(dialog).toContainText('costs tokens');
  expect((await model.requests()).length).toBe(before);

  await model.says('They counted to a *thousand*.');
  await dialog.getByRole('button', { name: 'Summarise' }).click();
  for (const window of [page, other]) {
    await expect(marks(window)).toHaveCount(1);
    await expect(takeBack(window)).toBeVisible();
  }
  await expect(page.locator('dialog[open]')).toHaveCount(0);
  await marks(page).locator('summary').click();
  await expect(marks(page).locator('em')).toHaveText('thousand');
  // All of it is there to be read, and the model reads the summary in its place.
  await expect(page.locator('article.person')).toHaveText([/Count to a thousand/, /And now\?/]);
  await model.says('On.');
  await say(page, 'Go on');
  await expect(page.getByText('On.', { exact: true })).toBeVisible();
  const asked = async () => JSON.stringify((await model.requests()).at(-1).body);
  expect(await asked()).toContain('They counted to a *thousand*.');
  expect(await asked()).not.toContain('call_site');

  await takeBack(page).click();
  for (const window of [page, other]) {
    await expect(window.getByText('The summary was taken back')).toBeVisible();
    await expect(takeBack(window)).toHaveCount(0);
  }
  await expect(marks(page)).toHaveCount(1);
  const { items } = await server.api('GET', `/threads/${thread}/folds`);
  expect(items.map(({ state }) => state)).toEqual(['unfolded']);
  await model.says('Still on.');
  await say(page, 'And further');
  await expect(page.getByText('Still on.', { exact: true })).toBeVisible();
  expect(await asked()).toContain('call_site');
  expect(await asked()).not.toContain('They counted to a *thousand*.');
});

test('what is not summarised says why in the dialog, and may be tried again', async ({ page, server, model, session }) => {
  await longChat({ server, model, session }, 'site');
  await session('short');
  await page.goto('/sessions/short');
  let dialog = await openDialog(page);
  await dialog.getByRole('button', { name: 'Summarise' }).click();
  await expect(dialog.getByRole('alert')).toContainText('there is nothing to summarise');

  await page.goto('/sessions/site');
  await model.says('A story of the sea.', { hold: { gate: 'sea' } });
  await say(page, 'Tell a story');
  await model.reached('sea');
  dialog = await openDialog(page);
  await dialog.getByRole('button', { name: 'Summarise' }).click();
  await expect(dialog.getByRole('alert')).toContainText('a turn runs');
  await expect(marks(page)).toHaveCount(0);
  await model.release('sea');
  await expect(page.getByText('A story of the sea.')).toBeVisible();
  await expect.poll(async () => (await server.api('GET', '/sessions/site')).state).toBe('idle');
  // The dialog stands, and the turn is over.
  await model.fails(401);
  await dialog.getByRole('button', { name: 'Summarise' }).click();
  await expect(dialog.getByRole('alert')).toContainText('the conversation is not summarised');
  await model.says('They counted.');
  await dialog.getByRole('button', { name: 'Summarise' }).click();
  await expect(marks(page)).toHaveCount(1);
});

test('a summary that somebody else took back says so where that was not seen', async ({ visitor, server, model, session, expected }) => {
  expected.push(/Failed to load resource: the server responded with a status of 409/);
  const thread = await longChat({ server, model, session }, 'site');
  await model.says('They counted.');
  await server.api('POST', `/threads/${thread}/compact`, {});
  // Nothing is told to a page without script.
  const page = await visitor({ javaScriptEnabled: false });
  await page.goto(await server.link());
  await page.goto('/sessions/site');
  await expect(takeBack(page)).toBeVisible();
  await server.api('POST', `/threads/${thread}/unfold`, {});
  const answer = page.waitForResponse((response) => response.url().includes('/unfold/'));
  await takeBack(page).click();
  expect((await answer).status()).toBe(409);
  await expect(page.getByText('is unfolded already')).toBeVisible();
  await page.goto('/sessions/site');
  await expect(takeBack(page)).toHaveCount(0);
});

test('without script a chat is summarised and taken back by pages of their own', async ({ visitor, server, model, session }) => {
  const thread = await longChat({ server, model, session }, 'site');
  const page = await visitor({ javaScriptEnabled: false });
  await page.goto(await server.link());
  const chat = `${server.url}/sessions/site/threads/${thread}`;
  await page.goto(`${chat}/summarise`);
  await model.says('They counted.');
  await page.getByRole('button', { name: 'Summarise' }).click();
  await expect(page).toHaveURL(chat);
  await takeBack(page).click();
  await expect(page).toHaveURL(chat);
  await expect(page.getByText('The summary was taken back')).toBeVisible();
  await expect(takeBack(page)).toHaveCount(0);
});
