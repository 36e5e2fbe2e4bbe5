// Rows of an application that are synced with a gateway. What is seen is what the gateway has confirmed joined with
// the writes that wait, by the one rule of merging; nothing is rebased.

import { Clock } from "./clock.js";
import { extract } from "./extraction.js";
import { Gateway, GatewayError } from "./gateway.js";
import { canonicalJson } from "./identity.js";
import { RowFold } from "./merging.js";
import { MemoryStorage } from "./storage.js";

const BATCH = 500;
const LONGEST_WAIT_MS = 30000;
// Refusals that no second try can change.
const FINAL = ["VALIDATION_ERROR", "SCHEMA_ERROR", "TOO_OLD", "PAYLOAD_TOO_LARGE"];
const PASSING = ["unreachable", "BACKPRESSURE_ERROR", "OVERLOADED", "RATE_LIMITED", "CLOCK_DRIFT", "unexpected_answer"];

export class Store {
  /** Open a store; `storage` brings back what an earlier one saved, `gateway` is what `Gateway` takes. */
  static async open({ clientId, storage = new MemoryStorage(), wall = Date.now, ...gateway }) {
    const store = new Store(clientId, storage, wall, gateway);
    const saved = await storage.load();
    if (saved !== null) store.restore(saved);
    return store;
  }

  constructor(clientId, storage, wall, gateway) {
    this.clientId = clientId;
    this.storage = storage;
    this.clock = new Clock(wall);
    this.cursor = null;
    this.confirmed = new Map();
    this.queue = [];
    this.refused = [];
    this.gateway = gateway.url ? new Gateway({ ...gateway, clientId }) : null;
    this.listeners = new Set();
    this.turn = Promise.resolve(); // one sync at a time
  }

  /** Set columns of a row, which is made if it is not there; the others stay. Seen at once, sent by `sync`. */
  async put(table, rowId, columns) {
    const before = this.get(table, rowId);
    await this.enqueue(table, rowId, before, { ...before, ...columns });
  }

  /** Delete a row; one that is not there stays so. */
  async delete(table, rowId) {
    const before = this.get(table, rowId);
    if (before !== null) await this.enqueue(table, rowId, before, null);
  }

  /** A row's columns, null where it is not. */
  get(table, rowId) {
    const held = this.confirmed.get(key(table, rowId));
    const waiting = this.queue.filter((delta) => delta.table === table && delta.rowId === rowId);
    if (held === undefined && waiting.length === 0) return null;
    const fold = held === undefined ? new RowFold() : RowFold.fromPlain(held);
    waiting.forEach((delta) => fold.add(delta));
    return fold.state();
  }

  /** Every row of a table by its id, in order of the ids. */
  rows(table) {
    const prefix = key(table, "");
    const known = [...this.confirmed.keys()].filter((each) => each.startsWith(prefix)).map((each) => parts(each)[1]);
    const waiting = this.queue.filter((delta) => delta.table === table).map((delta) => delta.rowId);
    const found = [...new Set([...known, ...waiting])].sort().map((rowId) => [rowId, this.get(table, rowId)]);
    return Object.fromEntries(found.filter(([, row]) => row !== null));
  }

  /** Writes that the gateway has not confirmed yet. */
  get pending() {
    return this.queue.length;
  }

  /** Writes that the gateway refused for good: `{ delta, code, message }`, oldest first. */
  rejected() {
    return [...this.refused];
  }

  /** Send what waits and fetch what is new; throws where the gateway cannot be reached, and nothing is lost. */
  sync() {
    const round = this.turn.then(() => this.round());
    this.turn = round.catch(() => {});
    return round;
  }

  /** Every change as it happens; writes are sent as they are made meanwhile. `signal` ends it. */
  async *follow({ signal } = {}) {
    let pause = 1000;
    while (!signal?.aborted) {
      try {
        yield* (await this.sync()).changes;
        pause = 1000;
        yield* this.listen(signal);
        await sleep(200, signal);
      } catch (error) {
        if (!PASSING.includes(error.code)) throw error;
        await sleep(pause * (0.5 + Math.random() / 2), signal);
        pause = Math.min(pause * 2, 30000);
      }
    }
  }

