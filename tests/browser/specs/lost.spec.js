// A network and a server that fail: it is noticed, said, and nothing is lost or there twice.

import { expect, test } from '../support/test.js';

test('a connection of which nothing comes any more is followed anew', async ({ page, server, model, session }) => {
  await session('site');
  await page.clock.install();
  await page.goto('/sessions/site');
  await model.says('First.');
  await server.api('POST', '/sessions/site/turns', { text: 'one' });
  await expect(page.getByText('First.', { exact: true })).toBeVisible();
  const lost = page.getByText('Connection lost.');
  await expect(lost).toBeHidden();
  // The machine still takes connections, and nobody answers: the browser notices nothing.
  server.child.kill('SIGSTOP');
  await page.clock.fastForward(41_000);
  await expect(lost).toBeVisible();
  server.child.kill('SIGCONT');
  await model.says('Second.');
  await server.api('POST', '/sessions/site/turns', { text: 'two' });
  await expect(page.getByText('Second.', { exact: true })).toBeVisible();
  await expect(lost).toBeHidden();
});

test('a message whose answer was lost is said once', async ({ page, model, session, expected }) => {
  expected.push(/Failed to load resource|net::ERR/);
  await session('site');
  await model.says('Once.', { when: 'hello' });
  await page.goto('/sessions/site');
  const message = page.getByLabel('Message');
  await page.route('**/say', async (route) => {
    await route.fetch();
    await route.abort();
  });
  await message.fill('hello');
  await message.press('Enter');
  await expect(page.getByText('could not be reached')).toBeVisible();
  await expect(message).toHaveValue('hello');
  await expect(page.getByText('Once.', { exact: true })).toBeVisible();
  await page.unroute('**/say');
  await message.press('Enter');
  await expect(message).toHaveValue('');
  // The next one is another message, also with the same words.
  await model.says('Twice.', { when: 'hello' });
  await message.fill('hello');
  await message.press('Enter');
  await expect(page.getByText('Twice.', { exact: true })).toBeVisible();
  await expect(page.locator('#conversation .person')).toHaveCount(2);
});

test('where too many pages follow, the page says why and asks seldom', async ({ page, session, expected }) => {
  expected.push(/Failed to load resource/);
  await session('site');
  await page.clock.install();
  let asked = 0;
  await page.route(/\/live\?/, (route) => {
    asked += 1;
    return route.fulfill({
      status: 503,
      contentType: 'application/problem+json',
      body: JSON.stringify({ type: 'urn:conjure:problem:too-many-streams', detail: 'this client has as many streams as it may' }),
    });
  });
  await page.goto('/sessions/site');
  await expect(page.getByText('as many streams as it may')).toBeVisible();
  await expect(page.getByText('Connection lost.')).toBeVisible();
  const before = asked;
  await page.clock.fastForward(10_000);
  expect(asked).toBe(before);
  await page.unroute(/\/live\?/);
  await page.clock.fastForward(25_000);
  await expect(page.getByText('Connection lost.')).toBeHidden();
});
