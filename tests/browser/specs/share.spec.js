// A chat as one HTML file: read from disk, with nothing of it fetched.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

import { accessible, validText } from '../support/checks.js';
import { expect, test } from '../support/test.js';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

test('a chat that is saved as HTML is read from disk', async ({ page, visitor, server, model, session, expected }) => {
  // It is read from disk.
  expected.push(/^request to elsewhere: file:/);
  writeFileSync(`${server.work}/pixel.png`, Buffer.from(PIXEL, 'base64'));
  await session('site');
  await model.step({ content: [
    { type: 'thinking', thinking: 'I should look.' },
    { type: 'text', text: 'I look **first**.' },
    { type: 'tool_use', id: 'call_1', name: 'local_bash_tool', input: { command: `seq 1 4000; echo '</pre><script>alert(1)</script>'` } },
  ] });
  await model.says('Done: `all` is well.');
  await page.goto('/sessions/site');
  await page.locator('#attach').setInputFiles(`${server.work}/pixel.png`);
  await expect(page.locator('#attached')).toContainText('pixel.png');
  await page.getByLabel('Message').fill('Look at it');
  await page.getByLabel('Message').press('Enter');
  await expect(page.getByText('Done: all is well.')).toBeVisible();
  await page.locator('#chat-more').click();
  const coming = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Save as HTML' }).click();
  const download = await coming;
  expect(download.suggestedFilename()).toMatch(/^[a-z0-9-]+\.html$/);
  const file = `${server.root}/tmp/shared.html`;
  await download.saveAs(file);

  const text = readFileSync(file, 'utf8');
  for (const wrong of ['<script', '<form', '<button id', 'http://', '/api/', 'a-key-of-nobody', 'a-token-of-nobody', server.root]) {
    expect(text, wrong).not.toContain(wrong);
  }
  expect(text).toContain("default-src &#39;none&#39;".replaceAll('&#39;', text.includes('&#39;none') ? '&#39;' : "'"));

  await validText(text, 'a shared chat');

  const reader = await visitor({ viewport: { width: 1024, height: 800 } });
  // It asks the server for nothing either.
  const asked = [];
  reader.on('request', (request) => { if (!/^(file|data):/.test(request.url())) asked.push(request.url()); });
  await reader.goto(pathToFileURL(file).href);
  await expect(reader.getByText('Look at it')).toBeVisible();
  await expect(reader.getByText('Done: all is well.')).toBeVisible();
  await expect(reader.locator('img')).toHaveAttribute('src', /^data:image\/png;base64,/);
  expect(await reader.locator('img').evaluate((img) => img.naturalWidth)).toBe(1);
  // The card is folded, and has all of what the call said.
  const card = reader.locator('details.call');
  await expect(card).not.toHaveAttribute('open');
  await card.locator('summary').first().click();
  await expect(card.locator('pre').first()).toContainText('seq 1 4000');
  await card.locator('details.rest summary').click();
  await expect(card.locator('details.rest')).toContainText('</pre><script>alert(1)</script>');
  expect(asked).toEqual([]);
  // Its style is its own, and is taken.
  expect(await reader.locator('main').evaluate((main) => getComputedStyle(main).maxWidth)).toBe('864px');

  // What looks for violations is a script, which the file's own policy refuses.
  const looked = await visitor({ bypassCSP: true });
  await looked.goto(pathToFileURL(file).href);
  await accessible(looked, 'a shared chat');
});

test('the command line makes the same file', async ({ server, model, session }) => {
  await session('site');
  await model.says('The lamp is *lit*.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'And the lamp?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  const file = `${server.root}/tmp/talk.html`;
  execFileSync(process.env.CONJURE_BIN, ['thread', 'export', said.thread, '--html', file], { env: server.environment(), cwd: server.work });
  const answer = await fetch(`${server.url}/api/v1/threads/${said.thread}/export/html`, { headers: server.token });
  expect(answer.headers.get('content-disposition')).toMatch(/^attachment; filename="[a-z0-9-]+\.html"$/);
  const text = await answer.text();
  expect(readFileSync(file, 'utf8')).toBe(text);
  expect(text).toContain('The lamp is <em>lit</em>.');
});
