// node search_site.js SITE WORDS: the pages that the search of a built site finds, in its order, one a line.
// The search is the site's own worker; this file only stands in for the browser that loads it.
"use strict";
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, words] = process.argv.slice(2);
const index = JSON.parse(fs.readFileSync(path.join(site, "search.json"), "utf8"));
const workers = path.join(site, "assets", "javascripts", "workers");
const script = fs.readdirSync(workers).find((name) => name.startsWith("search"));
const READY = 1, QUERY = 2, RESULT = 3;
const filter = { input: { type: "operator", data: { operator: "and", operands: [] } }, aggregation: { input: [] } };

const worker = {
  postMessage(message) {
    if (message.type === READY) worker.onmessage({ data: { type: QUERY, data: { input: words, filter } } });
    else if (message.type === RESULT) message.data.items.forEach((item) => console.log(index.items[item.id].location));
    else throw new Error("the search failed");
  },
};
vm.runInNewContext(fs.readFileSync(path.join(workers, script), "utf8"), { self: worker, Intl });
worker.onmessage({ data: { type: 0, data: index } });
