// Canonical JSON (keys in UTF-16 order, at every depth) and the id of a delta, which is the hash of its content.

import { sha256Hex } from "./sha256.js";

/** The canonical text of a JSON value; what JSON cannot hold becomes null. */
export function canonicalJson(value) {
  if (value === undefined || value === null) return "null";
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  // Written by hand: an object would put integer-like keys first.
  const members = Object.keys(value)
    .filter((name) => value[name] !== undefined)
    .sort()
    .map((name) => `${JSON.stringify(name)}:${canonicalJson(value[name])}`);
  return `{${members.join(",")}}`;
}

/** The id that a delta's content has; `op` is no part of it. */
export function deltaId({ clientId, hlc, table, rowId, columns }) {
  return sha256Hex(canonicalJson({ clientId, columns, hlc: String(hlc), rowId, table }));
}
