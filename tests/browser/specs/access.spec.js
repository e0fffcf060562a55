// Who gets in: whoever has the link, once; and nobody's page can act for them.

import { createServer } from 'node:http';
import { request as rawRequest } from 'node:http';

import { expect, test } from '../support/test.js';

test('without a cookie a browser is told how to get a link, and a link is good once', async ({ visitor, server, expected }) => {
  expected.push(/Failed to load resource: the server responded with a status of 40[13]/);
  const page = await visitor();
  const context = page.context();
  const answer = await page.goto(server.url);
  expect(answer.status()).toBe(401);
  await expect(page.getByText('conjure serve --link')).toBeVisible();
  const link = await server.link();
  // A program that only looks at it uses nothing up.
  expect((await context.request.head(link)).status()).toBe(200);
  await page.goto(link);
  await expect(page.getByRole('heading', { name: 'Sessions', level: 1 })).toBeVisible();
  const [cookie] = (await context.cookies()).filter(({ httpOnly }) => httpOnly);
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
  const second = await visitor();
  expect((await second.goto(link)).status()).toBe(403);
  await page.getByRole('button', { name: 'Log out' }).click();
  expect((await page.goto(server.url)).status()).toBe(401);
});

// A page of somebody else on this machine.
async function foreign(html) {
  const server = createServer((_, answer) => answer.setHeader('content-type', 'text/html').end(html));
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

test('a form of another origin does nothing', async ({ page, server, session, expected }) => {
  expected.push(/elsewhere|Failed to load/);
  await session('site');
  const other = await foreign(
    `<form method="post" action="${server.url}/sessions/site/delete"><input name="chat" value="delete"><button>Win</button></form>`);
  await page.goto(other.url);
  await page.getByRole('button', { name: 'Win' }).click();
  await page.waitForLoadState();
  expect((await server.api('GET', '/sessions/site')).name).toBe('site');
  other.close();
});

test('a script of another origin reads nothing', async ({ page, server, expected }) => {
  expected.push(/elsewhere|Failed to load|CORS/);
  const other = await foreign('<p>Hello</p>');
  await page.goto(other.url);
  const read = await page.evaluate(async (url) => {
    try {
      await (await fetch(url, { credentials: 'include' })).text();
      return 'read';
    } catch (error) {
      return error.name;
    }
  }, `${server.url}/api/v1/sessions`);
  expect(read).toBe('TypeError');
  other.close();
});

test('no page frames this one', async ({ page, server, expected }) => {
  expected.push(/elsewhere|frame-ancestors|X-Frame-Options|Failed to load|refused/i);
  const other = await foreign(`<iframe src="${server.url}/" title="frame"></iframe>`);
  await page.goto(other.url);
  await page.waitForLoadState('networkidle');
  await expect(page.frameLocator('iframe').getByRole('heading', { name: 'Sessions' })).toHaveCount(0);
  other.close();
});

test('a name that was bound to this address later is refused', async ({ server }) => {
  const status = await new Promise((done, failed) => {
    const { hostname, port } = new URL(server.url);
    const asked = rawRequest({ hostname, port, path: '/', headers: { host: 'evil.example' } }, (answer) => {
      answer.resume();
      done(answer.statusCode);
    });
    asked.on('error', failed);
    asked.end();
  });
  expect(status).toBe(421);
});

test('every view says what a browser may do with it', async ({ page, server }) => {
  for (const path of ['/', '/auths', '/mcp', '/plugins', '/usage', '/personas', '/new', '/nothing-here']) {
    const answer = await page.context().request.get(`${server.url}${path}`, { headers: { accept: 'text/html' } });
    const headers = answer.headers();
    expect(headers['content-security-policy'], path).toContain("default-src 'none'");
    expect(headers['content-security-policy'], path).toContain("frame-ancestors 'none'");
    expect(headers['x-content-type-options'], path).toBe('nosniff');
  }
});
