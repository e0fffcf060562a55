// Usage: what a turn that is known cost, in words, in pictures and in what is downloaded.

import { readFileSync } from 'node:fs';

import { expect, test } from '../support/test.js';

// US dollars for a million tokens.
test.use({ models: '[anthropic.claude-mock]\nprice = { input = 100.0, cache_read = 10.0, cache_write = 125.0, output = 500.0 }\n' });

const HEAD = ['kind', 'name', 'replies', 'input', 'cache_read', 'cache_write', 'output', 'tokens', 'usd', 'unpriced_tokens', 'times', 'failed', 'duration_ms'];

// Makes a turn of two replies with a call between them.
async function talk({ server, model, session }) {
  await session('site');
  await model.step({
    content: [{ type: 'tool_use', id: 'call_1', name: 'local_bash_tool', input: { command: 'echo hello' } }],
    usage: { input_tokens: 600, cache_read: 1000, cache_write_5m: 800, output_tokens: 60 },
  });
  await model.step({
    content: [{ type: 'text', text: 'Done.' }],
    usage: { input_tokens: 400, cache_read: 3000, output_tokens: 40 },
  });
  const said = await server.api('POST', '/sessions/site/turns', { text: 'Greet the harbour master' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
}

test('what is downloaded has tokens, cache and money of the turn', async ({ page, server, model, session }) => {
  await talk({ server, model, session });
  await page.goto('/usage');
  await expect(page.locator('#usage-total')).toContainText('5,900 tokens in 2 replies, $0.29.');
  await expect(page.locator('#usage-total')).toContainText('68 % came out of a cache');
  const coming = page.waitForEvent('download');
  await page.getByRole('link', { name: 'CSV' }).click();
  const download = await coming;
  expect(download.suggestedFilename()).toBe('usage.csv');
  const lines = readFileSync(await download.path(), 'utf8').trimEnd().split('\r\n').map((line) => line.split(','));
  expect(lines[0]).toEqual(HEAD);
  for (const line of lines) expect(line, line.join(',')).toHaveLength(HEAD.length);
  const rows = lines.slice(1).map((line) => Object.fromEntries(line.map((cell, at) => [HEAD[at], cell])));
  const spent = { replies: '2', input: '1000', cache_read: '4000', cache_write: '800', output: '100', tokens: '5900', unpriced_tokens: '0' };
  for (const [kind, name] of [['day', /^\d{4}-\d\d-\d\d$/], ['thread', /Harbour Master/], ['model', /^anthropic\/claude-mock$/], ['total', /^$/]]) {
    const row = rows.find((row) => row.kind === kind);
    expect(row, kind).toMatchObject({ ...spent, name: expect.stringMatching(name) });
    // 1,000 of 100 dollars a million, 4,000 of 10, 800 of 125, 100 of 500.
    expect(Number(row.usd), kind).toBeCloseTo(0.29, 9);
  }
  expect(rows.find((row) => row.kind === 'tool')).toMatchObject({ name: 'local_bash_tool', times: '1', failed: '0', duration_ms: expect.stringMatching(/^\d+$/) });
});

test('its pictures say in words what they show', async ({ page, server, model, session }) => {
  await talk({ server, model, session });
  await page.goto('/usage');
  // Each is named for who does not see it, or passed over, since the table beside it has the number.
  const drawn = await page.locator('main svg').evaluateAll((all) => all.map((svg) => ({
    is: svg.getAttribute('class'), named: svg.getAttribute('aria-label') ?? '', hidden: svg.getAttribute('aria-hidden') === 'true',
  })));
  expect(drawn.length).toBeGreaterThan(2);
  for (const { is, named, hidden } of drawn) expect(hidden, is).toBe(named === '');
  const tokens = page.getByRole('img', { name: 'Tokens a day; the table below has the numbers' });
  await expect(tokens).toBeVisible();
  await expect(tokens.locator('title')).toHaveText([/^\d{4}-\d\d-\d\d: 5900 tokens$/]);
  const money = page.getByRole('img', { name: 'US dollars a day; the table below has the numbers' });
  await expect(money.locator('title')).toHaveText([/^\d{4}-\d\d-\d\d: \$0\.29$/]);
  // The table that they speak of.
  await page.getByText('The days as a table').click();
  const row = page.getByRole('region', { name: 'Days' }).getByRole('row').last();
  await expect(row.getByRole('cell')).toHaveText(['2', '1,000', '4,000', '800', '100', '$0.29']);
});
