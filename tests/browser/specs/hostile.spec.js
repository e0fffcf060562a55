// Hostile words, wherever somebody else can put them: shown as text, and nothing of them is done.

import { writeFileSync } from 'node:fs';

import { harmless, shown } from '../support/harmless.js';
import { KINDS, MARKDOWN, WORDS } from '../support/hostile.js';
import { longThread } from '../support/long.js';
import { expect, test } from '../support/test.js';

// Goes through all pages of a chat, from its end. `look` is called on each.
async function throughout(page, url, look) {
  // Earlier entries come with the next page, and not into this one.
  await page.route(({ searchParams }) => searchParams.has('before'), (route) => (
    route.request().resourceType() === 'document' ? route.continue() : route.fulfill({ contentType: 'text/html', body: '' })));
  for (let next = url; next;) {
    await page.goto(next);
    await look();
    next = await page.locator('#older a').evaluateAll(([link]) => link?.getAttribute('href'));
  }
}

// The texts of all elements of a page that fit, also of those that are far from sight.
async function texts(page, selector) {
  return page.evaluate((selector) => {
    dispatchEvent(new Event('beforeprint'));
    return [...document.querySelectorAll(selector)].map((one) => one.textContent);
  }, selector);
}

// Makes a chat that says each of these as the person, as the model, in a call and in its result. Its address.
async function chatOf({ server, model, session }, words) {
  const word = 'a-word-to-be-replaced';
  await session('site');
  await model.calls('call_1', 'local_bash_tool', { command: `cat <<'END'\n${word}\nEND` }, { text: word });
  await model.says(`${word}\n\nEnd.`, { thinking: word });
  const said = await server.api('POST', '/sessions/site/turns', { text: word });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  const change = (record) => JSON.parse(JSON.stringify(record).replaceAll(word, () => JSON.stringify(words[record.turn - 1]).slice(1, -1)));
  const { id } = await longThread(server, said.thread, Infinity, { change, turns: words.length });
  return `/sessions/site/threads/${id}`;
}

test(`${WORDS.length} hostile words in a chat, each by itself`, async ({ page, server, model, session }) => {
  test.setTimeout(180_000);
  // The same word twice would be no other case.
  expect(new Set([...WORDS, ...MARKDOWN]).size).toBe(WORDS.length + MARKDOWN.length);
  expect(WORDS.length).toBeGreaterThanOrEqual(100);
  const url = await chatOf({ server, model, session }, WORDS);
  const results = [];
  const said = [];
  await throughout(page, url, async () => {
    await harmless(page, page.url(), { opens: true });
    results.push(...await texts(page, 'pre.output'));
    said.push(...await texts(page, 'article.person .said'));
  });
  // Each is there to be read.
  expect(said.length).toBe(WORDS.length);
  for (const all of [results, said]) {
    expect(WORDS.filter((word) => !all.some((text) => text.includes(shown(word))))).toEqual([]);
  }
  // What began by itself would have by now.
  await harmless(page, 'at the end', { opens: true });
});

test(`${MARKDOWN.length} hostile pieces of Markdown in a chat, each by itself`, async ({ page, server, model, session }) => {
  test.setTimeout(120_000);
  const url = await chatOf({ server, model, session }, MARKDOWN);
  let replies = 0;
  await throughout(page, url, async () => {
    await harmless(page, page.url(), { opens: true });
    // No link of a model's leads into this page.
    expect(await texts(page, 'article.model .text a[href]:not([href^="https://"], [href^="http://"], [href^="mailto:"])')).toEqual([]);
    replies += (await texts(page, 'article.model')).length;
  });
  expect(replies).toBe(2 * MARKDOWN.length);
});

