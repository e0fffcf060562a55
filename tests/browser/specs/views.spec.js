// Every view and dialog: no violation of axe, valid HTML, and a layout that fits and looks as it did, in
// three widths and both themes. What is there for a while only is held to the first two in
// `states.spec.js`, and to the others here.

import { writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

import { WIDTHS, THEMES, accessible, fits, picture, valid } from '../support/checks.js';
import { compare, kept, sameFont, still } from '../support/pictures.js';
import { furnish, linger, states, views, visit, visitState } from '../support/stage.js';
import { expect, test } from '../support/test.js';

test.setTimeout(360_000);

test('axe finds nothing in any view and dialog, dark and light', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  for (const view of views(ids)) {
    await visit(page, view);
    await accessible(page, view[0]);
  }
});

test('every view is valid HTML', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  for (const [name, url, , alone] of views(ids)) {
    await valid(page, `${server.url}${alone ?? url}`, name);
  }
});

// Looks at a view in each width and theme: it fits. The pictures of it.
async function looked(page, name, goes, widths = WIDTHS) {
  const pictures = [];
  for (const width of widths) {
    await page.setViewportSize({ width, height: width < 500 ? 844 : 1080 });
    await goes();
    await still(page);
    for (const [row, colorScheme] of THEMES.entries()) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await fits(page, `${name} at ${width}, ${colorScheme}`);
      const one = `${name}-${width}-${colorScheme}`;
      pictures.push({ name: one, column: WIDTHS.indexOf(width), row, png: await picture(page, one) });
    }
  }
  return pictures;
}

// A page that scrolls to no side in a window of 1280 by 800, of which a zoom of 200 % leaves half.
async function readAtTwice(page, name, goes) {
  await page.setViewportSize({ width: 640, height: 400 });
  await goes();
  const { scrollWidth, clientWidth } = await page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    return { scrollWidth, clientWidth };
  });
  expect.soft(scrollWidth, name).toBeLessThanOrEqual(clientWidth);
}

test('every view fits a phone, a laptop and a wide screen, and looks as it did', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  const isComparable = await sameFont(page);
  for (const view of views(ids)) {
    const pictures = await looked(page, view[0], () => visit(page, view));
    if (isComparable) await compare(page, view[0], pictures);
  }
});

test('every view is read at 200 % without scrolling to the side', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  for (const view of views(ids)) await readAtTwice(page, view[0], () => visit(page, view));
});

test('every picture that is kept is of a view', () => {
  const known = [...views({}).map(([name]) => name), ...states({}).map(({ name }) => name)];
  expect(new Set(known).size).toBe(known.length);
  expect(kept().filter((name) => !known.includes(name))).toEqual([]);
});

test.describe('what is there for a while only, or after something was done', () => {
  test.use({ plugins: [process.env.CONJURE_PLUGIN_LOCAL, process.env.CONJURE_PLUGIN_MCP] });

  // What lingers on a server with something to see in it, each with who looks.
  async function stage({ page, visitor, server, model, session, expected }) {
    // The status of what is refused, and a file that is read from disk.
    expected.push(/Failed to load resource: the server responded with a status of 40[14]/, /^request to elsewhere: file:/);
    const ids = await furnish({ server, model, session });
    await linger({ server, model, session });
    const answer = await fetch(`${server.url}/api/v1/threads/${ids.thread}/export/html`, { headers: server.token });
    const file = `${server.root}/tmp/shared.html`;
    writeFileSync(file, await answer.text());
    const all = states(ids, { stranger: await visitor(), login: server.url, shared: pathToFileURL(file).href });
    return all.map((state) => ({ page, ...state }));
  }

  test('it fits a phone, a laptop and a wide screen, and looks as it did', async ({ page, visitor, server, model, session, expected }) => {
    const all = await stage({ page, visitor, server, model, session, expected });
    const isComparable = await sameFont(page);
    for (const state of all) {
      const pictures = await looked(state.page, state.name, () => visitState(state.page, state), state.widths);
      if (isComparable) await compare(page, state.name, pictures);
    }
  });

  test('it is read at 200 % without scrolling to the side', async ({ page, visitor, server, model, session, expected }) => {
    for (const state of await stage({ page, visitor, server, model, session, expected })) {
      await readAtTwice(state.page, state.name, () => visitState(state.page, state));
    }
  });
});
