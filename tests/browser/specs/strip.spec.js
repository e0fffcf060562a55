// The strip under the head of a chat: who answers, how fast, and what it took.

import { expect, test } from '../support/test.js';

const PARTS = ['provider', 'model', 'auth', 'latency', 'turn', 'rolling', 'total'];

// What stands in the strip, by the end of each id.
async function strip(page) {
  const texts = PARTS.map(async (part) => [part, await page.locator(`#strip #strip-${part}`).innerText()]);
  return Object.fromEntries(await Promise.all(texts));
}

// Says something to the model.
async function tell(page, text) {
  await page.getByLabel('Message').fill(text);
  await page.getByLabel('Message').press('Enter');
}

// Says something, which is answered by one reply with this usage.
async function say({ page, model }, text, usage) {
  await model.step({ content: [{ type: 'text', text: `Answered: ${text}.` }], usage });
  await tell(page, text);
  await expect(page.getByText(`Answered: ${text}.`)).toBeVisible();
}

test('its figures are of the turn, of the newest turns and of the chat, also behind a change of provider', async ({ page, model, session }) => {
  await session('site');
  await page.goto('/sessions/site');
  expect(await strip(page)).toEqual({
    provider: 'anthropic', model: 'claude-mock', auth: 'work',
    latency: '–', turn: '–', rolling: '–', total: '0 in, 0 out',
  });

  await say({ page, model }, 'one', { input_tokens: 1000, cache_read: 4000, cache_write_5m: 800, output_tokens: 100 });
  await expect(page.locator('#strip-turn')).toHaveText('5800 in, 100 out');
  await expect(page.locator('#strip-rolling')).toHaveText(/^5900 a turn, \d+(\.\d)? (ms|s)$/);
  await expect(page.locator('#strip-total')).toHaveText('5800 in, 100 out');
  await expect(page.locator('#strip-latency')).toHaveText(/^\d+(\.\d)? (ms|s)$/);

  // A turn of two replies has the tokens of both.
  await model.step({
    content: [{ type: 'tool_use', id: 'call_1', name: 'local_bash_tool', input: { command: 'true' } }],
    usage: { input_tokens: 100, output_tokens: 10 },
  });
  await say({ page, model }, 'two', { input_tokens: 150, output_tokens: 40 });
  await expect(page.locator('#strip-turn')).toHaveText('250 in, 50 out');
  await expect(page.locator('#strip-rolling')).toHaveText(/^3100 a turn, /);
  await expect(page.locator('#strip-total')).toHaveText('6050 in, 150 out');

  // Who answers is another one at once; what it took stays.
  const before = await strip(page);
  await page.getByRole('link', { name: 'Config', exact: true }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Provider').selectOption('openai');
  await expect(dialog.getByLabel('Saved auth').locator('option')).toHaveText([/^open /]);
  await dialog.getByLabel('Model').fill('gpt-mock');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.locator('#strip-provider')).toHaveText('openai');
  expect(await strip(page)).toEqual({ ...before, provider: 'openai', model: 'gpt-mock', auth: 'open' });

  await say({ page, model }, 'three', { input_tokens: 60, output_tokens: 40 });
  await expect(page.locator('#strip-turn')).toHaveText('60 in, 40 out');
  await expect(page.locator('#strip-rolling')).toHaveText(/^2100 a turn, /);
  await expect(page.locator('#strip-total')).toHaveText('6110 in, 190 out');
  // Whoever comes back sees the same.
  const after = await strip(page);
  await page.reload();
  expect(await strip(page)).toEqual(after);

  // A new chat has taken nothing yet.
  await page.getByRole('button', { name: 'Start New Chat' }).click();
  await expect(page.locator('#strip-total')).toHaveText('0 in, 0 out');
  await expect(page.locator('#strip-turn')).toHaveText('–');
  await expect(page.locator('#strip-provider')).toHaveText('openai');
});

test('a turn that waits for a person has taken what its replies took so far', async ({ page, model, session }) => {
  await session('site', { tools: { backend: [{ kind: 'local' }], policy: { ask: ['*'] } } });
  await model.step({
    content: [{ type: 'tool_use', id: 'call_1', name: 'local_bash_tool', input: { command: 'true' } }],
    usage: { input_tokens: 100, output_tokens: 10 },
  });
  await model.step({ content: [{ type: 'text', text: 'It is true.' }], usage: { input_tokens: 150, output_tokens: 40 } });
  await page.goto('/sessions/site');
  await tell(page, 'Is it?');
  const allow = page.getByRole('button', { name: 'Allow', exact: true });
  await expect(allow).toBeVisible();
  for (const again of [false, true]) {
    // Who comes in the middle of it sees it too.
    if (again) await page.reload();
    await expect(page.locator('#strip-turn')).toHaveText('100 in, 10 out');
  }
  await allow.click();
  await expect(page.getByText('It is true.')).toBeVisible();
  await expect(page.locator('#strip-turn')).toHaveText('250 in, 50 out');
});
