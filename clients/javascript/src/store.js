// Rows of an application that are synced with a gateway. What is seen is what the gateway has confirmed joined with
// the writes that wait, by the one rule of merging; nothing is rebased.

import { Clock } from "./clock.js";
import { extract } from "./extraction.js";
import { checkFilters, exactValues, orderBy, passes } from "./filters.js";
import { Gateway, GatewayError } from "./gateway.js";
import { canonicalJson, deltaId } from "./identity.js";
import { RowFold } from "./merging.js";
import { MemoryStorage, keyText, visible } from "./storage.js";
import { Tabs, otherTab } from "./tabs.js";
import { checkNames, toWire } from "./values.js";

const BATCH = 500;
const BATCH_BYTES = 8 << 20;
const SCAN = 1000;
const RESTAMPS = 5; // a round
const SMALLEST_OFFSET_MS = 2000;
// Refusals that no second try can change.
const FINAL = ["VALIDATION_ERROR", "SCHEMA_ERROR", "TOO_OLD", "PAYLOAD_TOO_LARGE"];
const PASSING = ["unreachable", "BACKPRESSURE_ERROR", "OVERLOADED", "RATE_LIMITED", "CLOCK_DRIFT", "unexpected_answer"];

export class Store {
  /**
   * Open a store. `storage` brings back what an earlier one saved; `indexes` names columns that queries ask for by
   * value, `{ table: [column, …] }`; `types` exact columns before the first sync; the rest is what `Gateway` takes.
   */
  static async open({ clientId, storage = new MemoryStorage(), wall = Date.now, indexes = {}, types = null, ...gateway }) {
    await storage.open(indexes);
    const store = new Store(clientId, storage, wall, indexes, gateway);
    try {
      await store.begin(types);
    } catch (error) {
      await store.close();
      throw error;
    }
    return store;
  }

  constructor(clientId, storage, wall, indexes, gateway) {
    this.clientId = clientId;
    this.storage = storage;
    this.wall = wall;
    this.indexes = indexes;
    this.types = {}; // by table, the columns with exact numbers
    this.gateway = gateway.url ? new Gateway({ ...gateway, clientId }) : null;
    this.subscribers = new Set();
    this.turn = Promise.resolve(); // one sync at a time
    this.wake = new Set(); // followers that send what is written
  }

  async begin(types) {
    await this.storage.update({}, ({ meta }) => {
      if (meta.clientId !== undefined && meta.clientId !== this.clientId) {
        throw new GatewayError(`this store belongs to client ${meta.clientId}`, "other_client");
      }
      return { meta: { clientId: this.clientId, ...(types === null ? {} : { types: { ...types, ...meta.types } }) } };
    });
    this.types = (await this.storage.meta()).types ?? {};
    if (this.storage.shared) {
      this.tabs = new Tabs(this.storage.name, (keys) => this.hear(keys));
      await this.tabs.join(this.storage);
    }
  }

  /** Stop, and let another tab or process have the storage. */
  async close() {
    await this.turn;
    await this.tabs?.close();
    await this.storage.close();
  }

  // --- writing and reading ---

  /** Set columns of a row, which is made if it is not there; the others stay. Saved when this returns, sent by `sync`. */
  async put(table, rowId, columns) {
    checkNames(table, rowId, columns);
    await this.enqueue(table, rowId, (before, types) => ({ ...before, ...toWire(columns, types) }));
  }

  /** Delete a row; one that is not there stays so. */
  async delete(table, rowId) {
    checkNames(table, rowId);
    await this.enqueue(table, rowId, () => null);
  }

  /** A row's columns, null where it is not. */
  async get(table, rowId) {
    const [record] = await this.storage.read([[table, rowId]]);
    return structuredClone(visible(record));
  }

  /** Every row of a table, as a Map by id, in order of the ids. */
  async rows(table) {
    return this.query(table);
  }

