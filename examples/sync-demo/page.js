// A to-do list that is synced through a gateway: one pane for each client, each with a store of its own.
import { Store } from "./driftline/index.js";

const query = new URLSearchParams(location.search);
const { url, gateway } = await (await fetch("config.json")).json();

class Pane {
  constructor(name) {
    this.name = name;
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

  async open() {
    const token = async () => (await fetch(`token?client=${encodeURIComponent(this.name)}`)).text();
    this.store = await Store.open({ clientId: this.name, url, gateway, token });
    this.connect();
    return this;
  }

  find(selector) {
    return this.element.querySelector(selector);
  }

  connect() {
    this.line = new AbortController();
    this.show();
    this.following = this.follow(this.line.signal);
  }

  async disconnect() {
    this.line.abort();
    await this.following;
    this.show();
  }

  async follow(signal) {
    try {
      for await (const change of this.store.follow({ signal })) this.show(change);
    } catch (error) {
      this.find("footer").textContent = error.message;
    }
  }

  async add(title) {
    if (title.trim()) await this.write(`${this.name}-${Date.now()}`, { title: title.trim(), done: false });
  }

  async write(id, columns) {
    await (columns === null ? this.store.delete("todos", id) : this.store.put("todos", id, columns));
    this.show();
  }

  show() {
    const rows = Object.entries(this.store.rows("todos"));
    this.find("ul").replaceChildren(...rows.map(([id, row]) => this.item(id, row)));
    const waiting = this.store.pending ? `, ${this.store.pending} waiting to be sent` : "";
    this.find("footer").textContent = `${rows.length} to do${waiting}`;
    this.element.classList.toggle("offline", this.line.signal.aborted);
    this.find("[name=offline]").checked = this.line.signal.aborted;
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

const names = (query.get("clients") ?? "laptop,phone").split(",");
const panes = await Promise.all(names.map((name) => new Pane(name).open()));
if (query.has("play")) {
  document.title = await play(...panes);
  await fetch("played", { method: "POST", body: `${document.title}: ${document.querySelector("main").innerText}` });
}

/** The story that the README tells, played by itself. */
async function play(laptop, phone) {
  await laptop.write("1", { title: "buy milk", done: false });
  await until(() => phone.store.get("todos", "1"));
  await phone.disconnect();
  await phone.write("1", { done: true });
  await laptop.write("1", { title: "buy oat milk" });
  await laptop.write("2", { title: "call Ada", done: false });
  await until(() => laptop.store.pending === 0);
  phone.connect();
  await until(() => phone.store.pending === 0 && phone.store.get("todos", "2"));
  await until(() => laptop.store.get("todos", "1").done);
  const same = JSON.stringify(laptop.store.rows("todos")) === JSON.stringify(phone.store.rows("todos"));
  await Promise.all(panes.map((pane) => pane.disconnect()));
  return same ? "converged" : "different";
}

async function until(condition) {
  for (let i = 0; i < 200 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 100));
}
