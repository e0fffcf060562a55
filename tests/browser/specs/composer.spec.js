// What happens between writing something and its being there.

import { expect, test } from '../support/test.js';

// Holds requests back until they are let go.
async function held(page, url) {
  let release;
  const until = new Promise((done) => { release = done; });
  await page.route(url, async (route) => {
    await until;
    await route.continue();
  });
  return release;
}

test('what is written while a message is on its way stays', async ({ page, model, session }) => {
  await session('site');
  await model.says('One.', { when: 'first' });
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  await message.fill('first');
  const release = await held(page, '**/say');
  await message.press('Enter');
  await message.fill('second');
  release();
  await expect(page.getByText('One.')).toBeVisible();
  await expect(page.locator('#composer')).not.toHaveAttribute('aria-busy', 'true');
  await expect(message).toHaveValue('second');
});

test('a message waits for the files that are on their way', async ({ page, model, session }) => {
  await session('site');
  await model.says('Seen.', { when: 'look' });
  await page.goto('/sessions/site');
  const release = await held(page, '**/attachments?*');
  await page.locator('#attach').setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('words') });
  const message = page.getByLabel('Message');
  await message.fill('look');
  await message.press('Enter');
  await expect(page.getByText('A file is still on its way.')).toBeVisible();
  await expect(message).toHaveValue('look');
  release();
  await expect(page.locator('#attached')).toContainText('a.txt');
  await message.press('Enter');
  await expect(page.getByText('Seen.')).toBeVisible();
  await expect(page.locator('#entries')).toContainText('a.txt');
  await expect(page.locator('#attached')).toBeEmpty();
});

test('what goes wrong in a dialog is said over it', async ({ page, model, session, expected }) => {
  expected.push(/Failed to load resource|net::ERR/);
  await session('site');
  await model.says('Something.');
  await page.goto('/sessions/site');
  await page.getByLabel('Message').fill('Say something');
  await page.getByLabel('Message').press('Enter');
  await expect(page.getByText('Something.', { exact: true })).toBeVisible();
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Clear Current Chat…' }).click();
  await page.route('**/clear', (route) => route.abort());
  await page.getByRole('dialog').getByRole('button', { name: /Clear/ }).click();
  const toast = page.locator('#toasts:popover-open .toast');
  await expect(toast).toContainText('could not be reached');
});

test('a page that slept while its chat was cleared is told so', async ({ page, server, model, session }) => {
  await session('site');
  await model.says('Something.');
  const { turn, thread } = await server.api('POST', '/sessions/site/turns', { text: 'Say something' });
  await server.api('GET', `/turns/${turn}?wait=20`);
  await page.goto('/sessions/site');
  await expect(page.getByText('Something.', { exact: true })).toBeVisible();
  const live = await page.locator('[data-stream]').getAttribute('data-stream');
  await server.api('DELETE', `/threads/${thread}/entries`);
  // A stream that begins now, for what the page shows, ends at once.
  const told = await page.request.get(live);
  expect(await told.text()).toContain('event: gone');
});

test('a follow-up that is edited keeps its files, and the old one is not said', async ({ page, model, session }) => {
  await session('site');
  await model.says('First done.', { when: 'first', hold: { gate: 'first' } });
  await model.says('Other done.', { when: 'other' });
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  await message.fill('first');
  await message.press('Enter');
  await model.reached('first');
  await expect(message).toHaveValue('');
  await page.locator('#attach').setInputFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('words') });
  await expect(page.locator('#attached')).toContainText('a.txt');
  await message.fill('second');
  await message.press('Enter');
  const waiting = page.getByRole('list', { name: 'Follow-ups that wait' }).getByRole('listitem');
  await expect(waiting).toContainText(['second']);
  await waiting.getByRole('link', { name: 'Edit' }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog).toContainText('with its 1 file');
  await dialog.getByLabel('Message').fill('other');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toBeHidden();
  await expect(waiting).toContainText(['other']);
  await expect(waiting).toHaveCount(1);
  await model.release('first');
  await expect(page.getByText('Other done.')).toBeVisible();
  await expect(page.getByText('First done.')).toBeVisible();
  await expect(page.locator('#entries')).toContainText('a.txt');
});

