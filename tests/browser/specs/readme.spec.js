// The pictures of the README: `cargo xtask browser --readme`. What they show is looked at here as well,
// so that they can be made at any time.

import { mkdirSync } from 'node:fs';

import { furnish } from '../support/stage.js';
import { expect, test } from '../support/test.js';

const PICTURES = [
  ['page-wide-light', { width: 1280, height: 800 }, 'light'],
  ['page-wide-dark', { width: 1280, height: 800 }, 'dark'],
  ['page-phone-light', { width: 390, height: 780 }, 'light'],
  ['page-phone-dark', { width: 390, height: 780 }, 'dark'],
];

test('the pictures of the README show a conversation', async ({ page, server, model, session }) => {
  const { thread } = await furnish({ server, model, session });
  await server.api('PATCH', `/threads/${thread}`, { label: 'What Is Here' });
  for (const [name, size, colorScheme] of PICTURES) {
    await page.setViewportSize(size);
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    await page.goto(`/sessions/lighthouse/threads/${thread}`);
    await expect(page.getByRole('heading', { name: 'What is here', exact: true })).toBeVisible();
    await expect(page.locator('.call .name')).toHaveText('local_bash_tool');
    const folder = process.env.CONJURE_BROWSER_README;
    if (!folder) continue;
    mkdirSync(folder, { recursive: true });
    await page.screenshot({ path: `${folder}/${name}.png` });
  }
});
