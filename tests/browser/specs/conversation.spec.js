// A conversation: its pictures and files, its forks and how one gets about in it, its keys and its looks.

import { writeFileSync } from 'node:fs';

import { expect, test } from '../support/test.js';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

async function say(page, text) {
  const field = page.getByLabel('Message');
  await field.fill(text);
  await field.press('Enter');
  await expect(field).toHaveValue('');
}

test('pictures are shown in what a person says and on the card of the call that made them', async ({ page, server, model, session }) => {
  writeFileSync(`${server.root}/tmp/pixel.png`, Buffer.from(PIXEL, 'base64'));
  await session('site');
  await model.calls('call_1', 'local_bash_tool', { command: `echo ${PIXEL} | base64 -d > drawn.png` });
  await model.says('Drawn.');
  await page.goto('/sessions/site');
  await page.locator('#attach').setInputFiles(`${server.root}/tmp/pixel.png`);
  await expect(page.locator('#attached')).toContainText('pixel.png');
  await say(page, 'Draw this');
  await expect(page.getByText('Drawn.', { exact: true })).toBeVisible();
  // As it came, and as one finds it when one comes back.
  for (const again of [false, true]) {
    if (again) await page.reload();
    for (const [where, name] of [['article.person', 'pixel.png'], ['#call-call_1', 'drawn.png']]) {
      const image = page.locator(where).getByRole('img', { name });
      await expect(image).toBeVisible();
      await expect.poll(() => image.evaluate((one) => one.naturalWidth), name).toBe(1);
      // It leads to the file, whose bytes are those of the picture.
      const file = await page.request.get(await page.locator(where).locator('a', { has: page.getByRole('img', { name }) }).getAttribute('href'));
      expect((await file.body()).toString('base64')).toBe(PIXEL);
      expect(file.headers()['content-type']).toBe('image/png');
    }
  }
});

test('a file is previewed under its name, and a long result is shown to its end', async ({ page, server, model, session }) => {
  await session('site');
  const commands = [`printf 'The lamp is <b>lit</b>.\\nAll is well.\\n' > 'the log.txt'`, 'seq 1 3000'];
  await model.step({ content: commands.map((command, at) => (
    { type: 'tool_use', id: `call_${at}`, name: 'local_bash_tool', input: { command } })) });
  await model.says('Written.');
  await page.goto('/sessions/site');
  await say(page, 'Write it down');
  await expect(page.getByText('Written.')).toBeVisible();
  const { thread } = await server.api('GET', '/sessions/site');
  const { items } = await server.api('GET', `/threads/${thread.id}/files`);
  const file = items.find(({ name }) => name === 'the log.txt');

  const dialog = page.getByRole('dialog');
  await page.locator('.call-entry li').filter({ hasText: 'the log.txt' }).getByRole('link', { name: 'Preview' }).click();
  await expect(dialog.locator('pre')).toHaveText('The lamp is <b>lit</b>.\nAll is well.');
  await expect(dialog.locator('h2, figcaption').filter({ hasText: 'the log.txt' })).not.toHaveCount(0);
  await expect(dialog).not.toContainText(file.id);
  const coming = page.waitForEvent('download');
  await dialog.getByRole('link', { name: 'Download' }).click();
  expect((await coming).suggestedFilename()).toBe('the log.txt');
  await dialog.getByRole('button', { name: 'Close' }).click();

  const card = page.locator('#call-call_1');
  await card.locator('summary').click();
  await expect(card.locator('pre.output')).toContainText('1000');
  await expect(card.locator('pre.output')).not.toContainText('3000');
  await card.getByRole('link', { name: 'Show all' }).click();
  await expect(dialog.locator('pre')).toContainText('3000');
  const numbers = (await dialog.locator('pre').innerText()).split('\n').filter((line) => /^\d+$/.test(line));
  expect([numbers[0], numbers.length, numbers.at(-1)]).toEqual(['1', 3000, '3000']);
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
});