test('a message that is said otherwise in a fork takes the files along that are ticked', async ({ page, server, model, session }) => {
  await session('site');
  await model.says('Seen both.', { when: 'look at' });
  await model.says('Seen one.', { when: 'look again' });
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  for (const name of ['kept.txt', 'dropped.txt']) {
    await page.locator('#attach').setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from(`words of ${name}`) });
    await expect(page.locator('#attached')).toContainText(name);
  }
  await message.fill('look at these');
  await message.press('Enter');
  await expect(page.getByText('Seen both.')).toBeVisible();
  const { thread } = await server.api('GET', '/sessions/site');
  await page.locator('#entries').getByRole('link', { name: 'Edit and fork' }).first().click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Message').fill('look again');
  await dialog.getByLabel('dropped.txt').uncheck();
  await dialog.getByRole('button', { name: 'Fork and send' }).click();
  await expect(page.getByText('Seen one.')).toBeVisible();
  await expect(page.locator('#entries')).toContainText('kept.txt');
  await expect(page.locator('#entries')).not.toContainText('dropped.txt');
  const fork = await server.api('GET', '/sessions/site');
  const { items } = await server.api('GET', `/threads/${fork.thread.id}/files`);
  expect(items.map((file) => file.name)).toEqual(['kept.txt']);
  await page.goto(`/sessions/site/threads/${thread.id}`);
  await expect(page.locator('#entries')).toContainText('dropped.txt');
});

