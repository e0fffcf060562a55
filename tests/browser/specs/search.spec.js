// Search over all chats: from every view, to the very entry, also far back in a long chat.

import { accessible, valid } from '../support/checks.js';
import { longThread } from '../support/long.js';
import { expect, test } from '../support/test.js';

// A session with a turn that is over.
async function told(server, model, session, text = 'All is well.') {
  await session('site');
  await model.says(text);
  const said = await server.api('POST', '/sessions/site/turns', { text: 'How is it?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  return said.thread;
}

test('a word far back in a long chat is found, and its entry is opened', async ({ page, server, model, session }) => {
  const thread = await told(server, model, session);
  const change = (record) => {
    const isHit = record.seq > 100 && record.message?.role === 'assistant' && !change.at;
    if (!isHit) return record;
    change.at = record.seq;
    return { ...record, message: { ...record.message, content: [{ type: 'text', text: 'Here a Halcyon nests, far from all.' }] } };
  };
  const long = await longThread(server, thread, 2000, { change });
  await page.goto('/usage');
  await page.keyboard.press('g');
  await page.keyboard.press('s');
  await expect(page.locator('#search')).toBeFocused();
  await page.keyboard.type('halcyon nest');
  await page.keyboard.press('Enter');
  await expect(page).toHaveURL(/\/search\?q=halcyon/);
  const hit = page.locator('#search-hits li');
  await expect(hit).toHaveCount(1);
  await expect(hit.locator('mark')).toHaveText(['Halcyon', 'nests']);
  await expect(hit).toContainText(`Model · #${change.at}`);
  await accessible(page, 'search');
  await hit.getByRole('link').click();
  await expect(page).toHaveURL(new RegExp(`/threads/${long.id}\\?at=${change.at}#e${change.at}$`));
  await expect(page.locator(`#e${change.at}`)).toContainText('Here a Halcyon nests');
  await expect(page.locator(`#e${change.at}`)).toBeInViewport();
  // What comes behind it is there too, and so is the way on.
  await expect(page.locator(`#e${change.at + 4}`)).toBeAttached();
  await page.getByRole('link', { name: 'Later entries' }).click();
  await expect(page.locator('#entries .entry').first()).toBeVisible();
  await page.goBack();
  await page.goBack();
  await expect(page.locator('#search-words')).toHaveValue('halcyon nest');
});

test('nothing is found without a word that is there', async ({ page, server, model, session }) => {
  await told(server, model, session);
  await page.goto('/search?q=nobody+said+this');
  await expect(page.getByText('Nothing that was said has all these words.')).toBeVisible();
  await page.goto('/search?q=***');
  await expect(page.getByText('Nothing that was said has all these words.')).toBeVisible();
  await page.goto('/search');
  await expect(page.locator('#search-hits')).toHaveCount(0);
  await expect(page.locator('#search-words')).toBeFocused();
});

test('hostile names and texts are text among the hits', async ({ page, server, model, session }) => {
  const hostile = '<img src=x onerror=alert(1)> </mark><script>alert(1)</script> \u202Ewords " onload="alert(1)';
  const thread = await told(server, model, session, `needle ${hostile}`);
  await server.api('PATCH', `/threads/${thread}`, { label: '"><script>alert(1)</script>' });
  await page.goto(`/search?q=${encodeURIComponent('needle <script>')}`);
  const hit = page.locator('#search-hits li');
  await expect(hit).toContainText('<script>alert(1)</script>');
  await expect(hit.getByRole('link')).toHaveText('"><script>alert(1)</script>');
  await expect(page.locator('main img, main script')).toHaveCount(0);
  expect(await hit.textContent()).not.toContain('\u202E');
  await expect(page.locator('#search-words')).toHaveValue('needle <script>');
});

test('search works without script, on a phone as well', async ({ visitor, server, model, session }) => {
  await told(server, model, session, 'The lamp is lit.');
  const page = await visitor({ javaScriptEnabled: false, viewport: { width: 390, height: 844 } });
  await page.goto(await server.link());
  await page.locator('#search-open').click();
  await page.locator('#search-words').fill('lamp');
  await page.locator('#search-go').click();
  await page.locator('#search-hits a').click();
  await expect(page.getByText('The lamp is lit.')).toBeVisible();
});

test('a word is found in the chat that is looked at, and its entry is opened and marked', async ({ page, server, model, session }) => {
  const thread = await told(server, model, session);
  const change = (record) => {
    const isHit = record.seq > 100 && record.message?.role === 'assistant' && !change.at;
    if (!isHit) return record;
    change.at = record.seq;
    return { ...record, message: { ...record.message, content: [{ type: 'text', text: 'Here a Halcyon nests, far from all.' }] } };
  };
  const long = await longThread(server, thread, 2000, { change });
  // Another chat has the word as well.
  await model.says('A halcyon that is of no interest here.');
  const other = await server.api('POST', '/sessions/site/turns', { text: 'And elsewhere?' });
  await server.api('GET', `/turns/${other.turn}?wait=20`);
  await page.goto(`/sessions/site/threads/${long.id}`);
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog', { name: 'Shortcuts' }).getByText('g f', { exact: true })).toBeVisible();
  await page.keyboard.press('Escape');
  await page.keyboard.type('gf');
  const dialog = page.getByRole('dialog');
  const words = dialog.getByRole('searchbox', { name: 'Words' });
  await expect(words).toBeFocused();
  await words.fill('halcyon');
  await words.press('Enter');
  const hit = dialog.locator('#find-hits li');
  await expect(hit).toHaveCount(1);
  await expect(hit.locator('mark')).toHaveText('Halcyon');
  await accessible(page, 'find');
  await hit.getByRole('link').click();
  await expect(page).toHaveURL(new RegExp(`/threads/${long.id}\\?at=${change.at}#e${change.at}$`));
  const entry = page.locator(`#e${change.at}`);
  await expect(entry).toBeInViewport();
  await expect(entry).toHaveCSS('outline-style', 'solid');
  // Once more from there, when the entry is far from sight and put away: the page stays, and the dialog
  // is gone.
  await expect.poll(async () => {
    await page.evaluate(() => window.scrollTo(0, 0));
    return entry.count();
  }).toBe(0);
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Find in this chat…' }).click();
  await words.fill('nests');
  await words.press('Enter');
  await hit.getByRole('link').click();
  await expect(dialog).toHaveCount(0);
  await expect(entry).toBeInViewport();
});

test('finding in a chat works without script, and its page is accessible and valid', async ({ page, visitor, server, model, session }) => {
  const thread = await told(server, model, session, 'The lamp is lit.');
  const url = `${server.url}/sessions/site/threads/${thread}`;
  await page.goto(`${url}/find?q=lamp`);
  await accessible(page, 'find, on a page of its own');
  await valid(page, `${url}/find?q=lamp`, 'find');
  const plain = await visitor({ javaScriptEnabled: false });
  await plain.goto(await server.link());
  await plain.goto(url);
  await plain.locator('#chat-more').click();
  await plain.locator('#find-in-chat').click();
  await plain.locator('#find-words').fill('nobody said this');
  await plain.locator('#find-go').click();
  await expect(plain.getByText('Nothing that was said has all these words.')).toBeVisible();
  await plain.locator('#find-words').fill('lamp');
  await plain.locator('#find-go').click();
  await plain.locator('#find-hits a').click();
  await expect(plain.getByText('The lamp is lit.')).toBeVisible();
});
