// The figures of the page: `cargo xtask browser --figures`. Prints name, value and what it should be;
// nothing fails by them, since machines differ. A debug build is slower than what people run.

import { request } from 'node:http';
import { readFileSync } from 'node:fs';

import { scriptAndStyle } from './support/assets.js';
import { longThread } from './support/long.js';
import { test } from './support/test.js';

test.setTimeout(600_000);

const print = (name, value, goal) => console.log(`figure\t${name}\t${value}\t(${goal})`);
// When the page showed something first; the browser says so behind the event that it is loaded.
const firstPaint = () => new Promise((done) => {
  new PerformanceObserver((list) => {
    for (const paint of list.getEntriesByName('first-contentful-paint')) done(paint.startTime);
  }).observe({ type: 'paint', buffered: true });
});
const percentile = (all, share) => all.sort((a, b) => a - b)[Math.floor(all.length * share)];

test('a long thread: first paint and nodes; bytes of script and style', async ({ page, server, model, session }) => {
  await session('site');
  await model.calls('call_1', 'local_bash_tool', { command: 'echo hello' }, { text: 'I look **first**.' });
  await model.says('# Done\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n');
  const said = await server.api('POST', '/sessions/site/turns', { text: 'Look, and say what is there' });
  await server.api('GET', `/turns/${said.turn}?wait=20`);
  const long = await longThread(server, said.thread, 5000);
  const url = `/sessions/site/threads/${long.id}`;
  await page.goto(url);
  const paints = [];
  for (let time = 0; time < 5; time += 1) {
    await page.goto(url);
    paints.push(await page.evaluate(firstPaint));
  }
  print(`first paint of ${long.entries} entries`, `${percentile(paints, 0.5).toFixed(0)} ms`, 'at most 400 ms');
  print('nodes', await page.evaluate(() => document.querySelectorAll('*').length), 'at most 2,500');
  const bytes = (await scriptAndStyle(page)).reduce((sum, asset) => sum + asset.bytes, 0);
  print('script and style, compressed', `${(bytes / 1024).toFixed(1)} KiB`, 'at most 60 KiB');
});

test('typing while a stream of 100 events a second runs', async ({ page, model, session }) => {
  await session('site');
  await model.says('word '.repeat(3000), { delta: 5, delay: 10 });
  await page.goto('/sessions/site');
  await page.getByLabel('Message').fill('Tell');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('word word').first().waitFor();
  await page.getByLabel('Message').focus();
  await page.evaluate(() => {
    window.frames_ = [];
    let last = performance.now();
    const frame = (now) => {
      window.frames_.push(now - last);
      last = now;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Performance.enable');
  const spent = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics');
    return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
  };
  const before = await spent();
  await page.keyboard.type('the quick brown fox jumps over the lazy dog '.repeat(4), { delay: 40 });
  const frames = await page.evaluate(() => window.frames_);
  const after = await spent();
  for (const name of ['ScriptDuration', 'RecalcStyleDuration', 'LayoutDuration', 'TaskDuration']) {
    const share = (after[name] - before[name]) / (after.Timestamp - before.Timestamp);
    print(`while typing, ${name}`, `${(share * 1000).toFixed(0)} ms a second`, 'what a frame is made of');
  }
  print('a frame while typing, p95', `${percentile(frames, 0.95).toFixed(1)} ms`, 'at most 16 ms, 16.7 being every frame of 60 Hz');
});

// What a process used: seconds of processor time, and bytes in memory.
function used(pid) {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  const pages = Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]);
  return { seconds: (Number(stat[11]) + Number(stat[12])) / 100, bytes: pages * 4096 };
}

test('many pages that follow as many streams', async ({ page, server, model, session }) => {
  const count = Number(process.env.CONJURE_BROWSER_STREAMS || 200);
  const cookie = (await page.context().cookies()).map(({ name, value }) => `${name}=${value}`).join('; ');
  const { hostname, port } = new URL(server.url);
  const begun = [];
  for (let at = 0; at < count; at += 1) {
    const { thread } = await session(`s${at}`);
    await model.says('word '.repeat(4000), { delta: 25, delay: 100 });
    await server.api('POST', `/sessions/s${at}/turns`, { text: 'Tell' });
    begun.push(thread.id);
  }
  const measure = async () => {
    const before = used(server.child.pid);
    await new Promise((done) => setTimeout(done, 10_000));
    const after = used(server.child.pid);
    return { cores: (after.seconds - before.seconds) / 10, bytes: after.bytes };
  };
  const alone = await measure();
  let pieces = 0;
  const asked = begun.map((thread, at) => {
    const one = request({ hostname, port, path: `/sessions/s${at}/threads/${thread}/live`, agent: false, headers: { cookie, accept: 'text/event-stream' } },
      (answer) => answer.on('data', () => { pieces += 1; }));
    one.on('error', () => {});
    one.end();
    return one;
  });
  const followed = await measure();
  for (const one of asked) one.destroy();
  print(`${count} streams, nobody follows`, `${alone.cores.toFixed(2)} cores`, 'beside the next');
  print(`${count} pages follow`, `${(followed.cores - alone.cores).toFixed(2)} cores more, ${(pieces / 10 / count).toFixed(1)} pieces a second and page`, 'at most 1 core');
  print('memory of a page', `${((followed.bytes - alone.bytes) / 1024 / count).toFixed(0)} KiB`, 'at most 64 KiB');
});