test('text that has a picture of itself beside it is pasted as text', async ({ page, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  const paste = (field, kinds) => page.evaluate(([field, kinds]) => {
    const clipboardData = new DataTransfer();
    for (const kind of kinds) {
      if (kind === 'text') clipboardData.setData('text/plain', 'a\tb');
      else clipboardData.items.add(new File(['x'], 'image.png', { type: 'image/png' }));
    }
    const event = new ClipboardEvent('paste', { clipboardData, bubbles: true, cancelable: true });
    document.querySelector(field).dispatchEvent(event);
    return event.defaultPrevented;
  }, [field, kinds]);
  expect(await paste('#message', ['text', 'image'])).toBe(false);
  expect(await paste('#rename-label', ['image'])).toBe(false);
  await expect(page.locator('#attached > *')).toHaveCount(0);
  expect(await paste('#message', ['image'])).toBe(true);
  await expect(page.locator('#attached > *')).toHaveCount(1);
});

test('a file with a long name stays inside the window', async ({ page, session }) => {
  await page.setViewportSize({ width: 390, height: 800 });
  await session('site');
  await page.goto('/sessions/site');
  const name = `${'Screenshot-of-the-quarterly-report-'.repeat(5)}.png`;
  await page.locator('#attach').setInputFiles({ name, mimeType: 'image/png', buffer: Buffer.from('x') });
  await expect(page.locator('#attached')).toContainText('Screenshot');
  expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(390);
});

test('a file is dropped into the conversation and said with the message', async ({ page, model, session }) => {
  await session('site');
  await model.says('Seen.');
  await page.goto('/sessions/site');
  const dataTransfer = await page.evaluateHandle(() => {
    const data = new DataTransfer();
    data.items.add(new File(['words'], 'dropped.txt', { type: 'text/plain' }));
    return data;
  });
  await page.locator('#conversation').dispatchEvent('drop', { dataTransfer });
  await expect(page.locator('#attached')).toContainText('dropped.txt');
  await page.getByLabel('Message').fill('look');
  await page.getByLabel('Message').press('Enter');
  await expect(page.getByText('Seen.')).toBeVisible();
  await expect(page.locator('#entries .person')).toContainText('dropped.txt');
});

test('code and answers are copied as they are', async ({ page, context, server, model, session }) => {
  await context.grantPermissions(['clipboard-read', 'clipboard-write']);
  await session('site');
  await model.says('Some code:\n\n```rust\nfn main() {\n    1 < 2;\n}\n```\n');
  const { turn } = await server.api('POST', '/sessions/site/turns', { text: 'Write some' });
  await server.api('GET', `/turns/${turn}?wait=20`);
  await page.goto('/sessions/site');
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  const answer = page.locator('#entries article.model');
  await answer.locator('figure').getByRole('button', { name: 'Copy' }).click();
  await expect.poll(copied).toBe('fn main() {\n    1 < 2;\n}');
  await answer.getByRole('button', { name: /^Copy entry/ }).click();
  await expect.poll(copied).toBe('Some code:\n\nfn main() {\n    1 < 2;\n}');
  await expect(answer.locator('figcaption')).toBeVisible();
});

test('a message that is refused in a fork leaves no fork behind, and stays in the form', async ({ visitor, page, server, model, session, expected }) => {
  // What a browser says of a form that was refused.
  expected.push(/Failed to load resource: the server responded with a status of 4/);
  await session('site');
  await model.says('Held.', { hold: { gate: 'first' } });
  const { thread } = await server.api('POST', '/sessions/site/turns', { text: 'first' });
  await model.reached('first');
  // No more wait than these.
  for (let waits = 0; waits < 100; waits += 1) await server.api('POST', '/sessions/site/turns', { text: `follow-up ${waits}` });
  const threads = async () => (await server.api('GET', '/threads')).items.map(({ id }) => id);
  const before = await threads();
  const refused = '100 messages wait in this session already';
  await page.goto(`/sessions/site/threads/${thread}`);
  const edit = page.getByRole('link', { name: 'Edit and fork' }).first();
  const alone = await edit.getAttribute('href');
  await edit.click();
  const dialog = page.getByRole('dialog');
  for (const text of ['Another first', 'Yet another first']) {
    await dialog.getByLabel('Message').fill(text);
    const answered = page.waitForResponse((answer) => answer.request().method() === 'POST');
    await dialog.getByRole('button', { name: 'Fork and send' }).click();
    await answered;
    await expect(dialog.locator('form')).not.toHaveAttribute('aria-busy');
    await expect(dialog.getByRole('alert')).toContainText(refused);
    await expect(dialog.getByRole('alert')).toHaveCount(1);
    await expect(dialog.getByLabel('Message')).toHaveValue(text);
  }
  expect(await threads()).toEqual(before);

  const plain = await visitor({ javaScriptEnabled: false });
  await plain.goto(await server.link());
  await plain.goto(`${server.url}${alone}`);
  await plain.getByLabel('Message').fill('A first without script');
  await plain.getByRole('button', { name: 'Fork and send' }).click();
  await expect(plain.getByRole('alert').filter({ hasText: refused })).toBeVisible();
  await expect(plain.getByLabel('Message')).toHaveValue('A first without script');

  expect(await threads()).toEqual(before);
  expect((await server.api('GET', '/sessions/site')).thread.id).toBe(thread);
  await server.api('POST', '/sessions/site/cancel', { drop_queued: true });
});

test('a follow-up that began before its change was saved says so, and the change stays in the form', async ({ page, model, session }) => {
  await session('site');
  await model.says('First done.', { when: 'first', hold: { gate: 'first' } });
  await model.says('Second done.', { when: 'second' });
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  await message.fill('first');
  await message.press('Enter');
  await model.reached('first');
  await expect(message).toHaveValue('');
  await message.fill('second');
  await message.press('Enter');
  const waiting = page.getByRole('list', { name: 'Follow-ups that wait' }).getByRole('listitem');
  await expect(waiting).toContainText(['second']);
  await waiting.getByRole('link', { name: 'Edit' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Message').fill('otherwise');
  await model.release('first');
  await expect(page.getByText('Second done.')).toBeVisible();
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog.getByRole('alert')).toContainText('waits no more');
  await expect(dialog.getByLabel('Message')).toHaveValue('otherwise');
});