  /**
   * Rows of a table as a Map by id: those that pass all filters `{ column, op, value }` of `where`, with the meaning that
   * filters have in sync rules; in order of the ids, or by `order: { column, descending }`; at most `limit`.
   */
  async query(table, { where = [], order = null, limit = Infinity } = {}) {
    checkFilters(where);
    const most = order === null ? limit : Infinity;
    const types = (await this.storage.meta()).types?.[table] ?? {};
    const found = [];
    for await (const [rowId, columns] of this.candidates(table, where)) {
      if (found.length >= most) break;
      if (columns !== null && passes(columns, where, types)) found.push([rowId, structuredClone(columns)]);
    }
    if (order !== null) found.sort(orderBy(order.column, order.descending ?? false, types[order.column]));
    return new Map(found.slice(0, limit));
  }

  /** Writes that the gateway has not confirmed yet. */
  async pending() {
    return this.storage.count();
  }

  /** Writes that the gateway refused for good: `{ delta, code, message }`, oldest first. */
  async rejected() {
    return this.storage.rejected();
  }

  /** Forget the list of refused writes. */
  async forgetRejected() {
    await this.storage.update({}, () => ({ rejectedClear: true }));
  }

  /**
   * Call `listener` with a list of changes `{ table, rowId, columns }` after they are saved, whoever made them; columns is
   * null where the row is gone or passes the filters no longer. Returns a function that ends it.
   */
  subscribe({ table, rowId = null, where = [] }, listener) {
    checkFilters(where);
    const subscriber = { table, rowId, where, listener, news: null };
    this.subscribers.add(subscriber);
    return () => this.subscribers.delete(subscriber);
  }

  // --- syncing ---

  /** Whether this tab is the one that syncs; always true outside a browser. */
  get isLeader() {
    return this.tabs === undefined || this.tabs.isLeader;
  }

  /** Send what waits and fetch what is new; throws what could not be sent, after fetching, and nothing is lost. */
  sync() {
    if (!this.isLeader) return Promise.reject(otherTab());
    const round = this.turn.then(() => this.round());
    this.turn = round.catch(() => {});
    return round;
  }

  /** Every change as it happens; writes are sent as they are made meanwhile. `signal` ends it. */
  async *follow({ signal } = {}) {
    if (!this.isLeader) yield* this.watch(signal);
    let pause = 1000;
    while (!signal?.aborted) {
      try {
        yield* (await this.sync()).changes;
        pause = 1000;
        yield* this.listen(signal);
        await sleep(200, signal);
      } catch (error) {
        if (error.code === "other_tab") yield* this.watch(signal);
        else if (!PASSING.includes(error.code)) throw error;
        else {
          yield* error.report?.changes ?? [];
          await sleep(pause * (0.5 + Math.random() / 2), signal);
          pause = Math.min(pause * 2, 30000);
        }
      }
    }
  }

  async round() {
    if (this.gateway === null) throw new GatewayError("a store is synced with a gateway: give url", "no_gateway");
    const report = { pushed: 0, rejected: 0, pulled: 0, fromSnapshot: false, changes: [] };
    const failed = await this.pushWaiting(report).then(() => null, (error) => error);
    if (failed?.code === "unreachable") throw failed;
    if ((await this.cursor()) === null) await this.beginAnew(report);
    try {
      await this.pull(report);
    } catch (error) {
      if (error.code !== "MUST_REFETCH") throw error;
      await this.beginAnew(report);
      await this.pull(report);
    }
    if (failed !== null) throw Object.assign(failed, { report });
    return report;
  }

  async pushWaiting(report) {
    let size = BATCH;
    let restamps = 0;
    for (let batch = await this.oldest(size); batch.length > 0; batch = await this.oldest(size)) {
      try {
        const answer = await this.gateway.push(batch.map(([, delta]) => delta));
        report.changes.push(...(await this.confirm(batch, answer)));
        report.pushed += batch.length;
        size = BATCH;
      } catch (error) {
        if (error.code === "CLOCK_DRIFT" && error.serverTime !== undefined && restamps++ < RESTAMPS) {
          report.changes.push(...(await this.restamp(batch, error)));
        } else if (isFinal(error)) {
          const positions = refusedPositions(error, batch.length);
          if (positions === null) size = Math.floor(batch.length / 2); // no write is named: look for it
          else report.changes.push(...(await this.reject(positions.map((i) => batch[i]), error, report)));
        } else throw error;
      }
    }
  }

