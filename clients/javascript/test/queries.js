// Answers queries of a file in JSON, with and without indexes: `node queries.js FILE` writes the row ids of each.
import { readFileSync } from "node:fs";

import { Store } from "../src/index.js";

const { types, rows, queries } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const columns = [...new Set(rows.flatMap(([, values]) => Object.keys(values)))];
const operand = (value) => {
  if (Array.isArray(value)) return value.map(operand);
  return typeof value?.digits === "string" ? BigInt(value.digits) : value;
};
const found = [];
for (const indexes of [{}, { t: columns }]) {
  const store = await Store.open({ clientId: "a", types: { t: types }, indexes });
  for (const [rowId, values] of rows) await store.put("t", rowId, values);
  const told = [];
  for (const { where, order } of queries) {
    const filters = where.map(({ value, ...rest }) => ({ ...rest, value: operand(value) }));
    told.push([...(await store.query("t", { where: filters, order })).keys()]);
  }
  found.push(told);
}
console.log(JSON.stringify(found));