  // --- syncing ---

  async round() {
    if (this.gateway === null) throw new GatewayError("a store is synced with a gateway: give url", "no_gateway");
    const report = { pushed: 0, rejected: 0, pulled: 0, fromSnapshot: false, changes: [] };
    await this.pushWaiting(report);
    if (this.cursor === null) await this.beginAnew(report);
    try {
      await this.pull(report);
    } catch (error) {
      if (error.code !== "MUST_REFETCH") throw error;
      await this.beginAnew(report);
      await this.pull(report);
    }
    return report;
  }

  async pushWaiting(report) {
    let size = BATCH;
    let waited = 0;
    while (this.queue.length > 0) {
      const batch = this.queue.slice(0, size);
      try {
        await this.gateway.push(batch);
        await this.confirm(batch);
        report.pushed += batch.length;
        size = BATCH;
      } catch (error) {
        if (error.code === "CLOCK_DRIFT") waited += await waitForClock(error, waited);
        else if (!FINAL.includes(error.code)) throw error;
        else {
          const refused = refusedPosition(error, batch.length);
          if (refused === null) size = Math.floor(batch.length / 2); // no single write is named: look for it
          else report.changes.push(await this.reject(batch[refused], error, report));
        }
      }
    }
  }

  async pull(report) {
    for (let hasMore = true; hasMore; ) {
      const after = this.cursor;
      const page = (await this.gateway.pull(after).next()).value;
      const changes = await this.take(page, after);
      hasMore = page.hasMore || changes === null; // null: a follower was quicker, go on behind it
      report.changes.push(...(changes ?? []));
      report.pulled += changes === null ? 0 : page.deltas.length;
    }
  }

  /** Replace all confirmed rows by a snapshot; what waits stays. */
  async beginAnew(report) {
    const rows = new Map();
    let end = null;
    try {
      for await (const page of this.gateway.snapshot()) {
        for (const { table, rowId, ...fold } of page.rows) rows.set(key(table, rowId), fold);
        end = page;
      }
    } catch (error) {
      if (error.code !== "NOT_FOUND") throw error;
      for await (const page of this.gateway.pull(null)) {
        foldInto(rows, page.deltas);
        end = page;
      }
    }
    const touched = [...new Set([...this.confirmed.keys(), ...rows.keys()])];
    const changes = await this.changing(touched, async () => {
      this.confirmed = rows;
      this.cursor = end.cursor;
      this.clock.observe(end.serverHlc);
      await this.save({ rows: [...rows], replace: true });
    });
    report.changes.push(...changes);
    report.fromSnapshot = true;
  }

  /**
   * Fold in the page that follows a cursor and move on, in one step; the rows that look different now. Null, and nothing is
   * taken, where the store stands elsewhere meanwhile: a page behind a snapshot that it does not follow would leave a gap.
   */
  async take(page, after) {
    if (this.cursor !== after) return null;
    const touched = page.deltas.map((delta) => key(delta.table, delta.rowId));
    return this.changing([...new Set(touched)], async () => {
      const rows = foldInto(this.confirmed, page.deltas);
      this.cursor = page.cursor;
      this.clock.observe(page.serverHlc);
      await this.save({ rows });
    });
  }

  async confirm(batch) {
    const rows = foldInto(this.confirmed, batch);
    this.queue = this.queue.filter((delta) => !batch.includes(delta));
    await this.save({ rows, queue: this.queue });
  }

  async reject(delta, error, report) {
    this.queue = this.queue.filter((each) => each !== delta);
    this.refused.push({ delta, code: error.code, message: error.message });
    report.rejected += 1;
    await this.save({ queue: this.queue, rejected: this.refused });
    return { table: delta.table, rowId: delta.rowId, columns: this.get(delta.table, delta.rowId) };
  }

