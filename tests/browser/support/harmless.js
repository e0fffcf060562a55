// What has to hold wherever hostile words are shown.

import { UNSEEN } from './hostile.js';
import { expect } from './test.js';

// Nothing was done, nothing came in, and no character is there that nobody sees. With `opens` everything
// that is folded is looked into as well.
export async function harmless(page, where, { opens = false } = {}) {
  const found = await page.evaluate(({ unseen, opens }) => {
    // Also what is far from sight is there when it is printed.
    dispatchEvent(new Event('beforeprint'));
    if (opens) for (const one of document.querySelectorAll('main details:not(.menu)')) one.open = true;
    const wrong = [];
    const say = (what, one) => wrong.push(`${what}: ${one.outerHTML.slice(0, 120)}`);
    if (window.hit) wrong.push('something ran');

    for (const one of document.scripts) {
      if (!/^\/assets\/page-[0-9a-f]+\.js$/.test(one.getAttribute('src') ?? '')) say('a script', one);
    }
    const never = 'iframe, frame, frameset, object, embed, applet, portal, fencedframe, base, style, math, animate, set, use, foreignObject, '
      + 'image, feImage, marquee, plaintext, xmp, noembed, video, audio, source, track, picture, map, area, mglyph, x, dialog dialog, main dialog, '
      + 'main template, svg:not(.picture, .bar), meta[http-equiv], link:not([rel=icon], [rel=stylesheet]), link[href^="http"], link[href^="//"], '
      + 'main .toast, [name=body], [name=cookie], [name=scripts], [name=scrollingElement], [contenteditable]';
    for (const one of document.querySelectorAll(never)) say('an element that is never there', one);
    for (const one of document.querySelectorAll('*')) {
      for (const { name, value } of one.attributes) {
        if (/^on|^(ping|background|srcset|poster|usemap|srcdoc)$/i.test(name)) say(`the attribute ${name}`, one);
        // The height of what is put away is the page's own.
        if (name === 'style' && !one.matches('[data-chunk]')) say('a style', one);
        const place = value.replace(/[\u0000-\u0020]/g, '');
        if (/^((xlink:)?href|src|action|formaction)$/i.test(name) && /^((javascript|vbscript|blob|file):|data:(text|image\/svg))/i.test(place)) say('a place', one);
      }
    }
    for (const form of document.querySelectorAll('form')) {
      if (new URL(form.getAttribute('action') ?? '', location).origin !== location.origin) say('a form of another place', form);
    }
    for (const image of document.images) {
      if (new URL(image.getAttribute('src'), location).origin !== location.origin && !/^data:image\/png/.test(image.src)) say('an image of another place', image);
    }
    for (const link of document.querySelectorAll('main a[href^="http"]')) {
      if (!/noopener/.test(link.rel)) say('without rel', link);
    }

    // Where words of others are, is what Markdown and colours of code are made of, and no more.
    const made = 'A BLOCKQUOTE BR BUTTON CODE DEL DIV EM FIGCAPTION FIGURE H1 H2 H3 H4 H5 H6 HR INPUT LI OL P PRE SPAN STRONG TABLE TBODY TD TH THEAD TR UL'.split(' ');
    const may = 'class href target rel type checked disabled start align tabindex data-copy aria-label role scope'.split(' ');
    for (const one of document.querySelectorAll('main :is(.text, .said, pre, .brief) *')) {
      const isNamed = one.closest('#live') === null;
      if (!made.includes(one.tagName)) say('an element among words', one);
      for (const { name } of one.attributes) {
        if (!may.includes(name) && (name !== 'id' || isNamed)) say(`the attribute ${name} among words`, one);
      }
      if (one.matches('button:not([data-copy]), input:not([type=checkbox][disabled])')) say('a control among words', one);
    }

    // Nothing took a name of the page's.
    const ids = [...document.querySelectorAll('[id]')].map((one) => one.getAttribute('id'));
    const twice = ids.filter((id, at) => ids.indexOf(id) !== at);
    if (twice.length) wrong.push(`there twice: ${twice}`);
    for (const id of ['toasts', 'dialog', 'lost', 'announce']) {
      if (document.getElementById(id)?.parentElement !== document.body) wrong.push(`#${id} is not the page's own`);
    }
    if (document.body.tagName !== 'BODY' || document.scrollingElement !== document.documentElement) wrong.push('the document was clobbered');

    for (const text of [document.body.innerText, document.title]) {
      const seen = text.match(new RegExp(unseen, 'gu'));
      if (seen) wrong.push(`characters that nobody sees: ${seen.map((one) => one.codePointAt(0).toString(16))}`);
    }
    return wrong;
  }, { unseen: UNSEEN, opens });
  expect(found, where).toEqual([]);
}

// A word as it is shown: without what nobody sees.
export function shown(word) {
  return word.replace(new RegExp(`${UNSEEN}|\\r|\\u200c|\\u200d`, 'gu'), '').trim();
}
