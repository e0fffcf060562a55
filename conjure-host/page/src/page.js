// The module of the page: puts pieces of HTML in place, follows streams, sends forms, opens dialogs, listens to keys.
// The server makes all HTML; each thing here is asked for by a `data-` attribute, and has a link or form under it.

const byId = (id) => document.getElementById(id);
const scroller = document.scrollingElement;
const isAtEnd = () => scroller.scrollTop + innerHeight >= scroller.scrollHeight - 48;
const toEnd = () => scroller.scrollTo(0, scroller.scrollHeight);
const follows = () => document.querySelector("[data-follow]") !== null;

// Pieces: `<template data-swap=HOW data-target=ID>`.
const HOW = { outer: "replaceWith", inner: "replaceChildren", append: "append", prepend: "prepend", remove: "remove" };
function swap(html) {
  if (isPressed) return void waiting.push(html);
  const { content } = Object.assign(document.createElement("template"), { innerHTML: html });
  const wasAtEnd = follows() && isAtEnd();
  for (const piece of [...content.children]) if (piece.dataset.swap) put(piece);
  if (wasAtEnd) toEnd();
  watch();
}

// A press and its release are a click on one and the same element only: what comes between waits.
let isPressed = false, waiting = [];
const press = (is) => { isPressed = is; if (!is) waiting.splice(0).forEach(swap); };
for (const begin of ["pointerdown", "keydown"]) addEventListener(begin, ({ button, ctrlKey, key, target }) => {
  if ((button === 0 || key === " ") && !ctrlKey && target.closest?.("a, button, summary, label, input")) press(true);
});
// The click comes right behind the release; of what is dragged, and behind a menu, there may be none.
for (const end of ["pointerup", "pointercancel", "keyup", "blur", "dragend", "contextmenu"])
  addEventListener(end, () => setTimeout(press, 0, false));

function put({ content, dataset: { swap: how, target: id } }) {
  const target = byId(id);
  // What somebody is editing stays until it is sent.
  if (!target || target.querySelector("[data-escape]:not([hidden], [aria-busy])")) return;
  // What is put in place is read as without script: Enter would press a button of these.
  for (const without of content.querySelectorAll("noscript")) without.remove();
  keep(target, content);
  const focused = target.contains(document.activeElement) ? document.activeElement : null;
  const card = focused?.closest(".entry")?.id;
  // What comes above the reader moves nothing of what they read.
  const mark = target.id === "older" ? target.nextElementSibling : null;
  const top = mark?.getBoundingClientRect().top;
  // What is added is there once: what is there already moves.
  if (how === "append" || how === "prepend") for (const fresh of content.children) byId(fresh.id)?.remove();
  target[HOW[how]]?.(content);
  if (mark) scroller.scrollTop += mark.getBoundingClientRect().top - top;
  // Of what was decided and is there no more, one goes on at its card, or where one writes.
  const next = focused?.isConnected ? null : byId(focused?.id) ?? byId(card)?.querySelector("summary") ?? byId("message");
  if (focused) next?.focus({ preventScroll: true });
  if (target.tagName === "DIALOG") target.childElementCount ? show(target) : target.close();
  if (target.id === "sheet") enter(target);
  if (target.id === "toasts") raise(target.lastElementChild);
}

// What the person opened stays open, wherever it stands now, and what they wrote in a form of the same thing stays.
function keep(target, content) {
  for (const fresh of content.querySelectorAll("details[id]")) fresh.open = byId(fresh.id)?.open ?? fresh.open;
  const form = (field) => field.closest("form")?.getAttribute("action");
  for (const old of target.querySelectorAll("textarea[id], input[id]:not([type=hidden])")) {
    const fresh = content.getElementById(old.id);
    if (!fresh || fresh.getAttribute("aria-invalid") || form(fresh) !== form(old)) continue;
    if (old === document.activeElement || old.value !== old.defaultValue) fresh.value = old.value;
  }
}

// Toasts are over everything, also over a dialog that is open.
function say(textContent) {
  raise(byId("toasts").appendChild(Object.assign(document.createElement("p"), { className: "toast", textContent })));
}
function raise(fresh) {
  const toasts = byId("toasts");
  if (fresh) setTimeout(() => fresh.remove(), 9000);
  if (toasts.matches(":popover-open")) toasts.hidePopover();
  if (toasts.childElementCount) toasts.showPopover();
}

// What comes of a form on a page of its own stands there; all else is a dialog, or named by its piece.
async function ask(url, options = {}, form) {
  const headers = { "x-conjure-pieces": form?.closest("#sheet") ? "sheet" : "1", accept: "text/html" };
  const answer = await fetch(url, { ...options, headers, credentials: "same-origin" }).catch(() => {});
  if (!answer) return say("The server could not be reached. Nothing was lost; try again when it is back.");
  if (answer.status === 401) location.reload();
  const go = answer.headers.get("x-conjure-go");
  if (go) new URL(go, location).href === location.href ? location.reload() : location.assign(go);
  const html = await answer.text();
  if (html.includes("data-swap=")) swap(html);
  else if (!answer.ok) say(`The server answered ${answer.status}.`);
  return answer.ok;
}

addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.dataset.swap === undefined) return;
  event.preventDefault();
  if (form.getAttribute("aria-busy")) return;
  if (uploads && form.querySelector("[data-attach]")) return say("A file is still on its way.");
  form.setAttribute("aria-busy", "true");
  const data = new FormData(form, event.submitter);
  const body = form.getAttribute("enctype") === "multipart/form-data" ? data : new URLSearchParams(data);
  const action = event.submitter?.getAttribute("formaction") || form.getAttribute("action");
  const isGet = form.getAttribute("method")?.toLowerCase() === "get";
  const draft = form.querySelector("[data-draft]"), written = draft?.value;
  const attached = [...form.querySelectorAll("[data-clear] > *")];
  const done = await (isGet ? ask(`${action}?${body}`, {}, form) : ask(action, { method: "POST", body }, form));
  form.removeAttribute("aria-busy");
  if (!done) return;
  // What was written or attached meanwhile was not sent, and stays.
  const isSame = draft?.value === written;
  if (form.dataset.swap === "reset" && isSame) form.reset();
  for (const file of attached) file.remove();
  if (form.dataset.swap === "close") form.closest("dialog")?.close();
  if (draft && isSame) sessionStorage.removeItem(draft.dataset.draft);
});

// What depends on a choice: `data-change=URL` on a select, asked with the values of all of its form.
addEventListener("change", ({ target }) => {
  if (target.dataset?.attach) attach([...target.files]).then(() => { target.value = ""; });
  if (!target.dataset?.change) return;
  const all = [...target.form.querySelectorAll("[data-change]")].map((one) => [one.name, one.value]);
  ask(`${target.dataset.change}?${new URLSearchParams(all)}`);
});

// Streams: `data-stream=URL`, `data-seen` what was seen last. A server that lives says so every 15 seconds.
let source, hidden, silence;
function follow(element) {
  const url = new URL(element.dataset.stream, location);
  if (element.dataset.seen) url.searchParams.set("after", element.dataset.seen);
  source?.close();
  const mine = source = new EventSource(url);
  // Also while it opens: a connection may be taken, and nothing come of it.
  const arm = () => { clearTimeout(silence); silence = setTimeout(() => { mine.close(); lost(); }, 40000); };
  const heard = () => { document.body.removeAttribute("data-lost"); arm(); };
  const lost = async () => {
    if (source !== mine) return;
    document.body.setAttribute("data-lost", "");
    if (mine.readyState !== EventSource.CLOSED) return;
    const answer = await fetch(url, { signal: AbortSignal.timeout(10000) }).catch(() => {});
    if ([401, 403, 404, 410].includes(answer?.status)) return location.reload();
    const problem = answer?.status === 503 ? await answer.json().catch(() => {}) : answer?.body?.cancel();
    // Where too many follow, one that asks again and again makes no room.
    const isFull = problem?.type?.endsWith("too-many-streams");
    if (isFull) say(problem.detail);
    setTimeout(() => source === mine && !document.hidden && follow(element), isFull ? 30000 : 2000);
  };
  for (const sign of ["open", "message", "alive"]) mine.addEventListener(sign, heard);
  mine.onerror = lost;
  mine.onmessage = ({ data, lastEventId: seen }) => { swap(data); if (seen) element.dataset.seen = seen; };
  mine.addEventListener("gone", () => location.reload());
  arm();
}
// A browser opens few connections to a server: a page that nobody looks at follows nothing.
document.addEventListener("visibilitychange", () => {
  const element = document.querySelector("[data-stream]");
  clearTimeout(hidden);
  if (document.hidden) hidden = setTimeout(() => { source = source?.close(); }, 20000);
  else if (element && (!source || source.readyState === EventSource.CLOSED)) follow(element);
});
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

// What is fetched when it comes into sight: `data-fetch=URL`.
const sight = new IntersectionObserver((seen) => {
  for (const { target } of seen.filter((one) => one.isIntersecting && one.target.dataset.fetch)) {
    ask(target.dataset.fetch);
    delete target.dataset.fetch;
  }
}, { rootMargin: "600px" });

// Far from sight a part of a long conversation is put away as it is, and leaves its height: `data-chunk`.
const far = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target, boundingClientRect } of seen) {
    if (isIntersecting) bring(target);
    else if (!target.kept && !target.contains(document.activeElement) && !getSelection().containsNode(target, true)) {
      target.style.height = `${boundingClientRect.height}px`;
      target.kept = new DocumentFragment();
      target.kept.append(...target.childNodes);
    }
  }
}, { rootMargin: "2000px" });
function bring(part) {
  if (part.kept) part.append(part.kept);
  part.kept = part.style.height = "";
}
// All of it is there when it is printed, and when a link leads to a part of it.
const bringAll = () => document.querySelectorAll("[data-chunk]").forEach(bring);
addEventListener("beforeprint", bringAll);
function watch() {
  for (const link of document.querySelectorAll("[data-fetch]")) sight.observe(link);
  for (const part of document.querySelectorAll("[data-chunk]")) far.observe(part);
}

