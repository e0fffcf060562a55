// Saved auths: what a person does with them, and that a secret never comes back.

import { expect, test } from '../support/test.js';

test('an auth is saved, tried, renamed and removed, and its secret is never shown', async ({ page, server, model }) => {
  await page.getByRole('link', { name: 'New auth' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('x');
  await dialog.getByLabel('Provider').fill('anthropic');
  await dialog.getByLabel('Secret').fill('sk-very-secret');
  await dialog.getByLabel('Base URL').fill(model.url);
  await dialog.getByRole('button', { name: 'Save' }).click();
  // What is wrong stands at its field, and what was typed is still there.
  const name = dialog.getByLabel('Name');
  await expect(name).toHaveAttribute('aria-invalid', 'true');
  await expect(dialog.getByLabel('Provider')).toHaveValue('anthropic');
  await name.fill('work');
  await dialog.getByLabel('Secret').fill('sk-very-secret');
  await dialog.getByRole('button', { name: 'Save' }).click();

  await expect(page).toHaveURL(`${server.url}/auths`);
  const row = page.getByRole('row', { name: 'work' });
  await expect(row).toContainText('anthropic');
  await expect(row).toContainText('API key');
  await expect(row.locator('time')).toContainText('UTC');
  await row.getByRole('button', { name: 'Test work' }).click();
  await expect(row.getByRole('status')).toContainText('the provider lists 4 models');

  await row.getByRole('link', { name: 'Edit work' }).click();
  await dialog.getByLabel('Name').fill('office');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(page.getByRole('row', { name: /office/ })).toBeVisible();
  expect(await page.content()).not.toContain('sk-very-secret');

  await page.getByRole('link', { name: 'Remove office' }).click();
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await expect(page.getByText('No auth is saved yet')).toBeVisible();
});

test('an auth that a session uses is not removed, and the session is named', async ({ page, session }) => {
  await session('site');
  await page.goto('/auths');
  await page.getByRole('link', { name: 'Remove work' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await expect(dialog.getByRole('alert')).toContainText('site');
  await dialog.getByRole('button', { name: 'Close' }).click();
  await expect(page.getByRole('row', { name: 'work' })).toBeVisible();
});
