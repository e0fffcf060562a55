// What a view looks like, held against a small picture of it in `pictures/`: one file a view, with its
// three widths beside each other, dark above light, a cell for each square of pixels. Letters are gone at
// that size, so a time or a path may be another one; what moved, vanished or changed its colour shows.
// `CONJURE_WRITE_FIXTURES=1 cargo xtask browser -- views` takes them anew; look at what it wrote.

import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { expect } from './test.js';

const FOLDER = join(__dirname, '../pictures');
const FONT = join(FOLDER, 'font.json');
const WRITES = Boolean(process.env.CONJURE_WRITE_FIXTURES);
// Pixels of a side of a cell.
const CELL = 12;
// How far a channel of a cell may be away, of 255, and how many cells of a picture may be further.
const NEAR = 24;
const FEW = 0.005;

// The package of the font that the pictures were taken with; install.sh installs it.
const FONTS = 'fonts-dejavu-core';

// Letters of another font lie elsewhere: then there is nothing to compare with, which is an error where
// all that should run has to. Says whether it is the same.
export async function sameFont(page) {
  const width = await page.evaluate(() => {
    const pen = document.createElement('canvas').getContext('2d');
    const { fontFamily } = getComputedStyle(document.body);
    pen.font = `100px ${fontFamily}`;
    return Math.round(pen.measureText('The lighthouse keeper reads 1,024 pages.').width);
  });
  if (WRITES) {
    mkdirSync(FOLDER, { recursive: true });
    writeFileSync(FONT, `${JSON.stringify({ width })}\n`);
  }
  if (JSON.parse(readFileSync(FONT, 'utf8')).width === width) return true;
  const why = `this machine shows the page in another font than that of the pictures: install ${FONTS}, and make it the system's`;
  if (process.env.CI) throw new Error(`pictures cannot be compared: ${why}`);
  console.log(`pictures are not compared: ${why}`);
  return false;
}

// The names of the pictures that are kept.
export function kept() {
  return readdirSync(FOLDER).filter((name) => name.endsWith('.png')).map((name) => name.replace(/\.png$/, ''));
}

// Makes a view look as it does every time: from its beginning, and with the same time wherever one was
// measured, since lines break elsewhere when a call took longer.
export async function still(page) {
  await page.evaluate(async () => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const { currentNode: text } = texts;
      const same = text.data.replace(/\b\d+(\.\d+)? (ms|s|min)\b/g, '10 ms');
      if (same !== text.data) text.data = same;
    }
    scrollTo(0, 0);
    for (const _ of [1, 2]) await new Promise((resolve) => requestAnimationFrame(resolve));
  });
}

// Holds pictures of a view, `{ name, column, row, png }`, against what is kept of it.
export async function compare(page, view, pictures) {
  const file = join(FOLDER, `${view}.png`);
  // A page of its own, without the rules of the one that is looked at.
  const table = await page.context().newPage();
  const { sheet, sizes, cells } = await table.evaluate(reduce, {
    pictures: pictures.map((one) => ({ ...one, png: one.png.toString('base64') })),
    kept: existsSync(file) && !WRITES ? readFileSync(file, 'base64') : null,
    cell: CELL,
    near: NEAR,
  });
  await table.close();
  if (WRITES) {
    writeFileSync(file, Buffer.from(sheet, 'base64'));
    return;
  }
  const wrong = cells.flatMap((other, at) => other > FEW * sizes[at]
    ? [`${pictures[at].name}: ${other} of ${sizes[at]} cells look different`] : []);
  if (!existsSync(file)) wrong.push('no picture of it is kept: look at it, and take one as this file says');
  if (wrong.length > 0) {
    const output = join(process.env.CONJURE_BROWSER_OUTPUT, 'pictures');
    mkdirSync(output, { recursive: true });
    writeFileSync(join(output, `${view}.png`), Buffer.from(sheet, 'base64'));
    for (const { name, png } of pictures) writeFileSync(join(output, `${name}.png`), png);
    wrong.push(`as it is now: ${output}; as it was: pictures/${view}.png`);
  }
  expect.soft(wrong, view).toEqual([]);
}

// In a browser: makes the cells of all pictures, puts them on one sheet, and counts those that are
// another colour on the sheet that was kept; all of them where that has none.
async function reduce({ pictures, kept, cell, near }) {
  const bitmap = async (base64) =>
    createImageBitmap(await (await fetch(`data:image/png;base64,${base64}`)).blob());
  const pixels = (image) => {
    const pen = new OffscreenCanvas(image.width, image.height).getContext('2d');
    pen.drawImage(image, 0, 0);
    return pen.getImageData(0, 0, image.width, image.height);
  };
  const small = [];
  for (const { column, row, png } of pictures) {
    const { width, height, data } = pixels(await bitmap(png));
    const cells = new ImageData(Math.ceil(width / cell), Math.ceil(height / cell));
    for (let y = 0; y < cells.height; y += 1) {
      for (let x = 0; x < cells.width; x += 1) {
        const sum = [0, 0, 0];
        let seen = 0;
        for (let down = y * cell; down < Math.min(height, (y + 1) * cell); down += 1) {
          for (let across = x * cell; across < Math.min(width, (x + 1) * cell); across += 1) {
            const at = 4 * (down * width + across);
            for (const channel of [0, 1, 2]) sum[channel] += data[at + channel];
            seen += 1;
          }
        }
        cells.data.set([...sum.map((one) => Math.round(one / seen)), 255], 4 * (y * cells.width + x));
      }
    }
    small.push({ column, row, cells });
  }
  const spans = (key, size) => {
    const spans = [];
    for (const one of small) spans[one[key]] = Math.max(spans[one[key]] ?? 0, one.cells[size]);
    return spans;
  };
  const widths = spans('column', 'width');
  const heights = spans('row', 'height');
  const before = (sizes, index) => sizes.slice(0, index).reduce((sum, one) => sum + (one ?? 0), 0);
  const sheet = new OffscreenCanvas(before(widths, widths.length), before(heights, heights.length));
  const pen = sheet.getContext('2d');
  for (const one of small) pen.putImageData(one.cells, before(widths, one.column), before(heights, one.row));
  const old = kept && await bitmap(kept);
  const same = old && old.width === sheet.width && old.height === sheet.height ? pixels(old) : null;
  const different = ({ column, row, cells }) => {
    if (!same) return cells.width * cells.height;
    let different = 0;
    for (let y = 0; y < cells.height; y += 1) {
      for (let x = 0; x < cells.width; x += 1) {
        const here = 4 * (y * cells.width + x);
        const there = 4 * ((y + before(heights, row)) * same.width + x + before(widths, column));
        const far = [0, 1, 2].some((channel) => Math.abs(cells.data[here + channel] - same.data[there + channel]) > near);
        if (far) different += 1;
      }
    }
    return different;
  };
  const bytes = new Uint8Array(await (await sheet.convertToBlob({ type: 'image/png' })).arrayBuffer());
  return {
    sheet: btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')),
    sizes: small.map(({ cells }) => cells.width * cells.height),
    cells: small.map(different),
  };
}
