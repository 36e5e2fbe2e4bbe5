"use strict";
// Reading needs none of this: links and forms work alone. It swaps the view without a full load, adds keys, progress and drops.

const view = () => document.getElementById("view");
const token = () => document.querySelector("meta[name=form-token]").content;

// --- light or dark ---------------------------------------------------------------------------------------------------

const stored = localStorage.getItem("theme");
if (stored) document.documentElement.dataset.theme = stored;

function switchTheme() {
  const page = document.documentElement;
  const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  page.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", page.dataset.theme);
}

// --- swapping the view -----------------------------------------------------------------------------------------------

let latest = 0;

// Where each address was scrolled to, so that going back or loading again returns to that place.
let shown = location.href;
const panes = () => [document.scrollingElement, ...document.querySelectorAll("[data-keep]")];
const keepPlace = () => sessionStorage.setItem(`at ${shown}`, JSON.stringify(panes().map(pane => [pane.scrollLeft, pane.scrollTop])));
function returnTo(places) {
  panes().forEach((pane, at) => places?.[at] && pane.scrollTo(...places[at]));
}
const placeOf = address => JSON.parse(sessionStorage.getItem(`at ${address}`));

addEventListener("pagehide", keepPlace);
history.scrollRestoration = "manual";
if (performance.getEntriesByType("navigation")[0]?.type !== "navigate") returnTo(placeOf(shown));

async function show(address, remember = true) {
  const mine = ++latest;
  const focused = document.activeElement?.id;
  view().classList.add("busy");
  const answer = await fetch(address, { headers: { "x-fragment": "1" } }).catch(() => null);
  if (mine !== latest) return; // a newer wish is under way
  if (!answer || !answer.ok || answer.redirected) return location.assign(address);
  const text = await answer.text();
  keepPlace();
  const list = document.querySelector("aside[data-keep]")?.scrollTop;
  const typed = document.activeElement?.matches(".tools input[type=search]") ? document.activeElement : null;
  view().innerHTML = text;
  view().classList.remove("busy");
  if (remember) history.pushState(null, "", address);
  shown = location.href;
  if (remember) document.querySelector("aside[data-keep]")?.scrollTo(0, list);
  else returnTo(placeOf(shown));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  if (typed && document.activeElement.id === typed.id) { // what was typed since the request stays, with the place in it
    document.activeElement.value = typed.value;
    document.activeElement.setSelectionRange(typed.selectionStart, typed.selectionEnd);
  }
  waitForCounts();
}

function addressOf(form) {
  const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""));
  return `${form.getAttribute("action")}?${query}`;
}

function waitForCounts() {
  if (document.getElementById("counting")) setTimeout(() => document.getElementById("counting") && show(location.href, false), 500);
}

addEventListener("popstate", () => view() && location.href.split("#")[0] !== shown.split("#")[0] && show(location.href, false));

addEventListener("submit", event => {
  if (!event.target.matches("form[data-swap]")) return;
  event.preventDefault();
  show(addressOf(event.target));
});

// A form that starts something is sent once, however often its button is clicked; going back to it frees it.
const sent = new Set();
addEventListener("submit", event => {
  if (event.target.method !== "post") return;
  if (sent.has(event.target)) event.preventDefault();
  sent.add(event.target);
});
addEventListener("pageshow", () => sent.clear());

let typing;
addEventListener("input", event => {
  const form = event.target.closest("form.tools");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => show(addressOf(form)), event.target.type === "search" ? 350 : 0);
});

// --- clicks and keys -------------------------------------------------------------------------------------------------

addEventListener("click", event => {
  const link = event.target.closest("a[data-swap]");
  if (link && !(event.ctrlKey || event.metaKey || event.shiftKey || event.button)) {
    event.preventDefault();
    show(link.getAttribute("href"));
  } else if (event.target.closest("#theme")) switchTheme();
  else if (event.target.closest("[data-keys]")) document.getElementById("keys").showModal();
  else if (event.target.closest("#copy")) copyLink(event.target.closest("#copy"));
  else if (event.target.closest("#swap")) swapSides();
  else if (event.target.dataset?.fill) event.target.form.elements[event.target.dataset.fill].value = event.target.value;
  else if (event.target.closest("#count-now")) preview({ now: "1" });
});

async function copyLink(button) {
  await navigator.clipboard?.writeText(location.href);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

function moveRow(step) {
  const rows = [...document.querySelectorAll(".changes tbody tr")];
  const at = rows.indexOf(document.activeElement);
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))];
  next?.focus({ preventScroll: true });
  next?.scrollIntoView({ block: "nearest" });
}

const press = selector => document.querySelector(selector)?.click();
const KEYS = {
  "/": () => document.getElementById("search")?.focus(),
  "j": () => moveRow(1),
  "k": () => moveRow(-1),
  "a": () => press("[data-kind=added]"),
  "r": () => press("[data-kind=removed]"),
  "c": () => press("[data-kind=changed]"),
  "t": switchTheme,
  "?": () => document.getElementById("keys").showModal(),
  "ArrowRight": () => press("a[rel=next]"),
  "ArrowLeft": () => press("a[rel=prev]"),
};

addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const act = KEYS[event.key];
  if (!act || document.querySelector("dialog[open]")) return;
  event.preventDefault();
  act();
});

// --- progress --------------------------------------------------------------------------------------------------------

