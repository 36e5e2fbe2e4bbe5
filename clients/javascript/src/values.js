// What may be written: values that JSON carries exactly and names that the gateway takes; the rest is refused by name.

import { GatewayError } from "./gateway.js";

const TABLE = /^[A-Za-z][A-Za-z0-9_]{0,63}$/;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const DEPTH = 64;

/** The names of a write, or an error that says what is wrong. */
export function checkNames(table, rowId, columns = {}) {
  if (typeof table !== "string" || !TABLE.test(table)) {
    throw refusal(`table name ${show(table)} is not valid: a letter, then up to 63 letters, digits or _`, "invalid_name");
  }
  if (typeof rowId !== "string" || rowId === "" || !wellFormed(rowId)) {
    throw refusal(`row id ${show(rowId)} is not valid: text that is not empty`, "invalid_name");
  }
  if (columns === null || typeof columns !== "object" || Array.isArray(columns)) {
    throw refusal("the columns of a row are an object", "invalid_value");
  }
  const seen = new Set();
  for (const name of Object.keys(columns)) {
    const folded = name.toLowerCase();
    const wrong = name === "" || [...name].length > 255 || name.startsWith("_") || CONTROL.test(name) || !wellFormed(name);
    if (wrong) {
      const words = "1 to 255 characters, no control characters, not beginning with _";
      throw refusal(`column name ${show(name)} is not valid: ${words}`, "invalid_name");
    }
    if (seen.has(folded)) throw refusal(`column name ${show(name)} stands twice but for its case`, "invalid_name");
    seen.add(folded);
  }
}

/** The columns as the wire carries them; `types` are the exact columns of the table. */
export function toWire(columns, types = {}) {
  return Object.fromEntries(Object.entries(columns).map(([name, value]) => [name, wireValue(value, name, types[name])]));
}

function wireValue(value, column, type) {
  if (typeof value !== "bigint") return plain(value, column, 0);
  if (type === "integer") {
    if (BigInt.asIntN(64, value) !== value) throw refusal(`column ${column}: ${value} is beyond 64 bits`, "invalid_value");
    return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  }
  if (type?.startsWith("decimal")) return String(value);
  throw refusal(`column ${column}: a BigInt is for columns of type integer or decimal; this one is not known as such`, "invalid_value");
}

/** A copy that JSON carries as it is. */
function plain(value, column, depth) {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "string") {
    if (!wellFormed(value)) throw refusal(`column ${column}: text with a lone surrogate`, "invalid_value");
    return value;
  }
  if (typeof value === "number") {
    if (!Number.isFinite(value)) throw refusal(`column ${column}: ${value} is no JSON number; write null`, "invalid_value");
    return value === 0 ? 0 : value; // -0 is stored as 0
  }
  if (depth === DEPTH) throw refusal(`column ${column}: nested deeper than ${DEPTH}`, "invalid_value");
  if (Array.isArray(value)) return Array.from(value, (each) => plain(each, column, depth + 1));
  if (typeof value === "object" && [Object.prototype, null].includes(Object.getPrototypeOf(value))) {
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, plain(each, column, depth + 1)]));
  }
  const kind = value === undefined ? "undefined" : (value.constructor?.name ?? typeof value);
  throw refusal(`column ${column}: ${kind} is no JSON value; write text, a number, a boolean, null, lists or objects`, "invalid_value");
}

function wellFormed(text) {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}

function show(value) {
  return typeof value === "string" ? JSON.stringify(value.slice(0, 80)) : String(value);
}

function refusal(message, code) {
  return new GatewayError(message, code);
}
