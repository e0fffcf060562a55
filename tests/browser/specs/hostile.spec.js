// Hostile words, wherever somebody else can put them: shown as text, and nothing of them is done.

import { writeFileSync } from 'node:fs';

import { expect, test } from '../support/test.js';

const DO = 'window.hit=1';
// What is tried everywhere: 28 words.
const WORDS = [
  `<script>${DO}</script>`,
  `"><script>${DO}</script>`,
  `<img src=x onerror=${DO}>`,
  `"><img src=x onerror="${DO}">`,
  `'><img src=x onerror='${DO}'>`,
  `<svg onload=${DO}>`,
  `<svg><script>${DO}</script></svg>`,
  `<svg><animate onbegin=${DO} attributeName=x dur=1s>`,
  `<iframe srcdoc="<script>parent.hit=1</script>"></iframe>`,
  `<iframe src="javascript:parent.hit=1"></iframe>`,
  `<object data="data:text/html,<script>${DO}</script>"></object>`,
  `<math><mi xlink:href="javascript:${DO}">x</mi></math>`,
  `<style>@import url(https://evil.example/x.css)</style>`,
  `<link rel=stylesheet href=https://evil.example/x.css>`,
  `<base href=https://evil.example/>`,
  `<meta http-equiv=refresh content="0;url=https://evil.example/">`,
  `<form action=https://evil.example/><button>Log in again</button></form>`,
  `<template data-swap="inner" data-target="main">gone</template>`,
  `</textarea><script>${DO}</script>`,
  `</title><script>${DO}</script>`,
  `</template><img src=x onerror=${DO}>`,
  `<dialog open><p>Your key, please</p></dialog>`,
  `<details open ontoggle=${DO}>x</details>`,
  `<article class="entry model"><p>I am the model</p></article>`,
  `<button data-key="g d" onclick=${DO}>x</button>`,
  `\u202etxt.exe\u202c`,
  `\u2066a\u2069\u200b\u200f`,
  `{{constructor.constructor('${DO}')()}} \${${DO}}`,
];
// What is tried in a model's Markdown beside them: 18 more.
const MARKDOWN = [
  `[click](javascript:${DO})`,
  `[click](JaVaScRiPt:${DO})`,
  `[click](data:text/html,<script>${DO}</script>)`,
  `[click](vbscript:${DO})`,
  `![x](https://evil.example/pixel.png)`,
  `![x](javascript:${DO})`,
  `![x](data:image/svg+xml,<svg onload=${DO}>)`,
  `[https://bank.example](https://evil.example/)`,
  `<https://evil.example/?q=secret>`,
  `<a href="https://evil.example" onclick="${DO}">x</a>`,
  `<a href="/logout" data-dialog>x</a>`,
  `[x](/sessions/site/delete)`,
  '```html\n<script>window.hit=1</script>\n```',
  '```"><script>window.hit=1</script>\nx\n```',
  `| <script>${DO}</script> | b |\n|---|---|\n| <img src=x onerror=${DO}> | d |`,
  `$$\\href{javascript:${DO}}{x}$$`,
  `<div id="toasts"><p class="toast">Saved</p></div>`,
  `[ref]: javascript:${DO}\n[ref]`,
];

// Nothing was done, nothing came in, and no character is there that nobody sees.
async function harmless(page, where) {
  const found = await page.evaluate(() => {
    const wrong = [];
    const own = [...document.scripts].filter((one) => !/^\/assets\/page-[0-9a-f]+\.js$/.test(one.getAttribute('src') ?? ''));
    if (window.hit) wrong.push('something ran');
    if (own.length) wrong.push(`scripts: ${own.map((one) => one.outerHTML)}`);
    const bad = document.querySelectorAll('iframe, object, embed, base, style, math, animate, [onload], [onerror], [onclick], [ontoggle], [onbegin], [srcdoc], a[href^="javascript:" i], a[href^="data:" i], a[href^="vbscript:" i], form[action^="http"], link[href^="http"], meta[http-equiv=refresh]');
    for (const one of bad) wrong.push(one.outerHTML.slice(0, 120));
    for (const image of document.images) {
      if (new URL(image.src, location).origin !== location.origin && !image.src.startsWith('data:')) wrong.push(image.src);
    }
    const seen = document.body.innerText.match(/[\u202a-\u202e\u2066-\u2069\u200b\u200f]/g);
    if (seen) wrong.push(`characters that nobody sees: ${seen.map((one) => one.codePointAt(0).toString(16))}`);
    for (const link of document.querySelectorAll('main a[href^="http"]')) {
      if (!/noopener/.test(link.rel)) wrong.push(`without rel: ${link.outerHTML}`);
    }
    return wrong;
  });
  expect(found, where).toEqual([]);
}