  async oldest(size) {
    const entries = await this.storage.queued(size);
    let bytes = 0;
    const end = entries.findIndex(([, delta]) => (bytes += JSON.stringify(delta).length) > BATCH_BYTES);
    return end < 0 ? entries : entries.slice(0, Math.max(end, 1));
  }

  async pull(report) {
    for (let hasMore = true; hasMore; ) {
      const after = await this.cursor();
      const page = (await this.gateway.pull(after).next()).value;
      const changes = await this.take(page, after);
      hasMore = page.hasMore || changes === null; // null: a follower was quicker, go on behind it
      report.changes.push(...(changes ?? []));
      report.pulled += changes === null ? 0 : page.deltas.length;
    }
  }

  /** Replace all confirmed rows by a snapshot; what waits stays. */
  async beginAnew(report) {
    const folds = new Map();
    let end = null;
    try {
      for await (const page of this.gateway.snapshot()) {
        for (const { table, rowId, ...fold } of page.rows) folds.set(keyText(table, rowId), [table, rowId, fold]);
        end = page;
      }
    } catch (error) {
      if (error.code !== "NOT_FOUND") throw error;
      for await (const page of this.gateway.pull(null)) {
        for (const delta of page.deltas) {
          const [, , fold = null] = folds.get(keyText(delta.table, delta.rowId)) ?? [];
          folds.set(keyText(delta.table, delta.rowId), [delta.table, delta.rowId, joined(fold, [delta])]);
        }
        end = page;
      }
    }
    const changes = await this.step({ all: true }, ({ meta, rows, queue }) => {
      for (const [, { table, rowId }] of queue) {
        if (!folds.has(keyText(table, rowId))) folds.set(keyText(table, rowId), [table, rowId, null]);
      }
      const waiting = byKey(queue);
      const made = [...folds].map(([text, [table, rowId, fold]]) => [table, rowId, record(fold, waiting.get(text))]);
      const gone = [...rows.keys()].filter((text) => !folds.has(text)).map((text) => [...parts(text), undefined]);
      return { rows: made, gone, replace: true, meta: this.seenOf(meta, end) };
    });
    report.changes.push(...changes);
    report.fromSnapshot = true;
  }

  /**
   * Fold in the page that follows a cursor and move on, in one step; the rows that look different now. Null, and nothing is
   * taken, where the store stands elsewhere meanwhile: a page behind a snapshot that it does not follow would leave a gap.
   */
  async take(page, after) {
    let isNext = true;
    const deltas = groups(page.deltas);
    const changes = await this.step({ keys: keysOf(page.deltas) }, ({ meta, rows }) => {
      isNext = (meta.cursor ?? null) === after;
      if (!isNext) return null;
      const made = [...deltas].map(([text, [{ table, rowId }]]) => {
        const { fold = null, seen = null, waiting = 0 } = rows.get(text) ?? {};
        const both = seen === null ? null : joined(seen, deltas.get(text));
        return [table, rowId, { fold: joined(fold, deltas.get(text)), seen: both, waiting }];
      });
      return { rows: made, meta: this.seenOf(meta, page) };
    });
    return isNext ? changes : null;
  }

  /** Writes that the gateway has: confirmed, but for those that left the rows out of sight. */
  confirm(batch, answer) {
    const hidden = new Set(answer.hidden ?? []);
    const numbers = new Set(batch.map(([number]) => number));
    const shown = groups(batch.filter((_, i) => !hidden.has(i)).map(([, delta]) => delta));
    return this.step({ keys: keysOf(batch.map(([, delta]) => delta)), queue: true }, ({ meta, rows, queue }) => {
      const waiting = byKey(queue.filter(([number]) => !numbers.has(number)));
      const made = [...rows].map(([text, held]) => {
        const fold = joined(held?.fold ?? null, shown.get(text) ?? []);
        return [...parts(text), record(fold, waiting.get(text))];
      });
      // The clock is observed with pages, not here: rows of others may lie between.
      return { rows: made, queueRemove: [...numbers], meta: { offset: this.offsetOf(meta, answer) } };
    });
  }

