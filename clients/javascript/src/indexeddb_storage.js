// A store in the browser's own database: what it holds survives a reload, and all tabs of the origin share it.

import { GatewayError } from "./gateway.js";
import { keyText, term, terms } from "./storage.js";

const VERSION = 1;

/** Rows, queue and position in the database `driftline:{name}`. */
export class IndexedDbStorage {
  constructor(name) {
    this.name = name;
    this.shared = true; // by every tab
    this.indexes = {};
  }

  async open(indexes) {
    const request = globalThis.indexedDB.open(`driftline:${this.name}`, VERSION);
    request.onupgradeneeded = () => {
      const rows = request.result.createObjectStore("rows"); // key [table, rowId]: { record, terms }
      rows.createIndex("terms", "terms", { multiEntry: true });
      const queue = request.result.createObjectStore("queue", { autoIncrement: true }); // { key, delta }
      queue.createIndex("key", "key");
      request.result.createObjectStore("rejected", { autoIncrement: true });
      request.result.createObjectStore("meta");
    };
    this.database = await settled(request).catch((error) => {
      const words = `the database of store ${this.name} cannot be opened: ${error.message}`;
      throw new GatewayError(words, error.name === "VersionError" ? "unknown_format" : "storage_failed");
    });
    this.database.onversionchange = () => this.database.close();
    this.indexes = indexes;
    await this.reindex();
  }

  async meta() {
    return readMeta(this.transaction("readonly"));
  }

  async read(keys) {
    const store = this.transaction("readonly").objectStore("rows");
    return (await Promise.all(keys.map((key) => settled(store.get(key))))).map((held) => held?.record);
  }

  async scan(table, after, limit) {
    const store = this.transaction("readonly").objectStore("rows");
    const range = IDBKeyRange.bound([table, after ?? ""], [table, []], after !== null, true);
    const [keys, held] = await Promise.all([settled(store.getAllKeys(range, limit)), settled(store.getAll(range, limit))]);
    return keys.map(([, rowId], i) => [rowId, held[i].record]);
  }

  async find(table, column, text) {
    const index = this.transaction("readonly").objectStore("rows").index("terms");
    return (await settled(index.getAllKeys(term(table, column, text)))).map(([, rowId]) => rowId);
  }

  async queued(limit) {
    return everyEntry(this.transaction("readonly").objectStore("queue"), limit);
  }

  async count() {
    return settled(this.transaction("readonly").objectStore("queue").count());
  }

  async rejected() {
    return settled(this.transaction("readonly").objectStore("rejected").getAll());
  }

  async close() {
    this.database?.close();
  }

  async update(request, decide) {
    const work = this.transaction("readwrite");
    const ended = new Promise((resolve, reject) => {
      work.oncomplete = resolve;
      work.onabort = () => reject(failure(this.name, work.error));
    });
    ended.catch(() => {}); // told below, or by what failed before
    try {
      const step = decide(await this.requested(work, request));
      if (step !== null) this.write(work, step);
    } catch (error) {
      if (work.error === null) tryAbort(work);
      throw error instanceof DOMException ? failure(this.name, error) : error;
    }
    await ended;
  }

  // Nothing but requests of this transaction may be waited for in between: it would end.
  async requested(work, { keys = [], queue = false, from = null, all = false }) {
    const rowStore = work.objectStore("rows");
    const meta = await readMeta(work);
    if (all) {
      const [rows, entries] = await Promise.all([everyRow(rowStore), everyEntry(work.objectStore("queue"))]);
      return { meta, rows, queue: entries };
    }
    if (from !== null) {
      const later = await settled(work.objectStore("queue").getAll(IDBKeyRange.lowerBound(from)));
      keys = later.map(({ key }) => key);
    }
    const distinct = [...new Map(keys.map((key) => [keyText(...key), key]))];
    const held = await Promise.all(distinct.map(([, key]) => settled(rowStore.get(key))));
    const rows = new Map(distinct.map(([text], i) => [text, held[i]?.record]));
    const wanted = queue || from !== null ? distinct.map(([, key]) => key) : [];
    const entries = await Promise.all(wanted.map((key) => entriesOf(work.objectStore("queue"), key)));
    return { meta, rows, queue: entries.flat().sort(([one], [other]) => one - other) };
  }

  write(work, { meta, rows = [], replace, queueAdd = [], queueRemove = [], rejectedAdd = [], rejectedClear }) {
    const store = (name) => work.objectStore(name);
    for (const [name, value] of Object.entries(meta ?? {})) store("meta").put(value, name);
    if (replace) store("rows").clear();
    for (const [table, rowId, record] of rows) {
      store("rows").put({ record, terms: terms(table, record, this.indexes) }, [table, rowId]);
    }
    queueRemove.forEach((number) => store("queue").delete(number));
    queueAdd.forEach((delta) => store("queue").add({ key: [delta.table, delta.rowId], delta }));
    if (rejectedClear) store("rejected").clear();
    rejectedAdd.forEach((refused) => store("rejected").add(refused));
  }

  /** Where other columns are indexed than when the rows were written, their terms are made anew. */
  async reindex() {
    const declared = JSON.stringify(Object.entries(this.indexes).sort());
    if (((await this.meta()).indexed ?? "[]") === declared) return;
    await this.update({ all: true }, ({ rows }) => {
      const again = [...rows].map(([text, record]) => [...split(text), record]);
      return { meta: { indexed: declared }, rows: again };
    });
  }

  transaction(mode) {
    const durability = mode === "readwrite" ? "strict" : "default";
    try {
      return this.database.transaction(["rows", "queue", "rejected", "meta"], mode, { durability });
    } catch (error) {
      throw failure(this.name, error);
    }
  }
}

async function everyRow(store) {
  const [keys, held] = await Promise.all([settled(store.getAllKeys()), settled(store.getAll())]);
  return new Map(keys.map((key, i) => [keyText(...key), held[i].record]));
}

async function entriesOf(store, key) {
  const index = store.index("key");
  const [numbers, held] = await Promise.all([settled(index.getAllKeys(key)), settled(index.getAll(key))]);
  return numbers.map((number, i) => [number, held[i].delta]);
}

async function everyEntry(store, limit) {
  const [numbers, held] = await Promise.all([settled(store.getAllKeys(null, limit)), settled(store.getAll(null, limit))]);
  return numbers.map((number, i) => [number, held[i].delta]);
}

async function readMeta(work) {
  const store = work.objectStore("meta");
  const [names, values] = await Promise.all([settled(store.getAllKeys()), settled(store.getAll())]);
  return Object.fromEntries(names.map((name, i) => [name, values[i]]));
}

function split(text) {
  const end = text.indexOf("\u0000");
  return [text.slice(0, end), text.slice(end + 1)];
}

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function tryAbort(work) {
  try {
    work.abort();
  } catch (error) {
    if (error.name !== "InvalidStateError") throw error; // it has ended by itself
  }
}

function failure(name, error) {
  const words = `store ${name} cannot be written: ${error?.message ?? "the browser ended the step"}`;
  return new GatewayError(words, "storage_failed");
}