function show(dialog) {
  if (!dialog.open) dialog.showModal();
  raise();
  enter(dialog);
}
// Goes on at what is wrong, else at the first field.
function enter(part) {
  const wrong = [...part.querySelectorAll("[autofocus]")].find((one) => one.checkVisibility());
  (wrong ?? part.querySelector("input:not([type=hidden]), textarea, select"))?.focus();
}

// What was not sent of a dialog is gone with it: the next one may be about another thing.
addEventListener("close", ({ target }) => target.matches("#dialog:not(:has([aria-busy]))") && target.replaceChildren(), true);

addEventListener("click", (event) => {
  const at = (name) => event.target.closest?.(`[data-${name}]`);
  const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
  let element = event.target.closest?.("a[href*='#']");
  if (element?.href.split("#")[0] === location.href.split("#")[0]) bringAll();
  event.target.closest?.(".toast")?.remove();
  if (at("drop")) at("drop").parentElement.remove();
  if (at("close")) at("close").closest("dialog")?.close();
  if ((element = at("open"))) show(byId(element.dataset.open));
  if (plain && (element = at("dialog")) && !element.closest("#sheet")) {
    event.preventDefault();
    ask(element.dataset.dialog || element.href);
  }
  if ((element = at("toggle"))) toggle(element.dataset.toggle);
  if (at("end")) toEnd();
  if ((element = at("copy"))) {
    const from = byId(element.dataset.copy) ?? element.closest("figure, article")?.querySelector("pre, .text");
    // What stands over a block of code is none of it.
    const strip = (is) => from?.querySelectorAll("figcaption").forEach((head) => { head.hidden = is; });
    strip(true);
    navigator.clipboard?.writeText(from?.innerText.replace(/\n$/, "") ?? "").then(() => {
      element.dataset.done = "";
      setTimeout(() => delete element.dataset.done, 1500);
    }, () => say("The browser does not allow copying here."));
    strip(false);
  }
  closeMenus((menu) => !menu.contains(event.target) || event.target.closest(".menu > div"));
});
function closeMenus(which = () => true) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (which(menu)) menu.open = false;
}

// `data-toggle="A B"`: shows what is hidden of these, and hides the rest.
function toggle(ids) {
  for (const element of ids.split(" ").map(byId).filter(Boolean))
    if (!(element.hidden = !element.hidden)) element.querySelector("input:not([type=hidden]), textarea")?.select();
}

// Keys: `data-key="g n"` on what they press.
let before = "";
addEventListener("keydown", (event) => {
  const { key, target } = event;
  const writes = target.matches?.("input, textarea, select");
  if (key === "Enter" && target.matches?.("[data-enter]") && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (target.value.trim() || target.form.querySelector("[data-clear] > *")) target.form.requestSubmit();
  }
  if (key === "Escape") {
    const undone = target.closest?.("[data-escape]");
    if (undone) { undone.reset?.(); toggle(undone.dataset.escape); }
    closeMenus();
    if (writes && !document.querySelector("dialog[open]")) target.blur();
  }
  if (writes || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return void (before = "");
  const keys = before ? `${before} ${key}` : key;
  before = key === "g" && !before ? key : "";
  const all = [...document.querySelectorAll(`[data-key="${CSS.escape(keys)}"]`)];
  const pressed = all.find((one) => one.checkVisibility()) ?? all[0];
  if (!pressed) return;
  event.preventDefault();
  pressed.matches("input, textarea") ? pressed.focus() : pressed.click();
});

// Files: `data-attach=URL` on the field that chooses them; also dropped and pasted ones.
let uploads = 0;
async function attach(files) {
  const field = document.querySelector("[data-attach]");
  for (const file of field ? files : []) {
    const name = encodeURIComponent(file.name || "file");
    uploads += 1;
    await ask(`${field.dataset.attach}?name=${name}`, { method: "POST", body: file }).finally(() => { uploads -= 1; });
  }
}
for (const how of ["dragover", "drop"]) addEventListener(how, (event) => {
  if (event.target.type === "file" || !event.dataTransfer?.types.includes("Files")) return;
  event.preventDefault();
  if (how === "drop") attach([...event.dataTransfer.files]);
});
// Text that has a picture of itself beside it is text, such as of a spreadsheet.
addEventListener("paste", (event) => {
  const files = [...event.clipboardData?.files ?? []], text = event.clipboardData?.getData("text/plain");
  const field = event.target.closest?.("input, textarea");
  if (!files.length || (text && !files.some(({ name }) => text.includes(name))) || (field && !field.dataset.draft)) return;
  event.preventDefault();
  attach(files);
});

// Drafts: `data-draft=NAME` on a field.
addEventListener("input", ({ target }) => {
  if (target.dataset?.draft) sessionStorage.setItem(target.dataset.draft, target.value);
});
for (const field of document.querySelectorAll("[data-draft]")) field.value ||= sessionStorage.getItem(field.dataset.draft) ?? "";
addEventListener("scroll", () => document.body.toggleAttribute("data-away", follows() && !isAtEnd()), { passive: true });
if (follows() && !location.hash) toEnd();
watch();
document.querySelectorAll("[data-stream]").forEach((element) => follow(element));