  async reject(entries, error, report) {
    const numbers = new Set(entries.map(([number]) => number));
    const refused = entries.map(([, delta]) => ({ delta, code: error.code, message: error.message }));
    report.rejected += entries.length;
    return this.step({ keys: keysOf(entries.map(([, delta]) => delta)), queue: true }, ({ rows, queue }) => {
      const waiting = byKey(queue.filter(([number]) => !numbers.has(number)));
      const made = [...rows].map(([text, held]) => [...parts(text), record(held?.fold ?? null, waiting.get(text))]);
      return { rows: made, queueRemove: [...numbers], rejectedAdd: refused };
    });
  }

  /**
   * This machine's clock was ahead of the gateway's: every write from the first refused one on is stamped anew by the
   * gateway's time, in the order in which they were made. A refused write is in no log, so its id means nothing to anybody.
   */
  restamp(batch, error) {
    const first = Math.min(...(error.positions ?? [0]));
    const from = batch[first][0];
    const previous = first > 0 ? BigInt(batch[first - 1][1].hlc) : 0n;
    const offset = BigInt(Math.trunc(error.serverTime - this.wall()));
    return this.step({ from }, ({ meta, rows, queue }) => {
      const earlier = queue.filter(([number]) => number < from);
      const later = queue.filter(([number]) => number >= from);
      // After everything seen, and within what the gateway takes: its own clock may be ahead of its time.
      let last = largest(previous, BigInt(meta.observed ?? 0));
      const latest = error.maxHlc === undefined ? last : BigInt(error.maxHlc) - BigInt(later.length);
      if (last > latest) last = latest;
      const now = largest(BigInt(Math.trunc(error.serverTime)) << 16n, last);
      const stamped = later.map(([, delta]) => {
        const shifted = BigInt(delta.hlc) + (offset << 16n);
        last = largest(shifted < now ? shifted : now, last + 1n);
        const anew = { ...delta, hlc: String(last) };
        return { ...anew, deltaId: deltaId(anew) };
      });
      const waiting = byKey([...earlier, ...stamped.map((delta) => [Infinity, delta])]);
      const made = [...rows].map(([text, held]) => [...parts(text), record(held?.fold ?? null, waiting.get(text))]);
      const clock = String(largest(last, BigInt(meta.observed ?? 0)));
      const changed = { clock, offset: this.offsetOf(meta, error) };
      return { rows: made, queueRemove: later.map(([number]) => number), queueAdd: stamped, meta: changed };
    });
  }

  async *listen(signal) {
    const ended = new AbortController();
    const stop = () => ended.abort();
    signal?.addEventListener("abort", stop);
    const news = new Mailbox();
    const written = () => news.post({ kind: "written" });
    this.wake.add(written);
    let position = await this.cursor();
    const reading = this.readFeed(position, ended.signal, news);
    try {
      while (!signal?.aborted) {
        const { kind, data, error } = await news.next();
        if (kind === "deltas") {
          const changes = await this.take(data, position);
          if (changes === null) return; // the application has synced by itself: listen from where it stands
          position = data.cursor;
          yield* changes;
        } else if (kind === "written") yield* await this.pushNow();
        else if (error) throw error;
        else return;
      }
    } finally {
      this.wake.delete(written);
      signal?.removeEventListener("abort", stop);
      stop();
      await reading;
    }
  }

  async readFeed(cursor, signal, news) {
    try {
      for await (const { event, data } of this.gateway.feed(cursor, signal)) {
        if (event !== "deltas") break; // the position is gone: the next round begins anew
        news.post({ kind: "deltas", data });
      }
      news.post({ kind: "ended" });
    } catch (error) {
      news.post({ kind: "ended", error: error.code === "MUST_REFETCH" ? null : error });
    }
  }

