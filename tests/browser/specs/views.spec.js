// Every view and dialog: no violation of axe, valid HTML, and a layout that fits and looks as it did, in
// three widths and both themes.

import { WIDTHS, THEMES, accessible, fits, picture, valid } from '../support/checks.js';
import { compare, sameFont, still } from '../support/pictures.js';
import { furnish, views, visit } from '../support/stage.js';
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

test('every view fits a phone, a laptop and a wide screen, and looks as it did', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  const comparable = await sameFont(page);
  if (!comparable) console.log('pictures are not compared: this machine shows the page in another font');
  for (const view of views(ids)) {
    const pictures = [];
    for (const [column, width] of WIDTHS.entries()) {
      await page.setViewportSize({ width, height: width < 500 ? 844 : 1080 });
      // A phone has the navigation in a drawer.
      if (width < 960 && view[0] === 'shortcuts') continue;
      await visit(page, view);
      await still(page);
      for (const [row, colorScheme] of THEMES.entries()) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await fits(page, `${view[0]} at ${width}, ${colorScheme}`);
        const name = `${view[0]}-${width}-${colorScheme}`;
        pictures.push({ name, column, row, png: await picture(page, name) });
      }
    }
    if (comparable) await compare(page, view[0], pictures);
  }
});

test('every view is read at 200 % without scrolling to the side', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  // A window of 1280 by 800, of which a zoom of 200 % leaves half.
  await page.setViewportSize({ width: 640, height: 400 });
  for (const view of views(ids)) {
    if (view[0] === 'shortcuts') continue;
    await visit(page, view);
    const { scrollWidth, clientWidth } = await page.evaluate(() => {
      const { scrollWidth, clientWidth } = document.documentElement;
      return { scrollWidth, clientWidth };
    });
    expect.soft(scrollWidth, view[0]).toBeLessThanOrEqual(clientWidth);
  }
});