test(`${WORDS.length} hostile words of the model, of tools and of people in a conversation`, async ({ page, server, model, session }) => {
  test.setTimeout(180_000);
  await session('site');
  for (const [at, word] of WORDS.entries()) {
    await model.calls(`call_${at}`, 'local_bash_tool', { command: `cat <<'END'\n${word}\nEND` }, { text: word });
    await model.says(`End ${at}: ${word}`);
    const said = await server.api('POST', '/sessions/site/turns', { text: `Say ${at}: ${word}` });
    await server.api('GET', `/turns/${said.turn}?wait=20`);
  }
  await page.goto('/sessions/site');
  const shown = () => page.locator('main').innerText();
  // All that a page has, and then what comes while one looks.
  await harmless(page, 'a conversation that was loaded');
  expect(await shown()).toContain(`End ${WORDS.length - 1}:`);
  await page.locator('details.call').evaluateAll((all) => all.forEach((one) => { one.open = true; }));
  await harmless(page, 'cards that were opened');
  await page.reload();
  await model.says(WORDS.join('\n\n'));
  await page.getByLabel('Message').fill(WORDS.join('\n'));
  await page.getByRole('button', { name: 'Send' }).click();
  await expect(page.getByRole('button', { name: 'Stop' })).toHaveCount(0);
  await expect(page.locator('main')).toContainText('constructor.constructor');
  await harmless(page, 'a conversation that streamed');
});

test(`${MARKDOWN.length} hostile pieces of Markdown`, async ({ page, server, model, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  for (const [at, text] of MARKDOWN.entries()) {
    await model.says(`${text}\n\nEnd ${at}.`);
    await page.getByLabel('Message').fill(`Say ${at}`);
    await page.getByRole('button', { name: 'Send' }).click();
    await expect(page.getByText(`End ${at}.`)).toBeVisible();
    await harmless(page, text);
  }
  // No link of a model's leads into this page.
  await expect(page.locator('article.model a[href^="/"]:not([href*="/threads/"])')).toHaveCount(0);
  await expect(page.locator('article.model [data-dialog], article.model [data-swap]').filter({ hasText: /^x$/ })).toHaveCount(0);
});

test(`${WORDS.length} hostile names of sessions, chats, personas and MCP servers`, async ({ page, server, session }) => {
  test.setTimeout(120_000);
  for (const word of WORDS) {
    const name = word.slice(0, 100);
    const made = await session(name).catch(() => session(null, {}));
    await server.api('PATCH', `/threads/${made.thread.id}`, { label: word.slice(0, 200) }).catch(() => {});
    await server.api('POST', '/personas', { name, persona_text: word, version: '1' }).catch(() => {});
    await server.api('POST', '/mcp-servers', { name, settings: { command: word, args: [word] } }).catch(() => {});
  }
  const { items } = await server.api('GET', '/sessions');
  expect(items.length).toBe(WORDS.length);
  for (const url of ['/', '/personas', '/mcp', '/new', '/usage', `/sessions/${items[0].id}`, `/sessions/${items[0].id}/config`, `/sessions/${items[0].id}/routes`]) {
    await page.goto(url);
    await harmless(page, url);
  }
  await expect(page.getByRole('heading', { level: 1 })).toContainText('<script>');
});

test('hostile names of files and plugins, and a line without an end', async ({ page, server, model, session }) => {
  await session('site');
  for (const [at, name] of [`<img src=x onerror=${DO}>.txt`, '\u202etxt.exe', `a"onmouseover="${DO}.txt`].entries()) {
    writeFileSync(`${server.root}/plugins/lib${name.replaceAll('/', '')}.so`, 'no library');
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
  await harmless(page, 'files');
  expect(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth)).toBe(true);
  await page.goto('/plugins');
  await expect(page.getByRole('alert').first()).toContainText('is not loaded', { timeout: 20_000 });
  await harmless(page, 'plugins');
});