  async pushNow() {
    const report = { pushed: 0, rejected: 0, changes: [] };
    const round = this.turn.then(() => this.pushWaiting(report));
    this.turn = round.catch(() => {});
    await round;
    return report.changes;
  }

  /** What other tabs change, until this one has the lead. */
  async *watch(signal) {
    const news = new Mailbox();
    const heard = (changes) => news.post({ changes });
    const stop = () => news.post({ changes: [], isOver: true });
    const subscriber = { table: null, rowId: null, where: [], listener: heard, news: null };
    this.subscribers.add(subscriber);
    signal?.addEventListener("abort", stop);
    this.tabs.elected.then(stop);
    try {
      for (let over = signal?.aborted ?? false; !over; ) {
        const { changes, isOver } = await news.next();
        yield* changes;
        over = isOver ?? false;
      }
    } finally {
      this.subscribers.delete(subscriber);
      signal?.removeEventListener("abort", stop);
    }
  }

  // --- inside ---

  async enqueue(table, rowId, after) {
    const text = keyText(table, rowId);
    await this.step({ keys: [[table, rowId]] }, ({ meta, rows }) => {
      const { fold = null, seen = null, waiting = 0 } = rows.get(text) ?? {};
      const clock = new Clock(() => this.wall() + (meta.offset ?? 0), meta.clock ?? 0);
      const before = visible(rows.get(text));
      const written = after(before, meta.types?.[table]);
      const delta = extract(before, written, { table, rowId, clientId: this.clientId, hlc: clock.now() });
      if (delta === null) return null;
      const made = { fold, seen: joined(seen ?? fold, [delta]), waiting: waiting + 1 };
      return { rows: [[table, rowId, made]], queueAdd: [delta], meta: { clock: String(clock.last) } };
    });
    this.wake.forEach((wake) => wake());
  }

  async *candidates(table, where) {
    const indexed = where.find((each) => this.indexes[table]?.includes(each.column) && exactValues(each) !== null);
    if (indexed !== undefined) {
      const ids = await Promise.all(exactValues(indexed).map((text) => this.storage.find(table, indexed.column, text)));
      const sorted = [...new Set(ids.flat())].sort();
      const records = await this.storage.read(sorted.map((rowId) => [table, rowId]));
      for (const [i, rowId] of sorted.entries()) yield [rowId, visible(records[i])];
      return;
    }
    for (let after = null, page = null; page === null || page.length === SCAN; after = page.at(-1)?.[0]) {
      page = await this.storage.scan(table, after, SCAN);
      for (const [rowId, held] of page) yield [rowId, visible(held)];
    }
  }

  async cursor() {
    return (await this.storage.meta()).cursor ?? null;
  }

  /** One atomic step; the rows that look different after it, which subscribers and other tabs are told. */
  async step(request, decide) {
    let changes = [];
    await this.storage.update(request, (found) => {
      const step = decide(found);
      if (step === null) return null;
      const { gone = [], ...written } = step;
      this.types = written.meta?.types ?? found.meta.types ?? {};
      const differs = ([table, rowId, made]) => !same(visible(found.rows.get(keyText(table, rowId))), visible(made));
      changes = [...written.rows, ...gone].filter(differs).map(([table, rowId, made]) => {
        const before = visible(found.rows.get(keyText(table, rowId)));
        return { table, rowId, columns: visible(made), before };
      });
      return written;
    });
    this.notify(changes);
    if (changes.length > 0) this.tabs?.tell(changes.map(({ table, rowId }) => [table, rowId]));
    return changes.map(({ table, rowId, columns }) => ({ table, rowId, columns: structuredClone(columns) }));
  }

  /** Subscribers are called once for all that is told within one turn of the event loop. */
  notify(changes) {
    for (const subscriber of this.subscribers) {
      const news = changes.flatMap((change) => interesting(change, subscriber, this.types[change.table]));
      if (news.length === 0) continue;
      if (subscriber.news === null) {
        subscriber.news = [];
        queueMicrotask(() => {
          const told = subscriber.news;
          subscriber.news = null;
          if (this.subscribers.has(subscriber)) subscriber.listener(told);
        });
      }
      subscriber.news.push(...news);
    }
  }

