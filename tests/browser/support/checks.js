// What holds for every view: axe finds nothing, the HTML is valid, and the layout fits its window.

import { readFileSync } from 'node:fs';

import { HtmlValidate } from 'html-validate';

import { expect } from './test.js';

const AXE = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
const validator = new HtmlValidate({
  extends: ['html-validate:standard', 'html-validate:a11y'],
  rules: {
    // Long words of a standard that both forms keep to.
    'doctype-style': 'off',
    'no-trailing-whitespace': 'off',
    'void-style': 'off',
    // The head of a simple table says by its place what it is the head of.
    'wcag/h63': 'off',
    // A button sends its form unless it says otherwise, as HTML has it.
    'no-implicit-button-type': 'off',
    // A dialog has a name as well.
    'aria-label-misuse': ['error', { allowAnyNamable: true }],
  },
});

export const THEMES = ['dark', 'light'];
export const WIDTHS = [390, 1024, 1920];

// No violation of axe, in both themes.
export async function accessible(page, what) {
  if (!await page.evaluate(() => 'axe' in window)) await page.evaluate(AXE);
  for (const theme of THEMES) {
    await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
    const found = await page.evaluate(async () => {
      const { violations } = await window.axe.run(document, {
        runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
        resultTypes: ['violations'],
      });
      return violations.map(({ id, nodes }) => ({
        id, at: nodes.map((node) => `${node.target.join(' ')}: ${node.failureSummary}`),
      }));
    });
    expect.soft(found, `${what}, ${theme}`).toEqual([]);
  }
}

// What the server sends is valid HTML.
export async function valid(page, url, what) {
  const answer = await page.context().request.get(url);
  await validText(await answer.text(), `${what}: ${url}`);
}

// What stands in the page now is valid HTML, with all that was put in place since it was loaded.
export async function validNow(page, what) {
  const shown = await page.evaluate(() => document.documentElement.outerHTML);
  await validText(`<!DOCTYPE html>\n${shown}`, `${what}, as it stands`);
}

// A text is valid HTML.
export async function validText(text, what) {
  const report = await validator.validateString(text);
  const wrong = report.results.flatMap(({ messages }) =>
    messages.map(({ ruleId, message, line, selector }) => `${line}: ${ruleId}: ${message} (${selector})`));
  expect.soft(wrong, what).toEqual([]);
}

// Nothing is wider than the window, and no two controls that can be seen lie on each other.
export async function fits(page, what) {
  const wrong = await page.evaluate(() => {
    const wrong = [];
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) {
      const wide = [...document.body.querySelectorAll('*')].filter((one) =>
        one.getBoundingClientRect().right > root.clientWidth + 1 && !one.closest('pre, table, [data-scrolls]'));
      wrong.push(`${root.scrollWidth} px wide: ${wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 90))}`);
    }
    const open = document.querySelector('dialog[open]') ?? document;
    // What sticks to the window lies on what is scrolled under it, and is meant to.
    const layer = (one) => {
      for (let at = one; at; at = at.parentElement) {
        if (['fixed', 'sticky'].includes(getComputedStyle(at).position)) return at;
      }
      return null;
    };
    const controls = [...open.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary')]
      .filter((one) => one.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }))
      .map((one) => ({ one, box: one.getBoundingClientRect() }))
      .filter(({ one, box }) => {
        const middle = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
        return box.width > 1 && box.height > 1 && middle && (one === middle || one.contains(middle) || middle.contains(one));
      });
    for (const [at, a] of controls.entries()) {
      for (const b of controls.slice(at + 1)) {
        if (a.one.contains(b.one) || b.one.contains(a.one) || layer(a.one) !== layer(b.one)) continue;
        const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
        const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
        if (across > 2 && down > 2) wrong.push(`${a.one.outerHTML.slice(0, 90)} lies on ${b.one.outerHTML.slice(0, 90)}`);
      }
    }
    return wrong;
  });
  expect.soft(wrong, what).toEqual([]);
}

// A picture of the page, also kept where the command line asked for that.
export function picture(page, name) {
  const folder = process.env.CONJURE_BROWSER_PICTURES;
  return page.screenshot({ path: folder && `${folder}/${name}.png` });
}
