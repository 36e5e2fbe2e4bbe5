// A to-do list that is synced through a gateway: one pane for each client, each with a store of its own in this browser.
import { IndexedDbStorage, Store } from "./driftline/index.js";

const query = new URLSearchParams(location.search);
const { url, gateway } = await (await fetch("config.json")).json();

class Pane {
  constructor(name) {
    this.name = name;
    this.line = null;
    this.following = Promise.resolve();
    this.element = document.querySelector("template").content.cloneNode(true).querySelector("section");
    document.querySelector("main").append(this.element);
    this.find("h2").textContent = name;
    this.find("[name=offline]").onchange = (event) => (event.target.checked ? this.disconnect() : this.connect());
    this.find("form").onsubmit = (event) => {
      event.preventDefault();
      this.add(event.target.title.value);
      event.target.reset();
    };
  }

  async open({ offline = false } = {}) {
    const token = async () => (await fetch(`token?client=${encodeURIComponent(this.name)}`)).text();
    this.store = await Store.open({ clientId: this.name, storage: new IndexedDbStorage(this.name), url, gateway, token });
    this.store.subscribe({ table: "todos" }, () => this.show());
    if (!offline) this.connect();
    await this.show();
    return this;
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  connect() {
    this.line = new AbortController();
    this.following = this.follow(this.line.signal);
    return this.show();
  }

  async disconnect() {
    this.line?.abort();
    await this.following;
    await this.show();
  }

  async follow(signal) {
    try {
      for await (const change of this.store.follow({ signal })) await this.show(change);
    } catch (error) {
      this.find("footer").textContent = error.message;
    }
  }

  async add(title) {
    if (title.trim()) await this.write(`${this.name}-${Date.now()}`, { title: title.trim(), done: false });
  }

  async write(id, columns) {
    await (columns === null ? this.store.delete("todos", id) : this.store.put("todos", id, columns));
    await this.show();
  }

  async show() {
    const [rows, pending] = await Promise.all([this.store.rows("todos"), this.store.pending()]);
    this.find("ul").replaceChildren(...[...rows].map(([id, row]) => this.item(id, row)));
    const waiting = pending ? `, ${pending} waiting to be sent` : "";
    const other = this.store.isLeader ? "" : ", another tab sends";
    this.find("footer").textContent = `${rows.size} to do${waiting}${other}`;
    const isOffline = this.line === null || this.line.signal.aborted;
    this.element.classList.toggle("offline", isOffline);
    this.find("[name=offline]").checked = isOffline;
  }

  item(id, { title, done }) {
    const item = document.createElement("li");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: done });
    box.onchange = () => this.write(id, { done: box.checked });
    const text = Object.assign(document.createElement("span"), { textContent: title });
    const remove = Object.assign(document.createElement("button"), { textContent: "×", title: "remove" });
    remove.onclick = () => this.write(id, null);
    item.classList.toggle("done", done);
    item.append(box, text, remove);
    return item;
  }
}

// Stories that the page plays by itself (`?play=…`) and reports to page.py.
const stories = {
  /** The story that the README tells: one client is offline for a while. */
  async offline() {
    const [laptop, phone] = await Promise.all(["laptop", "phone"].map((name) => new Pane(name).open()));
    await laptop.write("1", { title: "buy milk", done: false });
    await until(() => phone.store.get("todos", "1"));
    await phone.disconnect();
    await phone.write("1", { done: true });
    await laptop.write("1", { title: "buy oat milk" });
    await laptop.write("2", { title: "call Ada", done: false });
    await until(async () => (await laptop.store.pending()) === 0);
    phone.connect();
    await until(async () => (await phone.store.pending()) === 0 && (await phone.store.get("todos", "2")));
    await until(async () => (await laptop.store.get("todos", "1")).done);
    await Promise.all([laptop, phone].map((pane) => pane.disconnect()));
    const [one, other] = await Promise.all([laptop, phone].map(({ store }) => store.rows("todos")));
    return JSON.stringify([...one]) === JSON.stringify([...other]) ? "converged" : "different";
  },

  /** Writes that were made offline are there after a reload, and are sent then. */
  async reload() {
    const pane = await new Pane("laptop").open({ offline: true });
    await pane.write("1", { title: "buy milk", done: false });
    await pane.write("2", { title: "call Ada", done: false });
    location.search = "?play=reloaded";
    return null;
  },

  async reloaded() {
    const pane = await new Pane("laptop").open({ offline: true });
    const [before, rows] = [await pane.store.pending(), await pane.store.rows("todos")];
    const report = await pane.store.sync();
    return `${before} waited, ${rows.size} seen, ${report.pushed} sent, ${await pane.store.pending()} left`;
  },

  /** A second tab (here a frame) does not sync, but its writes are sent; it takes over when the first one is closed. */
  async tabs() {
    const pane = await new Pane("laptop").open();
    const frame = Object.assign(document.createElement("iframe"), { src: "?play=second" });
    const told = [];
    addEventListener("message", ({ data }) => told.push(data));
    document.body.append(frame);
    await until(() => told.length === 1); // the second tab has written
    await until(async () => (await pane.store.get("todos", "second")) && (await pane.store.pending()) === 0);
    await pane.write("first", { title: "from the first tab", done: false });
    await until(() => told.length === 2); // it has seen that
    await pane.disconnect();
    await pane.store.close();
    await until(() => told.length === 3); // it has synced by itself
    return told.join(", ");
  },

  async second() {
    const pane = await new Pane("laptop").open({ offline: true });
    const refused = await pane.store.sync().then(() => "synced", ({ code }) => code);
    const seen = new Promise((resolve) => pane.store.subscribe({ table: "todos", rowId: "first" }, resolve));
    await pane.write("second", { title: "from the second tab", done: false });
    parent.postMessage(refused);
    const [{ columns }] = await seen;
    parent.postMessage(columns.title);
    await until(() => pane.store.isLeader);
    await pane.write("third", { title: "alone", done: false });
    const { pushed } = await pane.store.sync();
    parent.postMessage(`took over, ${pushed} sent`);
    return null;
  },
};

if (query.has("play")) {
  const result = await stories[query.get("play") || "offline"]();
  if (result !== null) {
    document.title = result;
    await fetch("played", { method: "POST", body: `${result}: ${document.querySelector("main").innerText}` });
  }
} else {
  await Promise.all((query.get("clients") ?? "laptop,phone").split(",").map((name) => new Pane(name).open()));
}

async function until(condition) {
  for (let i = 0; i < 200 && !(await condition()); i++) await new Promise((resolve) => setTimeout(resolve, 100));
}
