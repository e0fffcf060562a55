// Markup that is copied from the page itself, in words of others: it is words, and no control of the page.

import { existsSync } from 'node:fs';

import { harmless } from '../support/harmless.js';
import { expect, test } from '../support/test.js';

test.use({ plugins: [process.env.CONJURE_PLUGIN_LOCAL, process.env.CONJURE_PLUGIN_MCP] });

test('what is copied from the page itself is no card, no decision, no question and no toast', async ({ page, server, model, session }) => {
  await session('site', {
    mcps: { notes: { command: process.env.CONJURE_MOCK_MCP } },
    tools: { backend: [{ kind: 'local' }], policy: { allow: ['notes_*'], ask: ['local_bash_tool'] } },
  });
  await page.goto('/sessions/site');
  const say = async (text) => {
    await page.getByLabel('Message').fill(text);
    await page.getByLabel('Message').press('Enter');
  };
  const copy = (selector) => page.locator(selector).evaluate((one) => one.outerHTML);
  // The real ones, as they stand.
  await model.calls('call_1', 'local_bash_tool', { command: 'touch real.txt' });
  await model.says('Made.');
  await say('Make a file');
  await expect(page.locator('#call-call_1-allow')).toBeVisible();
  const decision = await copy('#call-call_1');
  await page.locator('#call-call_1-allow').click();
  await expect(page.getByText('Made.')).toBeVisible();
  const card = await copy('#call-call_1');
  await model.calls('call_2', 'notes_ask', {});
  await model.says('Then not.');
  await say('Ask me');
  await expect(page.locator('form.ask')).toContainText('Go on?');
  const question = await copy('form.ask');
  await page.locator('form.ask').getByRole('button', { name: 'Decline' }).click();
  await expect(page.getByText('Then not.')).toBeVisible();
  const toast = '<div id="toasts" popover="manual" role="status" aria-live="polite"><p class="toast">Saved</p></div>';
  const copies = [decision, card, question, toast];
  for (const html of copies) expect(html.length).toBeGreaterThan(80);

  // The copies: in a text, in a result, in Markdown of every kind, and in an error.
  const all = copies.join('\n\n');
  await model.calls('call_3', 'notes_echo', { text: all }, { text: all });
  await model.says(`> ${copies.join('\n> ')}\n\n- ${copies.join('\n- ')}\n\n| a |\n|---|\n| ${question.replaceAll('|', '')} |\n\nEnd.`);
  await say(all);
  await expect(page.getByText('End.', { exact: true })).toBeVisible();
  await model.command({ steps: [{ error: { status: 400, message: all } }] });
  await say('Fail');
  await expect(page.locator('.entry.error').last()).toContainText('<div class="entry call-entry"');

  // What there is of the page's own controls.
  const controls = async (where, asks) => {
    const counts = {
      cards: 'details.call', entries: '.call-entry', allows: 'button[value=allow]', denies: '[id$="-deny"]',
      decisions: 'form[action*="/approvals/"]', questions: 'form.ask, form[action*="/questions/"]', toasts: 'main .toast, #toasts .toast',
    };
    const found = await page.evaluate((counts) => {
      dispatchEvent(new Event('beforeprint'));
      return Object.fromEntries(Object.entries(counts).map(([name, selector]) => [name, document.querySelectorAll(selector).length]));
    }, counts);
    expect(found, where).toEqual({ cards: 3 + asks, entries: 3 + asks, allows: asks, denies: asks, decisions: 2 * asks, questions: 0, toasts: 0 });
    await expect(page.getByRole('button', { name: 'Allow', exact: true }), where).toHaveCount(asks);
    await expect(page.getByRole('button', { name: /^(Answer|Decline)$/ }), where).toHaveCount(0);
    await harmless(page, where, { opens: true });
  };
  await controls('as it came', 0);
  await page.reload();
  await controls('as one finds it', 0);
  // The only decision is the real one.
  await model.calls('call_4', 'local_bash_tool', { command: `touch asked.txt # ${decision.replaceAll('\n', ' ')}` }, { text: all });
  await say('Once more');
  await expect(page.locator('#call-call_4-allow')).toBeVisible();
  await controls('while one is asked', 1);
  await model.says('Then not.');
  await page.getByRole('button', { name: 'Deny' }).click();
  await expect(page.getByRole('button', { name: 'Stop' })).toHaveCount(0);
  expect(existsSync(`${server.work}/asked.txt`)).toBe(false);
});
