// The same vectors as the Python code: ids, clock, extraction, merging, snapshot rows.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Clock, GatewayError, RowFold, canonicalJson, deltaId, extract, merge } from "../src/index.js";
import { splitHlc } from "../src/clock.js";

const read = (name) => JSON.parse(readFileSync(new URL(`../../../tests/vectors/${name}`, import.meta.url), "utf8"));
const cases = Object.fromEntries(read("delta-cases.json").map((each) => [each.id, each]));
const sync = Object.fromEntries(read("sync.json").map((each) => [each.id, each]));

for (const { name, input, canonical, deltaId: expected } of read("delta-id.json")) {
  test(`id: ${name}`, () => {
    const delta = { ...input, columns: JSON.parse(input.columns_json) };
    const { clientId, columns, hlc, rowId, table } = delta;
    if (canonical) assert.equal(canonicalJson({ clientId, columns, hlc, rowId, table }), canonical);
    assert.equal(deltaId(delta), expected);
  });
}

test("a code of the protocol is understood in both spellings", () => {
  assert.equal(new GatewayError("anew", "must_refetch").code, "MUST_REFETCH");
  assert.equal(new GatewayError("anew", "MUST_REFETCH", { code: "must_refetch", reason: "x" }).code, "MUST_REFETCH");
  assert.equal(new GatewayError("no answer", "unreachable").code, "unreachable");
});

test("the clock counts up while the wall stands still", () => {
  const { input, expected } = cases.H1;
  const walls = [...input.wall];
  const clock = new Clock(() => walls.shift());
  assert.deepEqual(input.ops.map(() => String(clock.now())), expected.encoded);
});

for (const name of ["a", "b"]) {
  test(`the clock at the drift boundary: ${name}`, () => {
    const { input, expected } = cases.H6;
    const clock = new Clock(() => input.wall_frozen);
    input[`ops_${name}`].forEach(([op, hlc], i) => {
      const wanted = expected[name][i];
      if (wanted.error) assert.throws(() => clock.recv(hlc), { code: wanted.error, message: wanted.message });
      else assert.deepEqual(splitHlc(op === "recv" ? clock.recv(hlc) : clock.now()), wanted);
    });
  });
}

for (const name of ["E1", "E2"]) {
  test(`extraction: ${cases[name].title}`, () => {
    const { input, expected } = cases[name];
    const delta = extract(input.before, input.after, input);
    for (const [member, value] of Object.entries(expected)) assert.deepEqual(delta[member], value);
  });
}

test("extraction: -0 is a change at the top, not below; NaN is itself", () => {
  const where = { table: "t", rowId: "r", clientId: "c", hlc: 1n };
  assert.equal(extract({ x: 0 }, { x: -0 }, where).op, "UPDATE");
  assert.equal(extract({ x: { y: 0 } }, { x: { y: -0 } }, where), null);
  assert.equal(extract({ x: NaN }, { x: NaN }, where), null);
});

test("the higher client id wins equal timestamps", () => {
  const { local, remote } = cases.L3.input;
  for (const order of [[local, remote], [remote, local]]) {
    assert.deepEqual(merge(order).get("todos\u0000row-1"), cases.L3.expected.columns);
  }
});

test("every order of arrival converges", () => {
  const [a, b, c] = cases.M1.input.deltas;
  for (const order of [[a, b, c], [a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]]) {
    assert.deepEqual(merge(order).get("todos\u0000row-1"), cases.M1.expected.columns);
  }
});

for (const name of ["SB1", "SB2"]) {
  test(`snapshot: ${sync[name].title}`, () => {
    const row = sync[name].steps[1].row;
    row.stamps = row.stamps.map(([hlc, client]) => [hlc, client, "0123456789abcdef"]);
    const fold = RowFold.fromPlain(row);
    const [late] = sync[name].steps[2].push;
    const columns = Object.entries(late.columns).map(([column, value]) => ({ column, value }));
    fold.add({ ...late, columns, deltaId: "f".repeat(64) });
    assert.deepEqual(fold.state(), sync[name].steps[4].state["todos/1"] ?? null);
    assert.deepEqual(RowFold.fromPlain(fold.toPlain()).state(), fold.state());
  });
}
