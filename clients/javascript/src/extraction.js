// A delta from two versions of a row: only the columns that changed.

import { canonicalJson, deltaId } from "./identity.js";

/** The delta between two versions (null: not there), or null where nothing changed. */
export function extract(before, after, { table, rowId, clientId, hlc }) {
  const change = changed(before, after);
  if (change === null) return null;
  const delta = { op: change.op, table, rowId, clientId, columns: change.columns, hlc: String(hlc) };
  return { ...delta, deltaId: deltaId(delta) };
}

function changed(before, after) {
  if (before === null && after === null) return null;
  if (after === null) return { op: "DELETE", columns: [] };
  if (before === null) return { op: "INSERT", columns: entries(Object.keys(after), after) };
  const names = [
    ...Object.keys(before).filter((name) => Object.hasOwn(after, name) && !same(before[name], after[name])),
    ...Object.keys(after).filter((name) => !Object.hasOwn(before, name)),
  ];
  return names.length === 0 ? null : { op: "UPDATE", columns: entries(names, after) };
}

function entries(names, row) {
  return names.map((column) => ({ column, value: plain(row[column]) }));
}

/** At the top -0 differs from 0 and NaN is itself; below, canonical text decides. */
function same(one, other) {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  return Array.isArray(one) === Array.isArray(other) && canonicalJson(one) === canonicalJson(other);
}

/** The value as JSON carries it. */
function plain(value) {
  return value === undefined ? null : JSON.parse(JSON.stringify(value) ?? "null");
}
