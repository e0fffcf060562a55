// A chat that was exported, taken in again: what was said is there, in a chat of its own, and what is no
// export or was written by somebody else does no harm.

import { readFileSync, writeFileSync } from 'node:fs';

import { expect, test } from '../support/test.js';

// Says something in a session. Its turn.
async function talk({ server, model, session }) {
  await session('site');
  await session('other');
  await model.says('The lamp is *lit*.');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'And the lamp?' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  return said;
}

// A thread as it is exported.
async function exported(server, thread) {
  const answer = await fetch(`${server.url}/api/v1/threads/${thread}/export`, { headers: server.token });
  return answer.text();
}

async function openForm(page) {
  await page.goto('/sessions/other');
  await page.locator('#chat-more').click();
  await page.getByRole('link', { name: 'Import…' }).click();
}

test('a chat that was exported goes on in another session', async ({ page, server, model, session }) => {
  const said = await talk({ server, model, session });
  await page.goto('/sessions/site');
  await page.locator('#chat-more').click();
  const coming = page.waitForEvent('download');
  await page.getByRole('link', { name: 'Export', exact: true }).click();
  const file = `${server.root}/tmp/lamp.jsonl`;
  await (await coming).saveAs(file);
  expect(readFileSync(file, 'utf8')).toContain('And the lamp?');

  await openForm(page);
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('File').setInputFiles(file);
  await dialog.getByRole('button', { name: 'Import' }).click();
  await expect(page.getByText('The lamp is lit.')).toBeVisible();
  const { thread } = await server.api('GET', '/sessions/other');
  expect(thread.id).not.toBe(said.thread);
  await expect(page).toHaveURL(`${server.url}/sessions/other/threads/${thread.id}`);
  await expect(page.getByRole('navigation', { name: 'Threads' }).locator(`#thread-${thread.id}`)).toContainText('active');
  await model.says('It still is.');
  await page.getByLabel('Message').fill('Is it?');
  await page.getByLabel('Message').press('Enter');
  await expect(page.getByText('It still is.')).toBeVisible();
  // The chat that was exported stays as it is.
  expect((await server.api('GET', `/threads/${said.thread}`)).turns).toBe(1);
});

test('a form that is sent twice imports once', async ({ page, server, model, session }) => {
  const said = await talk({ server, model, session });
  const lines = await exported(server, said.thread);
  const spoken = async () => (await server.api('GET', '/threads')).items.filter(({ turns }) => turns === 1).length;
  expect(await spoken()).toBe(1);
  await openForm(page);
  const once = await page.locator('#import-chat-once').inputValue();
  const answers = await page.evaluate(async ([once, lines]) => {
    const send = async () => {
      const form = new FormData();
      form.set('once', once);
      form.set('file', new Blob([lines]), 'a.jsonl');
      return (await fetch('/sessions/other/import', { method: 'POST', body: form })).url;
    };
    return Promise.all([send(), send()]);
  }, [once, lines]);
  // Both lead to the same chat.
  const { thread } = await server.api('GET', '/sessions/other');
  const there = `${server.url}/sessions/other/threads/${thread.id}`;
  expect(answers).toEqual([there, there]);
  expect(await spoken()).toBe(2);
});

test('a file that is no export says why, and stays chosen', async ({ page, server, model, session }) => {
  await talk({ server, model, session });
  const before = (await server.api('GET', '/threads')).items.length;
  await openForm(page);
  const dialog = page.getByRole('dialog');
  const field = dialog.getByLabel('File');
  for (const [text, words] of [
    ['<b id="bold">no</b> record\n', 'Nothing was imported: line 1 is no record'],
    ['{"type":"<script>document.title=1</script>\u202e"}\n', 'Nothing was imported: line 1 is no record'],
    [`${'['.repeat(100_000)}\n`, 'Nothing was imported: line 1 is no record'],
    ['\n\n', 'Nothing was imported: there is no record in it'],
    ['', 'Nothing was imported: choose a file that is not empty'],
  ]) {
    await field.setInputFiles({ name: 'no.jsonl', mimeType: 'application/jsonl', buffer: Buffer.from(text) });
    await dialog.getByRole('button', { name: 'Import' }).click();
    await expect(dialog.locator('#import-chat-form')).not.toHaveAttribute('aria-busy');
    await expect(dialog.getByRole('alert')).toContainText(words);
    await expect(dialog.getByRole('alert')).not.toContainText('\u202e');
    await expect(page.locator('#bold, #import-chat-report script')).toHaveCount(0);
    expect(await field.evaluate(({ files }) => files[0].name)).toBe('no.jsonl');
  }
  expect((await server.api('GET', '/threads')).items.length).toBe(before);
});

test('a file that is too large says so, however much of it there is', async ({ page, server, model, session }) => {
  await talk({ server, model, session });
  await openForm(page);
  const dialog = page.getByRole('dialog');
  const file = `${server.root}/tmp/large.jsonl`;
  for (const mebibytes of [65, 70, 200]) {
    writeFileSync(file, Buffer.alloc(mebibytes * 1024 * 1024, 'x'));
    await dialog.getByLabel('File').setInputFiles(file);
    await dialog.getByRole('button', { name: 'Import' }).click();
    await expect(dialog.locator('#import-chat-form')).not.toHaveAttribute('aria-busy');
    await expect(dialog.getByRole('alert')).toContainText('Nothing was imported: the file is too large: it may have 64 MiB at most');
    await dialog.locator('#import-chat-report').evaluate((report) => report.replaceChildren());
  }
});

test('what an export says is shown as words', async ({ page, server, model, session }) => {
  const said = await talk({ server, model, session });
  const hostile = '<img src=x onerror="document.title=1"><script>document.title=1</script>\u202e';
  const lines = await exported(server, said.thread);
  const changed = lines.replaceAll('And the lamp?', JSON.stringify(hostile).slice(1, -1));
  expect(changed).not.toBe(lines);
  const file = `${server.root}/tmp/hostile.jsonl`;
  writeFileSync(file, changed);
  await openForm(page);
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('File').setInputFiles(file);
  await dialog.getByRole('button', { name: 'Import' }).click();
  await expect(page.locator('#entries')).toContainText('onerror=');
  await expect(page.locator('#entries').locator('img, script')).toHaveCount(0);
  await expect(page.locator('body')).not.toContainText('\u202e');
  expect(await page.title()).not.toBe('1');
});

test('without script a chat is imported by a form on a page of its own', async ({ visitor, server, model, session, expected }) => {
  // What a browser says of a form that was refused.
  expected.push(/Failed to load resource: the server responded with a status of 4/);
  const said = await talk({ server, model, session });
  const file = `${server.root}/tmp/lamp.jsonl`;
  writeFileSync(file, await exported(server, said.thread));
  const page = await visitor({ javaScriptEnabled: false });
  await page.goto(await server.link());
  await page.goto(`${server.url}/sessions/other/import`);
  await page.getByLabel('File').setInputFiles({ name: 'no.jsonl', mimeType: 'text/plain', buffer: Buffer.from('no') });
  await page.getByRole('button', { name: 'Import' }).click();
  await expect(page.getByRole('alert').filter({ hasText: 'Nothing was imported' })).toBeVisible();
  await page.getByLabel('File').setInputFiles(file);
  await page.getByRole('button', { name: 'Import' }).click();
  await expect(page.getByText('The lamp is lit.')).toBeVisible();
});
