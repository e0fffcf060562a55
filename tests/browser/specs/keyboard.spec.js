// With the keyboard alone, and by what is read aloud.

import { expect, test } from '../support/test.js';

// Goes on with Tab, or back, until what is meant has the focus.
async function goTo(page, key, id) {
  for (let step = 0; step < 60; step += 1) {
    if (await page.evaluate((id) => document.activeElement?.id === id, id)) return;
    await page.keyboard.press(key);
  }
  throw new Error(`#${id} is not reached by ${key}`);
}

test('one decides, opens, stops and goes on, and never loses the place', async ({ page, model, session }) => {
  await session('site', { tools: { backend: [{ kind: 'local' }], policy: { ask: ['*'] } } });
  await model.step({ content: [
    { type: 'thinking', thinking: 'It wants a greeting.' },
    { type: 'tool_use', id: 'call_1', name: 'local_bash_tool', input: { command: 'echo hello' } },
  ] });
  await model.says('Done.', { hold: { gate: 'end' } });
  await page.goto('/sessions/site');
  await expect(page.locator('#message')).toBeFocused();
  await page.keyboard.type('Greet me');
  await page.keyboard.press('Enter');
  await expect(page.locator('#call-call_1-allow')).toBeVisible();
  await goTo(page, 'Shift+Tab', 'call-call_1-allow');
  await page.keyboard.press('Enter');
  // The button is there no more: one goes on at its card.
  await expect(page.locator('#call-call_1-summary')).toBeFocused();
  await model.reached('end');
  const thoughts = page.locator('details.reasoning');
  await goTo(page, 'Shift+Tab', await thoughts.locator('summary').getAttribute('id'));
  await page.keyboard.press('Enter');
  await expect(thoughts).toHaveAttribute('open', '');
  await model.release('end');
  await expect(page.locator('.turn-end')).toBeVisible();
  await expect(page.locator('#live')).not.toContainText('greeting');
  await expect(thoughts).toHaveAttribute('open', '');
  await expect(page.locator('#call-call_1-card')).toHaveAttribute('open', '');
  await expect(thoughts.locator('summary')).toBeFocused();
  // What is stopped is no button any more: one goes on where one writes.
  await model.says('A long story.', { hold: { gate: 'story' } });
  await page.keyboard.press('/');
  await page.keyboard.type('Tell one');
  await page.keyboard.press('Enter');
  await model.reached('story');
  await expect(page.locator('#stop')).toBeVisible();
  await goTo(page, 'Shift+Tab', 'stop');
  await page.keyboard.press('Enter');
  await expect(page.getByText('Stopped.')).toBeVisible();
  await expect(page.locator('#message')).toBeFocused();
});

test('a follow-up is removed, and one goes on writing', async ({ page, model, session }) => {
  await session('site');
  await model.says('First done.', { when: 'first', hold: { gate: 'first' } });
  await page.goto('/sessions/site');
  for (const text of ['first', 'second']) {
    await page.keyboard.type(text);
    await page.keyboard.press('Enter');
    await expect(page.locator('#message')).toHaveValue('');
    if (text === 'first') await model.reached('first');
  }
  const waiting = page.locator('#queue li');
  await expect(waiting).toHaveCount(1);
  await goTo(page, 'Shift+Tab', await waiting.getByRole('button', { name: 'Remove' }).getAttribute('id'));
  await page.keyboard.press('Enter');
  await expect(waiting).toHaveCount(0);
  await expect(page.locator('#message')).toBeFocused();
  await model.release('first');
  await expect(page.getByText('First done.')).toBeVisible();
});

test('a screen reader is told of the beginning and the end, and of nothing between', async ({ page, server, model, session }) => {
  const { thread } = await session('site');
  const words = 'One two three four five six seven eight nine ten.';
  await model.says(words, { delta: 4, hold: { gate: 'middle', event: 8 } });
  await page.goto('/sessions/site');
  // From here on the page is told what happens.
  await server.api('PATCH', `/threads/${thread.id}`, { label: 'Counting' });
  await expect(page.locator('#thread-label')).toHaveText('Counting');
  await page.evaluate(() => {
    window.told = [];
    const announce = document.getElementById('announce');
    new MutationObserver(() => window.told.push(announce.textContent)).observe(announce, { childList: true, subtree: true, characterData: true });
  });
  await page.getByLabel('Message').fill('Count');
  await page.getByLabel('Message').press('Enter');
  await model.reached('middle');
  await expect(page.locator('#live')).toContainText('One two');
  await expect.poll(() => page.evaluate(() => window.told)).toEqual(['The model works.']);
  await model.release('middle');
  await expect(page.locator('.turn-end')).toBeVisible();
  await expect.poll(() => page.evaluate(() => window.told)).toEqual(['The model works.', 'Nothing runs.']);
  // Nothing of what streams is in a live region.
  expect(await page.locator('#conversation').evaluate((one) => one.closest('[aria-live], [role=log], [role=status]'))).toBeNull();
});