  async *listen(signal) {
    const ended = new AbortController();
    const stop = () => ended.abort();
    signal?.addEventListener("abort", stop);
    const news = [];
    let wake = () => {};
    const tell = (item) => {
      news.push(item);
      wake();
    };
    const written = () => tell({ kind: "written" });
    this.listeners.add(written);
    let position = this.cursor;
    const reading = this.readFeed(ended.signal, tell);
    try {
      while (!signal?.aborted) {
        while (news.length === 0) await new Promise((resolve) => (wake = resolve));
        const { kind, data, error } = news.shift();
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
      this.listeners.delete(written);
      signal?.removeEventListener("abort", stop);
      stop();
      await reading;
    }
  }

  async readFeed(signal, tell) {
    try {
      for await (const { event, data } of this.gateway.feed(this.cursor, signal)) {
        if (event !== "deltas") break; // the position is gone: the next round begins anew
        tell({ kind: "deltas", data });
      }
      tell({ kind: "ended" });
    } catch (error) {
      tell({ kind: "ended", error: error.code === "MUST_REFETCH" ? null : error });
    }
  }

  async pushNow() {
    const report = { pushed: 0, rejected: 0, changes: [] };
    const round = this.turn.then(() => this.pushWaiting(report));
    this.turn = round.catch(() => {});
    await round;
    return report.changes;
  }

  // --- inside ---

  async enqueue(table, rowId, before, after) {
    const hlc = this.clock.now();
    const delta = extract(before, after, { table, rowId, clientId: this.clientId, hlc });
    if (delta === null) return;
    this.queue = [...this.queue, delta];
    await this.save({ queue: this.queue });
    this.listeners.forEach((listener) => listener());
  }

  async changing(keys, work) {
    const look = () => keys.map((each) => this.get(...parts(each)));
    const before = look();
    await work();
    const after = look();
    const differs = (_, i) => canonicalJson(before[i]) !== canonicalJson(after[i]);
    const changes = keys.map((each, i) => ({ table: parts(each)[0], rowId: parts(each)[1], columns: after[i] }));
    return changes.filter(differs);
  }

  save({ rows, ...step }) {
    const plain = rows?.map(([each, fold]) => [...parts(each), fold]);
    const meta = { cursor: this.cursor, clock: String(this.clock.last), clientId: this.clientId };
    return this.storage.save({ ...step, meta, ...(plain ? { rows: plain } : {}) });
  }

  restore({ meta, confirmed, queue, rejected }) {
    if (meta.clientId && meta.clientId !== this.clientId) {
      throw new GatewayError(`this store belongs to client ${meta.clientId}`, "other_client");
    }
    this.cursor = meta.cursor ?? null;
    this.clock.observe(meta.clock ?? 0);
    this.confirmed = new Map(confirmed.map(([table, rowId, fold]) => [key(table, rowId), fold]));
    this.queue = [...queue];
    this.refused = [...rejected];
  }
}

function key(table, rowId) {
  return `${table}\u0000${rowId}`; // a table's name has no such character
}

function parts(each) {
  const end = each.indexOf("\u0000");
  return [each.slice(0, end), each.slice(end + 1)];
}

/** Fold deltas into rows; the entries that changed. */
function foldInto(rows, deltas) {
  const folds = new Map();
  for (const delta of deltas) {
    const each = key(delta.table, delta.rowId);
    if (!folds.has(each)) folds.set(each, rows.has(each) ? RowFold.fromPlain(rows.get(each)) : new RowFold());
    folds.get(each).add(delta);
  }
  const changed = [...folds].map(([each, fold]) => [each, fold.toPlain()]);
  changed.forEach(([each, plain]) => rows.set(each, plain));
  return changed;
}

function refusedPosition(error, count) {
  const named = /deltas\[([0-9]+)\]/.exec(error.message);
  if (named !== null && Number(named[1]) < count) return Number(named[1]);
  return count === 1 ? 0 : null;
}

/** This machine's clock is ahead of the gateway's: wait until the oldest writes are not in its future. */
async function waitForClock(error, waited) {
  const told = /is ([0-9]+)ms ahead \(max drift: ([0-9]+)ms\)/.exec(error.message);
  const wait = (told ? Number(told[1]) - Number(told[2]) : 1000) + 50;
  if (waited + wait > LONGEST_WAIT_MS) throw error;
  await sleep(wait);
  return wait;
}

function sleep(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
