// Stores without a gateway, the same questions to every storage that runs in Node; a reference holds all writes in a list.
import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { FileStorage } from "../src/file_storage.js";
import { MemoryStorage, Store, canonicalJson, merge } from "../src/index.js";

const folder = mkdtempSync(join(tmpdir(), "driftline-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
let files = 0;
const newFile = () => join(folder, `${files++}.journal`);
const storages = { memory: () => new MemoryStorage(), file: () => new FileStorage(newFile()) };

for (const [kind, make] of Object.entries(storages)) {
  test(`${kind}: ids are in code-unit order, integers among them`, async () => {
    const store = await Store.open({ clientId: "a", storage: make() });
    for (const id of ["10", "9", "a", "B", "\u{1f600}", "\uffff"]) await store.put("t", id, { v: id });
    assert.deepEqual([...(await store.rows("t")).keys()], ["10", "9", "B", "a", "\u{1f600}", "\uffff"]);
    await store.delete("t", "9");
    assert.equal(await store.get("t", "9"), null);
    assert.equal((await store.rows("other")).size, 0);
    await store.close();
  });

  test(`${kind}: queries with and without an index agree`, async () => {
    const indexed = await Store.open({ clientId: "a", storage: make(), indexes: { t: ["v"] } });
    const plain = await Store.open({ clientId: "a", storage: make() });
    const values = [1, "1", 1.5, true, "true", false, null, "x", [1], { a: 1 }, 0, "0"];
    for (let i = 0; i < 60; i++) {
      for (const store of [indexed, plain]) {
        await store.put("t", String(i % 40), { v: values[i % values.length], n: i });
        if (i % 7 === 0) await store.delete("t", String((i * 3) % 40));
      }
    }
    const ops = ["eq", "neq", "in", "gt", "lt", "gte", "lte"];
    for (const op of ops) {
      for (const value of [...values, "abc", -0, "1.0"]) {
        if (Array.isArray(value) && ops.indexOf(op) > 2) continue;
        const where = [{ column: "v", op, value: op === "in" ? [value, "x"] : value }];
        assert.deepEqual(await indexed.query("t", { where }), await plain.query("t", { where }), `${op} ${value}`);
      }
    }
    const top = await plain.query("t", { order: { column: "n", descending: true }, limit: 2 });
    assert.deepEqual([...top.values()].map(({ n }) => n), [59, 58]);
    await assert.rejects(plain.query("t", { where: [{ column: "v", op: "like", value: "x" }] }), TypeError);
    await Promise.all([indexed.close(), plain.close()]);
  });

  test(`${kind}: subscribers are told once a turn, of what they asked for`, async () => {
    const store = await Store.open({ clientId: "a", storage: make() });
    const told = [];
    const stop = store.subscribe({ table: "t", where: [{ column: "v", op: "gt", value: 1 }] }, (news) => told.push(news));
    await store.put("other", "1", { v: 5 });
    await store.put("t", "1", { v: 1 });
    await store.put("t", "2", { v: 2 });
    await store.put("t", "2", { v: 0 });
    await store.put("t", "2", { v: 0 });
    stop();
    await store.put("t", "3", { v: 3 });
    const row = (columns) => [{ table: "t", rowId: "2", columns }];
    assert.deepEqual(told, [row({ v: 2 }), row(null)]);
    await store.close();
  });

  test(`${kind}: what is seen is the merge of all that was written`, async () => {
    let seed = 11;
    const dice = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
    const store = await Store.open({ clientId: "a", storage: make() });
    for (let i = 0; i < 200; i++) {
      if (dice(5) === 0) await store.delete("t", String(dice(9)));
      else await store.put("t", String(dice(9)), { ["xyz"[dice(3)]]: dice(4) });
    }
    const written = (await store.storage.queued(Infinity)).map(([, delta]) => delta);
    const expected = [...merge(written)].filter(([, row]) => row !== null).map(([key, row]) => [key.slice(2), row]);
    const seen = [...(await store.rows("t"))].map(([id, row]) => [id, canonicalJson(row)]);
    assert.deepEqual(seen, expected.map(([id, row]) => [id, canonicalJson(row)]).sort());
    await store.close();
  });
}

test("values that JSON does not carry are refused by name, and nothing is written", async () => {
  const store = await Store.open({ clientId: "a", types: { t: { big: "integer", money: "decimal(2)" } } });
  const wrong = [NaN, Infinity, undefined, new Date(), new Map(), 2n ** 60n, () => 1, { a: undefined }, [NaN], "\ud800"];
  for (const v of wrong) await assert.rejects(store.put("t", "1", { v }), { code: "invalid_value", message: /column v: / });
  for (const name of ["", "_hidden", "a\u0000", "x".repeat(256)]) {
    await assert.rejects(store.put("t", "1", { [name]: 1 }), { code: "invalid_name" });
  }
  await assert.rejects(store.put("t", "1", { a: 1, A: 2 }), { code: "invalid_name" });
  await assert.rejects(store.put("1t", "1", { a: 1 }), { code: "invalid_name" });
  await assert.rejects(store.put("t", "", { a: 1 }), { code: "invalid_name" });
  await assert.rejects(store.put("t", "1", { big: 2n ** 63n }), { code: "invalid_value" });
  assert.equal(await store.pending(), 0);
  await store.put("t", "1", { big: 2n ** 60n, money: 12n, zero: -0, small: undefined ?? null });
  await store.put("t", "2", { big: 7n });
  assert.deepEqual(await store.get("t", "1"), { big: "1152921504606846976", money: "12", small: null, zero: 0 });
  assert.ok(Object.is((await store.get("t", "1")).zero, 0));
  assert.deepEqual(await store.get("t", "2"), { big: 7 });
});

test("a file survives its process, also one that ended in the middle of a line", async () => {
  const path = newFile();
  const first = await Store.open({ clientId: "a", storage: new FileStorage(path) });
  await first.put("t", "1", { v: "one" });
  await first.put("t", "2", { v: "two" });
  await assert.rejects(Store.open({ clientId: "a", storage: new FileStorage(path) }), { code: "other_process" });
  await first.close();
  appendFileSync(path, '0123456789abcdef {"rows":[["t","3"'); // killed while it wrote
  const second = await Store.open({ clientId: "a", storage: new FileStorage(path) });
  assert.equal(await second.pending(), 2);
  assert.deepEqual([...(await second.rows("t")).keys()], ["1", "2"]);
  await second.put("t", "3", { v: "three" });
  await second.close();
  await assert.rejects(Store.open({ clientId: "b", storage: new FileStorage(path) }), { code: "other_client" });
  const lines = readFileSync(path, "utf8").split("\n");
  writeFileSync(path, [lines[0], lines[1].replace("one", "two"), ...lines.slice(2)].join("\n"));
  await assert.rejects(Store.open({ clientId: "a", storage: new FileStorage(path) }), { code: "damaged_store" });
  writeFileSync(path, "something else\n");
  await assert.rejects(Store.open({ clientId: "a", storage: new FileStorage(path) }), { code: "unknown_format" });
});

test("a journal is written anew when it has grown, and loses nothing", async () => {
  const path = newFile();
  const storage = new FileStorage(path);
  const store = await Store.open({ clientId: "a", storage });
  const text = "x".repeat(20_000);
  for (let i = 0; i < 120; i++) await store.put("t", "1", { v: text + i });
  assert.ok(storage.rewritten > 1000);
  await store.close();
  const again = await Store.open({ clientId: "a", storage: new FileStorage(path) });
  assert.equal((await again.get("t", "1")).v, `${text}119`);
  assert.equal(await again.pending(), 120);
  await again.close();
});

test("a put does not read or write other rows", async () => {
  const storage = new MemoryStorage();
  const store = await Store.open({ clientId: "a", storage });
  const rows = Array.from({ length: 100_000 }, (_, i) => ["t", String(i), { fold: null, seen: null, waiting: 0 }]);
  await storage.update({}, () => ({ rows }));
  const touched = [];
  for (const [rowId] of storage.tables.get("t")) {
    if (rowId === "70000") continue;
    Object.defineProperty(storage.tables.get("t").get(rowId), "fold", { get: () => touched.push(rowId) });
  }
  const steps = [];
  const write = storage.write.bind(storage);
  storage.write = (step) => steps.push(step) && write(step);
  await store.put("t", "70000", { v: 1 });
  assert.deepEqual(await store.get("t", "70000"), { v: 1 });
  assert.deepEqual([touched, steps.length, steps[0].rows.length], [[], 1, 1]);
});
