// Where a store keeps rows, the queue of writes and its position. The port, which every storage has:
//
//   open(indexes)                bring back what was saved; `indexes` are the indexed columns of each table
//   meta()                       the position, the clock and the like, by name
//   read(keys)                   the records of some keys `[table, rowId]`; undefined where there is none
//   scan(table, after, limit)    `[rowId, record]` in order of the ids, behind an id (null: from the first)
//   find(table, column, text)    ids of the rows whose indexed column has a value of this canonical text
//   queued(limit)                the oldest writes that wait, `[number, delta]`
//   count()                      how many writes wait
//   rejected()                   refused writes, oldest first
//   update(request, decide)      one atomic, durable step, described below
//   close()
//
// A record is `{ fold, seen, waiting }`: the confirmed row, the same joined with its writes that wait (null where none
// does), and their number. `update` reads what `request` names, calls `decide({ meta, rows, queue })`, which must not
// wait for anything, and writes the step that it returns (null: nothing) before anybody else can write:
//
//   request  { keys, queue: true also the writes that wait for these keys, from: instead of keys, all writes from a
//              number on with their rows, all: true every row and every write that waits }
//   step     { meta, rows: [[table, rowId, record], …], replace: true no other row stays, queueAdd: [delta, …],
//              queueRemove: [number, …], rejectedAdd: […], rejectedClear: true }

import { canonicalJson } from "./identity.js";

/** The name of a key in maps; a table's name has no such character. */
export function keyText(table, rowId) {
  return `${table}\u0000${rowId}`;
}

/** The columns that are seen of a record, null where the row does not live. */
export function visible(record) {
  const fold = record?.seen ?? record?.fold ?? null;
  return fold === null || fold.live === undefined ? null : fold.columns;
}

/** The texts under which the indexes hold a record. */
export function terms(table, record, indexes) {
  const columns = visible(record);
  if (columns === null) return [];
  const indexed = (indexes[table] ?? []).filter((column) => Object.hasOwn(columns, column));
  return indexed.map((column) => term(table, column, canonicalJson(columns[column])));
}

export function term(table, column, text) {
  return `${table}\u0000${column}\u0000${text}`;
}

/** Everything in memory; gone with the page or the process. */
export class MemoryStorage {
  constructor() {
    this.names = {};
    this.tables = new Map(); // table -> Map of rowId -> record
    this.orders = new Map(); // table -> its ids in order, where they are known
    this.queue = new Map(); // number -> delta
    this.byKey = new Map(); // key text -> numbers in the queue
    this.refused = [];
    this.next = 1;
    this.indexes = {};
    this.found = new Map(); // term -> Set of ids
  }

  async open(indexes) {
    this.indexes = indexes;
    this.found = new Map();
    for (const [table, rows] of this.tables) for (const [rowId, row] of rows) this.index(table, rowId, undefined, row);
  }

  async meta() {
    return this.names;
  }

  async read(keys) {
    return keys.map(([table, rowId]) => this.tables.get(table)?.get(rowId));
  }

  async scan(table, after, limit) {
    const rows = this.tables.get(table) ?? new Map();
    if (!this.orders.has(table)) this.orders.set(table, [...rows.keys()].sort());
    const order = this.orders.get(table);
    const start = after === null ? 0 : firstBehind(order, after);
    return order.slice(start, start + limit).map((rowId) => [rowId, rows.get(rowId)]);
  }

  async find(table, column, text) {
    return [...(this.found.get(term(table, column, text)) ?? [])];
  }

  async queued(limit) {
    const oldest = [];
    for (const entry of this.queue) {
      if (oldest.length === limit) break;
      oldest.push(entry);
    }
    return oldest;
  }

  async count() {
    return this.queue.size;
  }

  async rejected() {
    return [...this.refused];
  }

  async close() {}

  async update(request, decide) {
    const step = decide(this.requested(request));
    if (step !== null) this.write(step);
  }

  requested({ keys = [], queue = false, from = null, all = false }) {
    if (all) return { meta: this.names, rows: this.everyRow(), queue: [...this.queue] };
    const rows = new Map();
    const entries = [];
    if (from !== null) keys = [...this.queue].filter(([n]) => n >= from).map(([, { table, rowId }]) => [table, rowId]);
    for (const [table, rowId] of keys) {
      const text = keyText(table, rowId);
      if (rows.has(text)) continue;
      rows.set(text, this.tables.get(table)?.get(rowId));
      if (queue || from !== null) entries.push(...(this.byKey.get(text) ?? []).map((n) => [n, this.queue.get(n)]));
    }
    return { meta: this.names, rows, queue: entries.sort(([one], [other]) => one - other) };
  }

  everyRow() {
    const texts = [...this.tables].flatMap(([table, held]) => [...held].map(([id, row]) => [keyText(table, id), row]));
    return new Map(texts);
  }

  write({ meta, rows = [], replace, queueAdd = [], queueRemove = [], rejectedAdd = [], rejectedClear }) {
    this.names = { ...this.names, ...meta };
    if (replace) {
      this.tables.clear();
      this.orders.clear();
      this.found.clear();
    }
    for (const [table, rowId, record] of rows) this.set(table, rowId, record);
    for (const number of queueRemove) this.dequeue(number);
    for (const delta of queueAdd) this.enqueue(delta);
    if (rejectedClear) this.refused = [];
    this.refused.push(...rejectedAdd);
  }

  set(table, rowId, record) {
    if (!this.tables.has(table)) this.tables.set(table, new Map());
    const rows = this.tables.get(table);
    const order = this.orders.get(table);
    if (order !== undefined && !rows.has(rowId)) order.splice(firstBehind(order, rowId), 0, rowId);
    this.index(table, rowId, rows.get(rowId), record);
    rows.set(rowId, record);
  }

  index(table, rowId, before, after) {
    for (const text of terms(table, before, this.indexes)) this.found.get(text)?.delete(rowId);
    for (const text of terms(table, after, this.indexes)) {
      if (!this.found.has(text)) this.found.set(text, new Set());
      this.found.get(text).add(rowId);
    }
  }

  enqueue(delta) {
    const number = this.next++;
    this.queue.set(number, delta);
    const text = keyText(delta.table, delta.rowId);
    if (!this.byKey.has(text)) this.byKey.set(text, []);
    this.byKey.get(text).push(number);
  }

  dequeue(number) {
    const delta = this.queue.get(number);
    if (delta === undefined) return;
    this.queue.delete(number);
    const text = keyText(delta.table, delta.rowId);
    const numbers = this.byKey.get(text);
    numbers.splice(numbers.indexOf(number), 1); // nearly always the first
    if (numbers.length === 0) this.byKey.delete(text);
  }
}

function firstBehind(order, id) {
  let [low, high] = [0, order.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (order[middle] <= id) low = middle + 1;
    else high = middle;
  }
  return low;
}
