// The demonstration as `cargo xtask demo --page` serves it: by the link that it prints, and without a key.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { basename } from 'node:path';

import { expect, test } from '../support/test.js';

// Serves it as `serve` of tests/xtask/src/demo.rs does. The process, and what it printed up to its link.
async function demo(server) {
  const data = `${server.root}/demo`;
  mkdirSync(data, { mode: 0o700 });
  const library = `${server.root}/plugins/${basename(process.env.CONJURE_PLUGIN_LOCAL)}`;
  // It brings the directory of plugins itself.
  const env = { ...server.environment(), CONJURE_PLUGIN_PATH: '' };
  execFileSync(process.env.CONJURE_BIN, ['plugin', 'trust', library, '--data-dir', data], { env });
  const args = ['serve', '--demo', '--listen', '127.0.0.1:0', '--plugin-dir', `${server.root}/plugins`, '--data-dir', data];
  const child = spawn(process.env.CONJURE_BIN, args, { cwd: server.work, env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  const link = await new Promise((done, failed) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (text) => {
        said += text;
        const found = /let in by this link.*?(http:\/\/127\.0\.0\.1:\d+\/\S+)/.exec(said);
        if (found && /needs no key: \S+\n/.test(said)) done(found[1]);
      });
    }
    child.once('exit', () => failed(new Error(`the demonstration ended: ${said}`)));
  });
  return { child, data, link, said };
}

test('its link lets one in, and its session answers with the card of a call, and asks before another', async ({ visitor, server, expected }) => {
  const { child, data, link, said } = await demo(server);
  try {
    const { origin } = new URL(link);
    // It is another server than that of the test.
    expected.push(new RegExp(`^request to elsewhere: ${origin}/`));
    const page = await visitor();
    await page.goto(link);
    await expect(page.getByRole('heading', { name: 'Sessions', level: 1 })).toBeVisible();
    // What it prints leads to the session.
    const [, session] = /needs no key: (\S+)/.exec(said);
    expect(session).toBe(`${origin}/sessions/demo`);
    await page.goto(session);
    await page.getByLabel('Message').fill('Hello there');
    await page.getByLabel('Message').press('Enter');
    await expect(page.getByText('a script plays it')).toBeVisible({ timeout: 30_000 });
    await expect(page.getByRole('button', { name: 'Stop' })).toHaveCount(0);
    await expect(page.locator('blockquote')).toContainText('Hello there');
    const card = page.locator('details.call');
    await expect(card).toContainText('Done');
    await expect(card).toContainText('local_bash_tool');
    await card.locator('summary').click();
    await expect(card.locator('pre.output')).toContainText('step three');

    await page.getByLabel('Message').fill('And now?');
    await page.getByLabel('Message').press('Enter');
    await page.getByRole('button', { name: 'Allow', exact: true }).click();
    await expect(page.getByText('That was the second turn.')).toBeVisible({ timeout: 30_000 });
    expect(existsSync(`${data}/demo/work/hello.txt`)).toBe(true);
    // It follows the session no more when the server ends.
    await page.goto('about:blank');
  } finally {
    child.kill('SIGKILL');
  }
});
