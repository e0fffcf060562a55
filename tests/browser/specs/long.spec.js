// A long chat: what is far from sight is put away, and is there again when one comes to it. And how much
// a browser loads before any of it is there.

import { scriptAndStyle } from '../support/assets.js';
import { longThread } from '../support/long.js';
import { expect, test } from '../support/test.js';

test.setTimeout(180_000);

test('5,000 entries scrolled through, back and forth, are never more than 2,500 nodes', async ({ page, server, model, session }) => {
  await session('site');
  await model.calls('call_1', 'local_bash_tool', { command: 'echo hello' }, { text: 'I look **first**.' });
  await model.says('# Done\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'Look, and say what is there' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  const long = await longThread(server, said.thread, 5000);
  await page.goto(`/sessions/site/threads/${long.id}`);
  const nodes = () => page.evaluate(() => document.querySelectorAll('*').length);
  let most = 0;
  // To the beginning.
  while (await page.locator('#older').count()) {
    const before = await page.locator('.chunk').count();
    await page.evaluate(() => window.scrollTo(0, 0));
    await page.waitForFunction((before) => document.querySelectorAll('.chunk').length > before || !document.getElementById('older'), before);
    most = Math.max(most, await nodes());
  }
  await page.evaluate(() => window.scrollTo(0, 0));
  await expect(page.locator('#entries .person').first()).toBeInViewport();
  // And to the end again, as fast as a wheel turns, and looking on the way.
  const height = await page.evaluate(() => document.scrollingElement.scrollHeight);
  for (let at = 0; at < height; at += Math.ceil(height / 40)) {
    await page.evaluate((at) => window.scrollTo(0, at), at);
    await expect.poll(() => page.evaluate(() => Boolean(document.elementFromPoint(innerWidth / 2, innerHeight / 3)?.closest('.entry, .turn-end, .chunk:not(:empty)')))).toBe(true);
    most = Math.max(most, await nodes());
  }
  await page.evaluate(() => window.scrollTo(0, document.scrollingElement.scrollHeight));
  await expect(page.locator(`#e${long.entries}`)).toBeVisible();
  // What was put away is as high as it was.
  expect(Math.abs(await page.evaluate(() => document.scrollingElement.scrollHeight) - height)).toBeLessThan(height / 100);
  console.log(`most nodes: ${most}`);
  expect(most).toBeLessThanOrEqual(2500);
});

test('script and style are at most 60 KiB, compressed', async ({ page, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  const assets = await scriptAndStyle(page);
  const named = assets.map(({ name }) => name.replace(/^.*\./, '')).sort();
  expect(named).toEqual(['css', 'js']);
  const bytes = assets.reduce((sum, asset) => sum + asset.bytes, 0);
  expect(bytes, JSON.stringify(assets)).toBeLessThanOrEqual(60 * 1024);
});
