// The gateway over HTTP: push, pull, snapshot pages and the live feed, all by fetch.

const RETRIED = [429, 503];
const SILENCE_MS = 45000; // a feed's heart beats every 15 seconds
// The codes of the protocol are in capitals; a server may also spell them in lower case, as all other codes are.
const PROTOCOL = ["AUTH_ERROR", "BACKPRESSURE_ERROR", "CLOCK_DRIFT", "FORBIDDEN", "INTERNAL_ERROR", "METHOD_NOT_ALLOWED",
  "MUST_REFETCH", "NOT_FOUND", "OVERLOADED", "PAYLOAD_TOO_LARGE", "RATE_LIMITED", "REQUEST_TIMEOUT", "SCHEMA_ERROR",
  "TOO_OLD", "UNSUPPORTED_MEDIA_TYPE", "VALIDATION_ERROR"];

/** What the gateway refused, or that it could not be reached (`unreachable`). */
export class GatewayError extends Error {
  constructor(message, code, more = {}) {
    super(message);
    Object.assign(this, more, { code: spelled(code) });
  }
}

function spelled(code) {
  const capitals = String(code).toUpperCase();
  return PROTOCOL.includes(capitals) ? capitals : code;
}

/** Talks to one gateway as one client; a token that has to be renewed is given as a function. */
export class Gateway {
  constructor({ url, gateway, clientId, token = null, parameters = {}, patienceMs = 5000, fetch = globalThis.fetch }) {
    this.root = `${url.replace(/\/+$/, "")}/v1/sync/${encodeURIComponent(gateway)}`;
    this.clientId = clientId;
    this.token = token;
    this.parameters = Object.fromEntries(Object.entries(parameters).map(([name, text]) => [`p.${name}`, text]));
    this.patienceMs = patienceMs;
    this.fetch = (...request) => fetch(...request);
  }

  /** Push one batch. */
  async push(deltas) {
    const body = JSON.stringify({ clientId: this.clientId, deltas });
    return (await this.request("/push", {}, { method: "POST", body })).json();
  }

  /** Every page after a cursor (or from the beginning) up to the end of the log. */
  async *pull(cursor, limit = 1000) {
    while (true) {
      const start = cursor === null ? { since: "0" } : { cursor };
      const page = await (await this.request("/pull", { limit, ...start })).json();
      yield page;
      if (!page.hasMore) return;
      cursor = page.cursor;
    }
  }

  /** The state of all rows, page by page: `{ rows, cursor, serverHlc, … }`; a page without its end is asked for again. */
  async *snapshot(limit = 5000) {
    let start = { limit };
    while (true) {
      const page = parsePage(await (await this.request("/snapshot", start)).text());
      yield page;
      if (page.next === null) return;
      start = { page: page.next };
    }
  }

  /** Events of the feed from a cursor on, as `{ event, id, data }`. */
  async *feed(cursor, signal) {
    const watch = new AbortController();
    const stop = () => watch.abort();
    signal?.addEventListener("abort", stop);
    let silence = setTimeout(stop, SILENCE_MS);
    try {
      const answer = await this.once("/feed", { cursor }, { signal: watch.signal });
      for await (const chunk of blocks(answer.body)) {
        clearTimeout(silence);
        silence = setTimeout(stop, SILENCE_MS);
        const event = parseEvent(chunk);
        if (event.data !== undefined) yield event;
      }
    } catch (error) {
      if (!signal?.aborted) throw asGatewayError(error);
    } finally {
      clearTimeout(silence);
      signal?.removeEventListener("abort", stop);
      stop();
    }
  }

  async request(path, query, options = {}) {
    const deadline = Date.now() + this.patienceMs;
    for (let pause = 200; ; pause = Math.min(pause * 2, 5000)) {
      try {
        return await this.once(path, query, options);
      } catch (error) {
        const later = error.code === "unreachable" || RETRIED.includes(error.status);
        const wait = error.retryAfter ? error.retryAfter * 1000 : pause;
        if (!later || Date.now() + wait > deadline) throw error;
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  async once(path, query, options) {
    const token = typeof this.token === "function" ? await this.token() : this.token;
    const words = new URLSearchParams({ clientId: this.clientId, ...this.parameters, ...query });
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    if (options.body) headers["Content-Type"] = "application/json";
    let answer;
    try {
      answer = await this.fetch(`${this.root}${path}?${words}`, { ...options, headers });
    } catch (error) {
      throw asGatewayError(error);
    }
    if (!answer.ok) throw await refusal(answer);
    return answer;
  }
}

function asGatewayError(error) {
  if (error instanceof GatewayError) return error;
  return new GatewayError(`no answer from the gateway: ${error.cause?.message ?? error.message}`, "unreachable");
}

async function refusal(answer) {
  const retryAfter = Number(answer.headers.get("Retry-After")) || null;
  try {
    const body = await answer.json();
    return new GatewayError(body.error, body.code, { ...body, status: answer.status, retryAfter });
  } catch {
    const words = `the gateway answered ${answer.status}`;
    return new GatewayError(words, "unexpected_answer", { status: answer.status, retryAfter });
  }
}

function parsePage(text) {
  const lines = text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
  const [first, last] = [lines[0], lines.at(-1)];
  if (!first?.page || !last?.end) throw new GatewayError("a snapshot page without its end", "unexpected_answer");
  const { serverHlc, serverTime, types } = first.page;
  return { rows: lines.slice(1, -1), serverHlc, serverTime, types, next: last.end.next, cursor: last.end.cursor };
}

/** The blocks of an event stream: what stands between two blank lines. */
async function* blocks(body) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks(body)) {
    rest += decoder.decode(chunk, { stream: true });
    const whole = rest.split("\n\n");
    rest = whole.pop();
    yield* whole;
  }
}

/** Not every browser can iterate a stream. */
async function* chunks(body) {
  const reader = body.getReader();
  try {
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) yield value;
  } finally {
    reader.releaseLock();
  }
}

function parseEvent(block) {
  const event = {};
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
  }
  return event.data === undefined ? event : { ...event, data: JSON.parse(event.data) };
}
