// Dialogs: each opens as what it is about is, and none closes by accident.

import { expect, test } from '../support/test.js';

test('what was written in a dialog that was closed is in no other one', async ({ page, server, session }) => {
  await session('site');
  for (const name of ['first', 'second']) {
    await server.api('POST', '/personas', { name, version: '1', persona_text: `The ${name} one.` });
  }
  await page.goto('/personas');
  const dialog = page.getByRole('dialog');
  await page.getByRole('link', { name: 'Edit first' }).click();
  await dialog.getByLabel('Text').fill('Left behind.');
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
  await page.getByRole('link', { name: 'Edit second' }).click();
  await expect(dialog.getByLabel('Text')).toHaveValue('The second one.');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await expect(dialog).toHaveCount(0);
  const { items } = await server.api('GET', '/personas');
  expect(items.map((one) => one.persona_text).sort()).toEqual(['The first one.', 'The second one.']);

  await page.goto('/auths');
  await page.getByRole('link', { name: 'Edit work' }).click();
  await dialog.getByLabel('Another secret').fill('a-key-of-work');
  await dialog.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('link', { name: 'Edit open' }).click();
  await expect(dialog.getByLabel('Another secret')).toHaveValue('');
});

test('neither a selection that ends beside a dialog nor a press there closes it', async ({ page }) => {
  await page.goto('/auths');
  await page.getByRole('link', { name: 'New auth' }).click();
  const dialog = page.getByRole('dialog');
  const name = dialog.getByLabel('Name');
  await name.fill('something that is selected');
  const field = await name.boundingBox();
  const box = await dialog.boundingBox();
  await page.mouse.move(field.x + field.width / 2, field.y + field.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x - 20, field.y + field.height / 2, { steps: 5 });
  await page.mouse.up();
  await expect(name).toHaveValue('something that is selected');
  for (const x of [box.x + 3, box.x - 20]) {
    await page.mouse.click(x, box.y + box.height / 2);
    await expect(name).toHaveValue('something that is selected');
  }
  await page.keyboard.press('Escape');
  await expect(dialog).toHaveCount(0);
});

test('a new persona without a name is wrong at its own name', async ({ page, session }) => {
  await session('site');
  await page.goto('/');
  await page.getByRole('link', { name: 'New session' }).click();
  await page.locator('#new-persona').waitFor();
  await page.evaluate(() => { document.querySelector('#new-form').noValidate = true; });
  await page.locator('#new-name').fill('fine');
  await page.locator('#new-persona').selectOption({ label: 'Add a new one…' });
  await page.locator('#new-model').fill('claude-mock');
  await page.getByRole('button', { name: 'Create session' }).click();
  await expect(page.locator('#new-persona-name')).toHaveAttribute('aria-invalid', 'true');
  await expect(page.locator('#new-name')).not.toHaveAttribute('aria-invalid', 'true');
});

test('a form on a page of its own says there what is wrong, and keeps what was typed', async ({ page, server, auths }) => {
  await page.goto('/new');
  const form = page.locator('#sheet #new-form');
  await form.getByLabel('Model').fill('claude-mock');
  await form.getByLabel('Working dir').fill('/no/such/place');
  await form.getByRole('button', { name: 'Create session' }).click();
  const wrong = form.getByLabel('Working dir');
  await expect(wrong).toHaveAttribute('aria-invalid', 'true');
  await expect(wrong).toBeFocused();
  await expect(form.getByLabel('Model')).toHaveValue('claude-mock');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await wrong.fill(server.work);
  await form.getByRole('button', { name: 'Create session' }).click();
  await expect(page).toHaveURL(/\/sessions\//);
});

test('without script a refused form is the page, and the cursor is where it is wrong', async ({ visitor, server, auths, expected }) => {
  // What a browser says of a form that was refused.
  expected.push(/Failed to load resource: the server responded with a status of 4/);
  const page = await visitor({ javaScriptEnabled: false });
  await page.goto(await server.link());
  await page.goto(`${server.url}/new`);
  await page.getByLabel('Model').fill('claude-mock');
  await page.getByLabel('Working dir').fill('/no/such/place');
  await page.getByRole('button', { name: 'Create session' }).click();
  await expect(page.getByLabel('Working dir')).toHaveAttribute('aria-invalid', 'true');
  await expect(page.getByLabel('Working dir')).toBeFocused();
  await expect(page.getByLabel('Model')).toHaveValue('claude-mock');
});
