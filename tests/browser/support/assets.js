// What a page loads beside itself.

import { gzipSync } from 'node:zlib';

// Script and style of the page that is looked at: the name and the compressed bytes of each.
export async function scriptAndStyle(page) {
  const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name));
  const assets = [];
  for (const name of loaded.filter((name) => /\.(js|css)$/.test(name))) {
    const answer = await page.context().request.get(name);
    assets.push({ name, bytes: gzipSync(await answer.body()).length });
  }
  return assets;
}