  /** Another tab has changed rows. */
  async hear(keys) {
    this.wake.forEach((wake) => wake());
    if (this.subscribers.size === 0) return;
    const records = await this.storage.read(keys);
    this.types = (await this.storage.meta()).types ?? {};
    this.notify(keys.map(([table, rowId], i) => ({ table, rowId, columns: visible(records[i]) })));
  }

  /** What an answer with a position says about the gateway: cursor, clock, offset, types. */
  seenOf(meta, { cursor, serverHlc, serverTime, types }) {
    const observed = largest(BigInt(meta.observed ?? 0), BigInt(serverHlc));
    const clock = String(largest(BigInt(meta.clock ?? 0), observed));
    const known = types === undefined ? {} : { types: { ...meta.types, ...types } };
    return { cursor, clock, observed: String(observed), offset: this.offsetOf(meta, { serverTime }), ...known };
  }

  /** How far the gateway's clock is from this machine's, in milliseconds; small differences count as none. */
  offsetOf(meta, { serverTime }) {
    if (serverTime === undefined) return meta.offset ?? 0;
    const offset = Math.trunc(serverTime - this.wall());
    return Math.abs(offset) > SMALLEST_OFFSET_MS ? offset : 0;
  }
}

/** Things that arrive while nobody waits, and the other way round. */
class Mailbox {
  constructor() {
    this.items = [];
    this.wake = () => {};
  }

  post(item) {
    this.items.push(item);
    this.wake();
  }

  async next() {
    while (this.items.length === 0) await new Promise((resolve) => (this.wake = resolve));
    return this.items.shift();
  }
}

function interesting({ table, rowId, columns, before }, wanted, types) {
  if (wanted.table !== null && wanted.table !== table) return [];
  if (wanted.rowId !== null && wanted.rowId !== rowId) return [];
  const isIn = columns !== null && passes(columns, wanted.where, types);
  const wasIn = before === undefined || (before !== null && passes(before, wanted.where, types)); // undefined: not known
  return isIn || wasIn ? [{ table, rowId, columns: isIn ? structuredClone(columns) : null }] : [];
}

function joined(plain, deltas) {
  if (deltas.length === 0) return plain;
  const fold = plain === null ? new RowFold() : RowFold.fromPlain(plain);
  deltas.forEach((delta) => fold.add(delta));
  return fold.toPlain();
}

function record(fold, waiting = []) {
  return { fold, seen: waiting.length === 0 ? null : joined(fold, waiting), waiting: waiting.length };
}

function keysOf(deltas) {
  return deltas.map(({ table, rowId }) => [table, rowId]);
}

function groups(deltas) {
  const found = new Map();
  for (const delta of deltas) {
    const text = keyText(delta.table, delta.rowId);
    if (!found.has(text)) found.set(text, []);
    found.get(text).push(delta);
  }
  return found;
}

function byKey(queue) {
  return groups(queue.map(([, delta]) => delta));
}

function parts(text) {
  const end = text.indexOf("\u0000");
  return [text.slice(0, end), text.slice(end + 1)];
}

function same(one, other) {
  return one === other || canonicalJson(one) === canonicalJson(other);
}

function largest(one, other) {
  return one > other ? one : other;
}

function isFinal(error) {
  return FINAL.includes(error.code) || (error.code === "FORBIDDEN" && error.positions !== undefined);
}

/** The positions in a batch that a refusal names; a batch of one needs no name. */
function refusedPositions(error, count) {
  const named = (error.positions ?? []).filter((position) => Number.isInteger(position) && position >= 0 && position < count);
  if (named.length > 0) return named;
  return count === 1 ? [0] : null;
}

function sleep(ms, signal) {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    }
    signal?.addEventListener("abort", done);
  });
}
