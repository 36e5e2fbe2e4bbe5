// Against a real gateway: DRIFTLINE_URL, DRIFTLINE_GATEWAY and DRIFTLINE_TOKENS (by client) say where it is.
import assert from "node:assert/strict";
import { test } from "node:test";

import { MemoryStorage, Store } from "../src/index.js";

const url = process.env.DRIFTLINE_URL;
const tokens = JSON.parse(process.env.DRIFTLINE_TOKENS ?? "{}");
const skip = url ? false : "no gateway is named";

function open(clientId, more = {}) {
  return Store.open({ clientId, url, gateway: process.env.DRIFTLINE_GATEWAY, token: () => tokens[clientId], ...more });
}

test("writes are seen at once, sent later, and others get them", { skip }, async () => {
  const storage = new MemoryStorage();
  const offline = await Store.open({ clientId: "a", storage });
  await offline.put("todos", "1", { title: "milk", done: false });
  await offline.put("todos", "1", { done: true });
  await offline.put("todos", "1", { done: true });
  assert.deepEqual([...(await offline.rows("todos"))], [["1", { done: true, title: "milk" }]]);
  assert.equal(await offline.pending(), 2);
  await assert.rejects(offline.sync(), { code: "no_gateway" });

  const [one, two] = [await open("a", { storage }), await open("b")];
  assert.equal((await one.sync()).pushed, 2);
  await two.sync();
  assert.deepEqual(await two.get("todos", "1"), { done: true, title: "milk" });
  await two.delete("todos", "1");
  await two.sync();
  assert.deepEqual((await one.sync()).changes, [{ table: "todos", rowId: "1", columns: null }]);
  assert.equal((await (await open("a", { storage })).rows("todos")).size, 0); // as it was saved
});

test("refused writes are set aside and the rest is sent", { skip }, async () => {
  const store = await open("a");
  await store.put("strict", "1", { title: "good" });
  await store.put("strict", "2", { title: 7 });
  await store.put("strict", "3", { title: "good too" });
  const report = await store.sync();
  assert.deepEqual([report.pushed, report.rejected, await store.pending()], [2, 1, 0]);
  assert.deepEqual([...(await store.rows("strict")).keys()], ["1", "3"]);
  assert.equal((await store.rejected())[0].code, "SCHEMA_ERROR");
});

test("clients converge whatever happens", { skip }, async () => {
  let seed = 7;
  const dice = (n) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
  const stores = await Promise.all(["a", "b", "c"].map((name) => open(name)));
  for (let i = 0; i < 100; i++) {
    const [store, row, action] = [stores[dice(3)], String(dice(3)), dice(10)];
    if (action < 6) await store.put("todos", row, { ["xyz"[dice(3)]]: dice(5) });
    else if (action < 7) await store.delete("todos", row);
    else await store.sync();
  }
  for (let i = 0; i < 2; i++) for (const store of stores) await store.sync();
  const seen = await Promise.all(stores.map((store) => store.rows("todos")));
  assert.deepEqual(seen[1], seen[0]);
  assert.deepEqual(seen[2], seen[0]);
  console.log(`converged ${JSON.stringify(Object.fromEntries(seen[0]))}`);
});

test("follow tells of others' writes and sends its own", { skip }, async () => {
  const [one, two] = [await open("a"), await open("b")];
  const ended = new AbortController();
  const seen = [];
  const following = (async () => {
    for await (const change of one.follow({ signal: ended.signal })) seen.push(change);
  })();
  await two.put("notes", "1", { text: "hello" });
  await two.sync();
  await until(() => seen.some(({ table, columns }) => table === "notes" && columns?.text === "hello"));
  await one.put("notes", "1", { text: "hello back" });
  await until(async () => (await one.pending()) === 0);
  await two.sync();
  assert.deepEqual(await two.get("notes", "1"), { text: "hello back" });
  ended.abort();
  await following;
});

test("a follower tells what it cannot mend", { skip }, async () => {
  const store = await open("a", { token: "wrong" });
  await assert.rejects(async () => {
    for await (const change of store.follow()) assert.fail(change);
  }, { code: "AUTH_ERROR" });
});

test("writes of a clock a day ahead are sent in the first round, in order, and stop nothing", { skip }, async () => {
  const day = 86_400_000;
  const [wrong, right] = [await open("a", { wall: () => Date.now() + day }), await open("b")];
  for (let i = 0; i < 120; i++) await wrong.put("notes", `clock${i % 3}`, { text: String(i) });
  const report = await wrong.sync();
  assert.deepEqual([report.pushed, report.rejected, await wrong.pending()], [120, 0, 0]);
  assert.deepEqual(await wrong.get("notes", "clock2"), { text: "119" });
  await right.sync();
  assert.deepEqual(await right.get("notes", "clock2"), { text: "119" });
  await right.put("notes", "clock2", { text: "later" });
  await right.sync();
  await wrong.sync();
  assert.deepEqual(await wrong.get("notes", "clock2"), { text: "later" });
  await wrong.put("notes", "clock2", { text: "last" }); // stamped by the gateway's time from now on
  await wrong.sync();
  await right.sync();
  assert.deepEqual(await right.get("notes", "clock2"), { text: "last" });
});

async function until(condition) {
  for (let i = 0; i < 400 && !(await condition()); i++) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok(await condition());
}
