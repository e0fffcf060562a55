// Personas: a list that grows, changes and shrinks.

import { expect, test } from '../support/test.js';

test('a persona is added, changed and removed; a session keeps its copy', async ({ page, server, session }) => {
  await page.goto('/personas');
  await page.getByRole('link', { name: 'New persona' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('keeper');
  await dialog.getByLabel('Text').fill('You keep a <b>lighthouse</b>.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  const card = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: 'keeper' }) });
  await expect(card).toContainText('You keep a <b>lighthouse</b>.');

  await session('site');
  await page.goto('/sessions/site/config');
  await page.getByLabel('Which').selectOption({ label: 'keeper 1' });
  await page.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByText('Saved', { exact: true })).toBeVisible();

  await page.goto('/personas');
  await page.getByRole('link', { name: 'Edit keeper' }).click();
  await dialog.getByLabel('Text').fill('You sleep.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(card).toContainText('You sleep.');
  expect((await server.api('GET', '/sessions/site')).persona.persona_text).toContain('lighthouse');
  await page.getByRole('link', { name: 'Remove keeper' }).click();
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await expect(page.getByText('There is no persona yet')).toBeVisible();
  // The session's own copy can still be kept or given up.
  await page.goto('/sessions/site/config');
  await expect(page.getByLabel('Which')).toHaveValue('keep');
});