test('hostile words while they stream, of the model, of tools and of people', async ({ page, model, session }) => {
  test.setTimeout(180_000);
  await session('site');
  await page.goto('/sessions/site');
  const field = page.getByLabel('Message');
  for (const [kind, words] of [...Object.entries(KINDS), ['MARKDOWN', MARKDOWN]]) {
    // A program is given no such byte.
    const all = words.map((word) => word.replaceAll('\u0000', ''));
    await model.calls(`call_${kind}`, 'local_bash_tool', { command: `cat <<'END'\n${all.join('\n')}\nEND` }, { text: all.join('\n\n') });
    await model.says(`${all.join('\n\n')}\n\nEnd of ${kind}.`, { thinking: all.join('\n'), hold: { gate: kind, event: 9 } });
    await field.fill(all.join('\n'));
    await page.getByRole('button', { name: 'Send' }).click();
    await model.reached(kind);
    await expect(page.locator(`#call-call_${kind}-card`)).toContainText('Done');
    await harmless(page, `${kind}, that streams`, { opens: true });
    await model.release(kind);
    await expect(page.getByRole('button', { name: 'Stop' })).toHaveCount(0);
    await expect(page.locator('article.model').last()).toContainText(`End of ${kind}.`);
    await harmless(page, `${kind}, that streamed`, { opens: true });
  }
  await expect(page.locator('.call-entry')).toHaveCount(Object.keys(KINDS).length + 1);
});

test(`${WORDS.length} hostile names of sessions, chats, personas and MCP servers`, async ({ page, server, session }) => {
  test.setTimeout(180_000);
  const made = [];
  for (const word of WORDS) {
    const name = word.slice(0, 100);
    const one = await session(name).catch(() => session(null, {}));
    made.push(one);
    await server.api('PATCH', `/threads/${one.thread.id}`, { label: word.slice(0, 200) }).catch(() => {});
    await server.api('POST', '/personas', { name, persona_text: word, version: '1' }).catch(() => {});
    await server.api('POST', '/mcp-servers', { name, settings: { command: word, args: [word] } }).catch(() => {});
  }
  // Of those that are refused as names there are few.
  expect(made.filter(({ name }) => name).length).toBeGreaterThan(WORDS.length / 2);
  const [first] = made;
  for (const url of ['/personas', '/mcp', '/new', '/usage', `/sessions/${first.id}/config`, `/sessions/${first.id}/routes`]) {
    await page.goto(url);
    await harmless(page, url);
  }
  await expect(page.getByRole('heading', { level: 1 })).toContainText('<script>');
  for (const { id } of made.filter((_, at) => at % 12 === 0)) {
    await page.goto(`/sessions/${id}`);
    await harmless(page, id);
  }
  let cards = 0;
  for (let next = '/'; next;) {
    await page.goto(next);
    await harmless(page, next);
    cards += await page.locator('#sessions > li').count();
    next = await page.locator('#sessions-more').evaluateAll(([link]) => link?.getAttribute('href'));
  }
  expect(cards).toBe(WORDS.length);
});

test('hostile names of files and plugins, and a line without an end', async ({ page, server, model, session }) => {
  await session('site');
  const names = ['<img src=x onerror=window.hit=1>.txt', '\u202etxt.exe', 'a"onmouseover="window.hit=1.txt', '<script>window.hit=1<x>.png', 'in\u200bvisible.txt', "'; window.hit=1; '.md"];
  for (const [at, name] of names.entries()) {
    writeFileSync(`${server.root}/plugins/lib${name}.so`, 'no library');
    await model.calls(`file_${at}`, 'local_create_file', { path: name, file_text: 'x', description: 'a file' });
    await model.says('Made.');
    const said = await server.api('POST', '/sessions/site/turns', { text: 'Make a file' });
    await server.api('GET', `/turns/${said.turn}?wait=20`);
  }
  await model.says(`Long: ${'x'.repeat(200_000)} end`);
  const said = await server.api('POST', '/sessions/site/turns', { text: 'y'.repeat(50_000) });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  await page.goto('/sessions/site');
  // What is far from sight is put away.
  await page.evaluate(() => scrollTo(0, 0));
  await expect(page.locator('ul.files li').first()).toBeVisible();
  await harmless(page, 'files', { opens: true });
  expect((await texts(page, 'ul.files li')).length).toBe(names.length);
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await page.goto('/plugins');
  await expect(page.getByRole('alert').first()).toContainText('is not loaded', { timeout: 20_000 });
  await harmless(page, 'plugins');
});
