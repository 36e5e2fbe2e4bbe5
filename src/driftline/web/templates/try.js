"use strict";
// Sends what a form says to this very server and shows the answer; nothing is stored and nothing else is asked.

const headersOf = type => {
  const token = [...document.querySelectorAll("input.token")].map(field => field.value.trim()).find(Boolean);
  return { ...(type ? { "content-type": type } : {}), ...(token ? { authorization: `Bearer ${token}` } : {}) };
};

function addressOf(form) {
  let path = form.dataset.path;
  const query = new URLSearchParams();
  for (const field of form.querySelectorAll("input[data-in]")) {
    if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.value) query.set(field.name, field.value);
  }
  return query.size ? `${path}?${query}` : path;
}

async function ask(address, options, outcome) {
  const began = performance.now();
  outcome.textContent = "…";
  const stop = AbortSignal.timeout(35000);
  const answer = await fetch(address, { ...options, signal: stop });
  const stream = answer.headers.get("content-type")?.includes("event-stream");
  const text = stream ? new TextDecoder().decode((await answer.body.getReader().read()).value) : await answer.text();
  outcome.textContent = `${answer.status} in ${Math.round(performance.now() - began)} ms`;
  return text;
}

function indented(text) {
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

async function tryOut(form) {
  const body = form.elements.body?.value;
  const outcome = form.querySelector(".outcome");
  const place = form.querySelector(".answer");
  const options = { method: form.dataset.method, body, headers: headersOf(form.dataset.type) };
  const text = await ask(addressOf(form), options, outcome).catch(error => String(error));
  place.textContent = indented(text);
  place.hidden = false;
}

function line(row, tag, text, name) {
  const cell = row.appendChild(document.createElement(tag));
  cell.textContent = text === undefined ? "" : typeof text === "string" ? text : JSON.stringify(text);
  if (name) cell.className = name;
}

function showReport(report, place) {
  const table = document.createElement("table");
  table.className = "list";
  const head = table.createTHead().insertRow();
  for (const word of ["place", "kind", "old", "new", "why"]) line(head, "th", word);
  const rows = table.createTBody();
  for (const each of [...report.diffs, ...report.warnings]) {
    const row = rows.insertRow();
    line(row, "th", each.path);
    line(row, "td", each.type.replaceAll("_", " ").toLowerCase(), each.severity === "ERROR" ? "wrong" : "doubtful");
    line(row, "td", each.old_value);
    line(row, "td", each.new_value);
    line(row, "td", each.rule_applied ? `${each.message} (${each.rule_applied})` : each.message);
  }
  place.replaceChildren(report.diffs.length + report.warnings.length ? table : document.createTextNode("They match."));
}

async function comparePayloads(form) {
  const { old, new: after, rules } = form.elements;
  const outcome = form.querySelector(".outcome");
  const place = document.getElementById("report");
  try {
    // Sent as they were typed: reading numbers here could round them.
    JSON.parse(old.value); JSON.parse(after.value);
    const fragment = JSON.stringify(rules.value.trim() || "{}");
    const body = `{"old_json":${old.value},"new_json":${after.value},"schema_fragment":${fragment}}`;
    const text = await ask("/v1/compare", { method: "POST", body, headers: headersOf("application/json") }, outcome);
    const told = JSON.parse(text);
    if (told.diffs) showReport(told, place);
    else place.textContent = told.error?.message ?? told.error ?? text;
  } catch (error) {
    outcome.textContent = "";
    place.textContent = String(error);
  }
}

addEventListener("submit", event => {
  event.preventDefault();
  if (event.target.matches("form.try")) tryOut(event.target);
  else if (event.target.id === "payloads") comparePayloads(event.target);
});
