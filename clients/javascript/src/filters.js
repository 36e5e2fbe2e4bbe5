// Filters of queries: the same conditions, with the same meaning, as in the gateway's sync rules.

import { Exact, comparable } from "./exact.js";
import { canonicalJson } from "./identity.js";

const OPS = ["eq", "neq", "in", "gt", "lt", "gte", "lte"];
const NUMBER = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$/;

/** Whether a row's columns pass all filters `{ column, op, value }`; `types` are the exact columns of the table. */
export function passes(columns, filters, types = {}) {
  return filters.every(
    ({ column, op, value }) => Object.hasOwn(columns, column) && holds(op, comparable(columns[column], types[column]), value),
  );
}

/** Refuses filters that could never mean anything. */
export function checkFilters(filters) {
  for (const { column, op, value } of filters) {
    if (typeof column !== "string" || !OPS.includes(op)) {
      throw new TypeError(`a filter is { column, op, value } with op one of ${OPS.join(", ")}, not op ${String(op)}`);
    }
    if (value === undefined) throw new TypeError(`the filter of column ${column} has no value`);
    if (op === "in" && !Array.isArray(value)) throw new TypeError("the value of an `in` filter is a list");
    if (!["eq", "neq", "in"].includes(op) && Array.isArray(value)) {
      throw new TypeError(`the value of a \`${op}\` filter is one value: a list has no order`);
    }
  }
}

/** The values that a column can have under a filter, as canonical text; null where there is no short list of them. */
export function exactValues({ op, value }) {
  if (op !== "eq" && op !== "in") return null;
  const each = Array.isArray(value) ? value : [value];
  return [...new Set(each.flatMap(spellings))];
}

/** Every value that `equal` calls equal to a wanted one. */
function spellings(given) {
  const wanted = double(given);
  const texts = [canonicalJson(wanted)];
  const digits = Exact.of(given)?.text(); // what a column with exact numbers has
  if (digits) texts.push(digits, canonicalJson(digits));
  if (typeof wanted === "number") texts.push(canonicalJson(canonicalJson(wanted)));
  if (typeof wanted === "string" && (wanted === "true" || wanted === "false")) texts.push(wanted);
  const number = numberOf(wanted);
  if (typeof wanted === "string" && number !== null) texts.push(canonicalJson(number));
  return texts;
}

function holds(op, found, wanted) {
  if (op === "eq" || op === "in") return isAnyOf(found, wanted);
  if (op === "neq") return !isAnyOf(found, wanted);
  const order = compare(found, wanted);
  if (order === null) return false;
  return { gt: order > 0, lt: order < 0, gte: order >= 0, lte: order <= 0 }[op];
}

/** A BigInt as the number that it is for a column without exact numbers. */
function double(wanted) {
  return typeof wanted === "bigint" ? Number(wanted) : wanted;
}

function isAnyOf(found, wanted) {
  return Array.isArray(wanted) ? wanted.some((each) => equal(found, each)) : equal(found, wanted);
}

function equal(found, given) {
  if (found instanceof Exact) return compare(found, given) === 0;
  const wanted = double(given);
  if (found === null) return wanted === null;
  if (typeof found === "boolean") return wanted === found || wanted === String(found);
  if (typeof found === "number") return numberOf(wanted) !== null && found === numberOf(wanted);
  if (typeof found === "string") return found === (typeof wanted === "number" ? canonicalJson(wanted) : wanted);
  return typeof wanted === "object" && wanted !== null && canonicalJson(found) === canonicalJson(wanted);
}

/** -1, 0 or 1; null where the two have no order. */
function compare(found, given) {
  if (found instanceof Exact) {
    const other = Exact.of(given);
    return other === null ? null : found.compare(other);
  }
  const wanted = double(given);
  if (typeof found === "number") {
    const other = numberOf(wanted);
    return other === null ? null : Math.sign(found - other);
  }
  if (typeof found !== "string" || typeof wanted !== "string") return null;
  return found === wanted ? 0 : found < wanted ? -1 : 1;
}

function numberOf(wanted) {
  if (typeof wanted !== "number" && !(typeof wanted === "string" && NUMBER.test(wanted))) return null;
  return Number.isFinite(Number(wanted)) ? Number(wanted) : null;
}

/** The order of two rows by one column: missing and null first, then false, true, numbers, text, the rest as text. */
export function orderBy(column, descending, type) {
  const rank = (held) => {
    const value = type !== undefined && typeof held === "number" ? Exact.of(held) : comparable(held, type);
    if (value instanceof Exact) return [2, value];
    if (value === undefined || value === null) return [0, 0];
    if (typeof value === "boolean") return [1, Number(value)];
    if (typeof value === "number") return [2, value];
    return typeof value === "string" ? [3, value] : [4, canonicalJson(value)];
  };
  return ([, one], [, other]) => {
    const [a, b] = [rank(one[column]), rank(other[column])];
    const isExact = a[1] instanceof Exact && b[1] instanceof Exact;
    const order = a[0] !== b[0] ? a[0] - b[0] : isExact ? a[1].compare(b[1]) : a[1] === b[1] ? 0 : a[1] < b[1] ? -1 : 1;
    return descending ? -order : order;
  };
}
