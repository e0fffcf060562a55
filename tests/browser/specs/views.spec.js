// Every view and dialog: no violation of axe and a layout that fits, in three widths and both themes,
// and valid HTML. What is compared is the layout, not the pixels: fonts differ from machine to machine.

import { WIDTHS, THEMES, accessible, fits, picture, valid } from '../support/checks.js';
import { furnish, views, visit } from '../support/stage.js';
import { test } from '../support/test.js';

test.setTimeout(240_000);

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

test('every view fits a phone, a laptop and a wide screen', async ({ page, server, model, session }) => {
  const ids = await furnish({ server, model, session });
  for (const view of views(ids)) {
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: width < 500 ? 844 : 1080 });
      // A phone has the navigation in a drawer.
      if (width < 960 && view[0] === 'shortcuts') continue;
      await visit(page, view);
      for (const colorScheme of THEMES) {
        await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
        await fits(page, `${view[0]} at ${width}, ${colorScheme}`);
        await picture(page, `${view[0]}-${width}-${colorScheme}`);
      }
    }
  }
});
