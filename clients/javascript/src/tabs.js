// Tabs that share a store: one of them, elected by a Web Lock, syncs; each tells the others which rows it changed.

import { GatewayError } from "./gateway.js";

const LEASE_MS = 6000;
const KEYS = 1000; // a message

/** The tabs of one store in this browser; `onNews` gets the keys of the rows that another tab changed. */
export class Tabs {
  constructor(name, onNews) {
    this.lockName = `driftline:${name}`;
    this.isLeader = false;
    this.channel = new BroadcastChannel(this.lockName);
    this.channel.onmessage = ({ data }) => onNews(data.keys);
    this.ended = new AbortController();
    this.elected = new Promise((resolve) => (this.tellElected = resolve));
  }

  /** Ask for the lead; returns once it is known who has it now. */
  async join(storage) {
    if (globalThis.navigator?.locks === undefined) await this.lease(storage);
    else {
      const free = await new Promise((resolve) => {
        navigator.locks.request(this.lockName, { ifAvailable: true }, (lock) => {
          resolve(lock !== null);
          return lock === null ? undefined : this.lead();
        });
      });
      if (!free) this.waiting = this.waitForLead();
    }
  }

  tell(keys) {
    for (let i = 0; i < keys.length; i += KEYS) this.channel.postMessage({ keys: keys.slice(i, i + KEYS) });
  }

  async close() {
    this.ended.abort();
    clearInterval(this.renewing);
    this.channel.close();
    await this.waiting;
  }

  lead() {
    this.isLeader = true;
    this.tellElected();
    return new Promise((resolve) => this.ended.signal.addEventListener("abort", resolve));
  }

  async waitForLead() {
    try {
      await navigator.locks.request(this.lockName, { signal: this.ended.signal }, () => this.lead());
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  /** Without Web Locks (a page that is not served securely) there is one tab only: a lease in the storage says which. */
  async lease(storage) {
    const own = crypto.getRandomValues(new Uint32Array(4)).join("-");
    const renew = () =>
      storage.update({}, ({ meta }) => {
        const held = meta.lease;
        if (held && held.own !== own && held.until > Date.now()) throw otherTab();
        return { meta: { lease: { own, until: Date.now() + LEASE_MS } } };
      });
    await renew();
    this.renewing = setInterval(() => renew().catch(() => (this.isLeader = false)), LEASE_MS / 3);
    this.isLeader = true;
    this.tellElected();
  }
}

export function otherTab() {
  const words = "another tab syncs this store; what it fetches is seen here too, and this tab takes over when that one is closed";
  return new GatewayError(words, "other_tab");
}