test('forks stand below what they were forked from, and one walks up and down', async ({ page, server, model, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  const active = async () => (await server.api('GET', '/sessions/site')).thread.id;
  const line = [];
  for (const text of ['root', 'branch', 'twig']) {
    if (line.length > 0) {
      const before = page.url();
      // Behind the newest turn.
      await page.getByRole('button', { name: 'Fork from here' }).last().click();
      await page.waitForURL((url) => url.href !== before);
    }
    await model.says(`Words of the ${text}.`);
    await say(page, `Say something of the ${text}`);
    await expect(page.getByText(`Words of the ${text}.`)).toBeVisible();
    await expect(page.locator('.turn-end')).toHaveCount(line.length + 1);
    line.push(await active());
  }
  expect(new Set(line).size).toBe(3);
  await page.reload();
  // One in another, as deep as they were forked.
  const threads = page.getByRole('navigation', { name: 'Threads' });
  await expect(threads.getByRole('link')).toHaveCount(3);
  const within = await Promise.all(line.map((id) => threads.locator(`#thread-${id}`).evaluate((link) => {
    const above = link.closest('li').parentElement.closest('li');
    return [above && above.querySelector('a').id, link.querySelector('.fork') !== null];
  })));
  expect(within).toEqual([[null, false], [`thread-${line[0]}`, true], [`thread-${line[1]}`, true]]);
  const left = (id) => threads.locator(`#thread-${id}`).evaluate((link) => link.getBoundingClientRect().left);
  expect(await left(line[1])).toBeGreaterThan(await left(line[0]));
  expect(await left(line[2])).toBeGreaterThan(await left(line[1]));
  await expect(threads.locator(`#thread-${line[2]}`)).toContainText('active');

  // Up to the parent, up to the root, and down again: each shows what was said up to it and no more.
  for (const at of [1, 0, 2]) {
    await threads.locator(`#thread-${line[at]}`).click();
    await expect(page).toHaveURL(new RegExp(`/threads/${line[at]}$`));
    await expect(threads.locator('[aria-current=page]')).toHaveId(`thread-${line[at]}`);
    for (const [depth, text] of ['root', 'branch', 'twig'].entries()) {
      await expect(page.locator('#entries').getByText(`Words of the ${text}.`)).toHaveCount(depth <= at ? 1 : 0);
    }
  }
});

test('a chat is replayed, and said to another model', async ({ page, server, model, session }) => {
  await session('site');
  await model.says('The lamp is lit.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'And the lamp?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  const asked = (await model.requests()).length;
  await page.goto('/sessions/site');
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Replay', exact: true }).click();
  await expect(page).toHaveURL(`${server.url}/sessions/site/threads/${said.thread}/replay`);
  await expect(page.locator('#replay-summary')).toContainText('1 request and 0 calls replayed: nothing is otherwise.');
  // The record has no requests to compare with.
  await expect(page.locator('#replay-steps').getByRole('row', { name: /Request to anthropic\/claude-mock/ })).toContainText('not compared');
  await expect(page.locator('#replay-steps')).not.toContainText('as it was');
  await page.getByLabel('Provider', { exact: true }).selectOption('gemini');
  await page.locator('#replay-go').click();
  await expect(page.getByText('name a model of that provider')).toBeVisible();
  await expect(page.getByLabel('Provider', { exact: true })).toHaveValue('gemini');
  await page.getByLabel('Model', { exact: true }).fill('gemini-x');
  await page.locator('#replay-go').click();
  await expect(page.getByRole('region', { name: 'Said to gemini/gemini-x' })).toBeVisible();
  // Nobody was asked, and nothing was written.
  expect((await model.requests()).length).toBe(asked);
  expect((await server.api('GET', `/threads/${said.thread}`)).turns).toBe(1);
  await page.locator('#replay-steps').getByRole('link').first().click();
  await expect(page.getByText('The lamp is lit.')).toBeVisible();
});

test('keys begin a new chat and lead to the auths and the dashboard, and write in a field', async ({ page, server, session }) => {
  const { thread } = await session('site');
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  await expect(message).toBeFocused();
  // In a field they are letters.
  await page.keyboard.type('gn');
  await expect(message).toHaveValue('gn');
  expect((await server.api('GET', '/sessions/site')).thread.id).toBe(thread.id);
  await message.fill('');
  await page.keyboard.press('Escape');
  const before = page.url();
  await page.keyboard.type('gn');
  await page.waitForURL((url) => url.href !== before);
  await expect(message).toBeFocused();
  expect(page.url()).toContain((await server.api('GET', '/sessions/site')).thread.id);
  await page.keyboard.press('Escape');
  await page.keyboard.type('ga');
  await expect(page).toHaveURL(`${server.url}/auths`);
  await page.keyboard.type('gd');
  await expect(page).toHaveURL(`${server.url}/`);
});

test('whoever wants less motion sees none', async ({ page, model, session }) => {
  await session('site');
  await model.says('A long story of the sea.', { hold: { gate: 'sea' } });
  await page.goto('/sessions/site');
  await say(page, 'Tell a story');
  await model.reached('sea');
  await expect(page.locator('.pulse')).toBeVisible();
  const moving = () => page.evaluate(() => [...document.querySelectorAll('*')].flatMap((one) => {
    const { animationName, transitionProperty, transitionDuration, scrollBehavior } = getComputedStyle(one);
    const slides = transitionProperty !== 'none' && /[1-9]/.test(transitionDuration);
    return animationName !== 'none' || slides || scrollBehavior === 'smooth' ? [one.outerHTML.slice(0, 90)] : [];
  }));
  await page.emulateMedia({ reducedMotion: 'no-preference' });
  await expect.poll(async () => (await moving()).length).toBeGreaterThan(0);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  await expect.poll(moving).toEqual([]);
  expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
  await model.release('sea');
  await expect(page.getByText('A long story of the sea.')).toBeVisible();
});

test('the theme is switched where one is, stays, and is that of the system again', async ({ page, server, session }) => {
  await session('site');
  await page.emulateMedia({ colorScheme: 'light' });
  await page.goto('/sessions/site');
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const switchTo = async (theme) => {
    await page.locator('#theme').click();
    await expect(page.locator('html')).toHaveAttribute('data-theme', theme);
    await expect(page.locator('#theme')).toHaveText(`Theme: ${theme}`);
    await expect(page).toHaveURL(`${server.url}/sessions/site`);
  };
  await expect(page.locator('#theme')).toHaveText('Theme: system');
  const light = await background();
  await switchTo('dark');
  const dark = await background();
  expect(dark).not.toBe(light);
  await page.reload();
  expect(await background()).toBe(dark);
  await page.goto('/auths');
  expect(await background()).toBe(dark);
  await page.goto('/sessions/site');
  await switchTo('light');
  await page.emulateMedia({ colorScheme: 'dark' });
  expect(await background()).toBe(light);
  await switchTo('system');
  expect(await background()).toBe(dark);
  await page.emulateMedia({ colorScheme: 'light' });
  expect(await background()).toBe(light);
});