async function follow(job) {
  const answer = await fetch(job.dataset.address, { headers: { "x-progress": "1" } }).catch(() => null);
  if (!answer || answer.redirected || !answer.headers.get("content-type").includes("json")) return location.reload();
  const state = await answer.json();
  if (state.done) return location.reload();
  document.getElementById("phase").textContent = state.phase;
  document.getElementById("left").textContent = state.percent === null ? "" : `${state.percent} %`;
  const bar = document.getElementById("bar");
  if (state.percent === null) bar.removeAttribute("value"); else bar.value = state.percent;
  setTimeout(() => follow(job), 300);
}

// --- choosing and dropping -------------------------------------------------------------------------------------------

function swapSides() {
  const { a, b } = document.getElementById("compare").elements;
  [a.value, b.value] = [b.value, a.value];
  offerKeys();
}

let offering = 0;

async function offerKeys() {
  const { a, b } = document.getElementById("compare").elements;
  const mine = ++offering;
  if (!a.value || !b.value) return;
  const query = new URLSearchParams({ a: a.value, b: b.value });
  const answer = await fetch(`/columns?${query}`, { headers: { "x-fragment": "1" } }).catch(() => null);
  const text = answer?.ok ? await answer.text() : null;
  if (mine !== offering) return; // other files were chosen since
  const columns = document.getElementById("columns");
  if (text !== null) columns.innerHTML = text;
  const chosen = JSON.parse(columns.dataset.chosen);
  if (chosen.length) for (const box of columns.querySelectorAll("input[name=key]")) box.checked = chosen.includes(box.value);
  preview();
}

let counting = new AbortController();
let waiting;

function previewSoon() {
  clearTimeout(waiting);
  waiting = setTimeout(preview, 400);
}

// What the rules do to the counts; a newer wish ends the older one, also on the server.
async function preview(more = {}) {
  const form = document.getElementById("compare");
  const { a, b } = form.elements;
  const place = document.getElementById("preview");
  if (!a.value || !b.value) return;
  counting.abort();
  counting = new AbortController();
  const body = new URLSearchParams([...new FormData(form), ...Object.entries(more)]);
  place.classList.add("busy");
  try {
    const answer = await fetch("/preview", { method: "POST", body, signal: counting.signal, headers: { "x-fragment": "1" } });
    if (answer.headers.get("content-type").includes("html")) {
      place.innerHTML = await answer.text();
      if (place.querySelector(".problem, table")) document.getElementById("refused")?.remove(); // the preview is newer
    } else place.replaceChildren(problem((await answer.json()).message));
  } catch (error) {
    if (error.name === "AbortError") return;
    place.replaceChildren(problem("This console does not answer: start driftline ui again."));
  }
  place.classList.remove("busy");
}

function problem(words) {
  const line = document.createElement("p");
  line.className = "problem";
  line.textContent = words;
  return line;
}

async function takeDrop(event) {
  event.preventDefault();
  const fields = [...event.currentTarget.document.querySelectorAll("[data-drop]")];
  const note = document.getElementById("drop-note");
  let at = fields.indexOf(event.target.closest("[data-drop]"));
  if (at < 0) at = Math.max(0, fields.findIndex(field => !field.value));
  for (const file of [...event.dataTransfer.files].slice(0, fields.length)) {
    note.textContent = `taking ${file.name} …`;
    const headers = { "x-form-token": token() };
    const answer = await fetch(`/uploads/${encodeURIComponent(file.name)}`, { method: "PUT", body: file, headers });
    const told = await answer.json();
    note.textContent = answer.ok ? "" : told.message;
    if (!answer.ok) return;
    fields[at].value = told.name;
    at = (at + 1) % fields.length;
  }
  if (document.getElementById("compare")) offerKeys();
}

// The revisions that are offered are those of the chosen repository.
document.querySelector("select[name=repository]")?.addEventListener("change", async event => {
  const answer = await fetch(`/code/revisions?${new URLSearchParams({ repository: event.target.value })}`);
  const names = answer.ok ? await answer.json() : [];
  document.getElementById("revisions").replaceChildren(...names.map(name => new Option(name, name)));
});

const job = document.getElementById("job");
if (job && document.getElementById("bar")) follow(job);
if (document.querySelector("[data-drop]")) {
  addEventListener("dragover", event => event.preventDefault());
  addEventListener("drop", takeDrop);
}
if (document.getElementById("compare")) {
  const fields = [..."ab"].map(side => document.getElementById("compare").elements[side]);
  const isBack = performance.getEntriesByType("navigation")[0]?.type === "back_forward"; // the browser keeps the rules only
  for (const field of fields) if (isBack && !field.value) field.value = sessionStorage.getItem(`side ${field.name}`) ?? "";
  addEventListener("pagehide", () => fields.forEach(field => sessionStorage.setItem(`side ${field.name}`, field.value)));
  for (const side of "ab") document.getElementById("compare").elements[side].addEventListener("change", offerKeys);
  document.getElementById("compare").addEventListener("input", event => event.target.dataset.drop ?? previewSoon());
  offerKeys();
}
// A narrow screen has no room for what did not change: a diff opens on the columns that changed.
const columnsChosen = document.querySelector("form.tools input[name=cols]");
if (columnsChosen && !columnsChosen.checked && matchMedia("(max-width: 760px)").matches && document.querySelector(".changes del")) {
  columnsChosen.checked = true;
  history.replaceState(null, "", addressOf(columnsChosen.form));
  show(location.href, false);
} else waitForCounts();
// On a narrow screen the list of sections is longer than the screen.
document.querySelector(".bar nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
