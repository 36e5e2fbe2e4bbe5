"use strict";
// Search, filters, order and pages of the listed rows. The state lives in the address (#q=…&kind=…), so that a view can be linked to.
const PAGE = 200;
const body = document.getElementById("listed");
const search = document.getElementById("search");
const rows = [...body.children].map(row => ({
  row,
  text: row.textContent.toLowerCase(),
  changed: JSON.parse((row.dataset.changed ? row : row.querySelector("[data-changed]"))?.dataset.changed || "[]"),
}));
const original = [...rows];
const state = { kinds: [], column: "", page: 0, sorted: -1, down: false };

function chosen({ row, text, changed }) {
  return (!state.kinds.length || state.kinds.includes(row.dataset.kind))
    && (!state.column || changed.includes(state.column))
    && text.includes(search.value.toLowerCase());
}

function show() {
  const found = rows.filter(chosen);
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  state.page = Math.min(state.page, pages - 1);
  const visible = new Set(found.slice(state.page * PAGE, (state.page + 1) * PAGE));
  for (const each of rows) each.row.hidden = !visible.has(each);
  const shown = document.getElementById("shown");
  const total = Number(shown.dataset.total || rows.length);
  const text = number => number.toLocaleString("en");
  shown.textContent = found.length < rows.length && rows.length < total
    ? `${text(found.length)} of the ${text(rows.length)} listed, ${text(total)} in all` : `${text(found.length)} of ${text(total)} listed`;
  document.getElementById("page").textContent = `page ${state.page + 1} of ${pages}`;
  document.getElementById("back").disabled = state.page === 0;
  document.getElementById("on").disabled = state.page === pages - 1;
  for (const button of document.querySelectorAll("[data-only]")) {
    button.setAttribute("aria-pressed", String(state.kinds.includes(button.dataset.only)));
  }
  for (const button of document.querySelectorAll("[data-column]")) {
    button.setAttribute("aria-pressed", String(button.dataset.column === state.column));
  }
}

function remember() {
  const address = new URLSearchParams();
  if (search.value) address.set("q", search.value);
  for (const kind of state.kinds) address.append("kind", kind);
  if (state.column) address.set("column", state.column);
  history.replaceState(null, "", "#" + address);
  state.page = 0;
  show();
}

function readAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  search.value = address.get("q") || "";
  state.kinds = address.getAll("kind");
  state.column = address.get("column") || "";
  show();
}

function order(at) {
  if (state.sorted === at && state.down) {
    state.sorted = -1;
    rows.splice(0, rows.length, ...original);
  } else {
    state.down = state.sorted === at;
    state.sorted = at;
    const value = ({ row: { children: { [at]: cell } } }) => cell?.dataset.sort ?? (cell?.querySelector("ins") ?? cell)?.textContent ?? "";
    const compare = new Intl.Collator(undefined, { numeric: true }).compare;
    rows.sort((a, b) => (state.down ? -1 : 1) * compare(value(a), value(b)));
  }
  body.append(...rows.map(each => each.row));
  show();
}

addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.only) {
    state.kinds = state.kinds.length === 1 && state.kinds[0] === button.dataset.only ? [] : [button.dataset.only];
    remember();
  } else if (button.dataset.column !== undefined) {
    state.column = state.column === button.dataset.column ? "" : button.dataset.column;
    remember();
  } else if (button.classList.contains("sort")) order([...button.closest("tr").children].indexOf(button.closest("th")));
  else if (button.id === "back") { state.page -= 1; show(); }
  else if (button.id === "on") { state.page += 1; show(); }
});
search.addEventListener("input", remember);
const narrow = document.getElementById("narrow");
const showColumns = () => document.querySelector(".changes").classList.toggle("narrow", narrow.checked);
narrow?.addEventListener("change", showColumns);
if (narrow && matchMedia("(max-width: 760px)").matches && body.querySelector("del")) {
  narrow.checked = true; // a narrow screen has no room for what did not change
  showColumns();
}
addEventListener("hashchange", readAddress);
readAddress();
