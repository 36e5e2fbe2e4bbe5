// A store in one file, for Node: a journal of steps, each line with its checksum, written through to the disk before a
// step counts. What it holds is in memory too, so reading costs what it costs there.

import { createHash, randomUUID } from "node:crypto";
import { open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname } from "node:path";

import { GatewayError } from "./gateway.js";
import { MemoryStorage } from "./storage.js";

const FORMAT = "driftline-journal 1";
const SMALLEST_REWRITE = 1 << 20; // bytes
const ROWS_A_LINE = 1000;

/** Rows, queue and position in the file `path`; a second process that opens it is refused (`other_process`). */
export class FileStorage extends MemoryStorage {
  constructor(path) {
    super();
    this.path = path;
    this.turn = Promise.resolve();
    this.failed = null;
  }

  async open(indexes) {
    await this.lock();
    try {
      await this.replay();
    } catch (error) {
      await this.unlock();
      throw error;
    }
    await super.open(indexes);
  }

  /** One step after the other: what a caller is told is on the disk. */
  update(request, decide) {
    const done = this.turn.then(() => this.step(request, decide));
    this.turn = done.catch(() => {});
    return done;
  }

  async close() {
    await this.turn;
    await this.file?.close();
    this.file = undefined;
    await this.unlock();
  }

  async step(request, decide) {
    if (this.failed !== null) throw this.failed;
    if (this.file === undefined) throw new GatewayError(`${this.path} is closed`, "closed");
    const step = decide(this.requested(request));
    if (step === null) return;
    try {
      await this.append(line(step));
    } catch (error) {
      // How much of the line is on the disk is not known: the next process finds out by its checksum.
      this.failed = new GatewayError(`${this.path} cannot be written: ${error.message}; open it anew`, "storage_failed");
      throw this.failed;
    }
    this.write(step);
    if (this.size > Math.max(SMALLEST_REWRITE, 4 * this.rewritten)) await this.rewrite();
  }

  async append(text) {
    await this.file.appendFile(text);
    await this.file.datasync();
    this.size += Buffer.byteLength(text);
  }

  async replay() {
    const text = await readFile(this.path, "utf8").catch((error) => (error.code === "ENOENT" ? null : raise(error)));
    if (text === null || text === "") {
      await this.rewrite();
      return;
    }
    const lines = text.split("\n");
    const torn = lines.pop() !== ""; // the process ended while it wrote the last line, which nobody was told of
    if (lines[0] !== FORMAT) {
      throw new GatewayError(`${this.path} is not a store of this version: ${FORMAT} is read`, "unknown_format");
    }
    const steps = lines.slice(1).map((each, i) => this.parsed(each, i + 2, i + 2 === lines.length && !torn));
    steps.filter((step) => step !== null).forEach((step) => this.write(step));
    const broken = torn || steps.includes(null);
    this.rewritten = Buffer.byteLength(text);
    if (broken) await this.rewrite();
    else await this.reopen(this.rewritten);
  }

  /** The step of a line; null for a last line that was not written whole. */
  parsed(text, number, isLast) {
    const body = text.slice(17);
    if (text[16] === " " && checksum(body) === text.slice(0, 16)) return JSON.parse(body);
    if (isLast) return null;
    throw new GatewayError(`${this.path} is damaged in line ${number}: restore it, or remove it and sync anew`, "damaged_store");
  }

  /** The file anew, as short as what it holds. */
  async rewrite() {
    const rows = [...this.tables].flatMap(([table, held]) => [...held].map(([rowId, record]) => [table, rowId, record]));
    const steps = [{ meta: this.names, queueAdd: [...this.queue.values()], rejectedAdd: this.refused }];
    for (let i = 0; i < rows.length; i += ROWS_A_LINE) steps.push({ rows: rows.slice(i, i + ROWS_A_LINE) });
    const text = `${FORMAT}\n${steps.map(line).join("")}`;
    const beside = `${this.path}.new`;
    await writeFile(beside, text);
    await syncFile(beside);
    await rename(beside, this.path);
    await syncFile(dirname(this.path));
    this.rewritten = Buffer.byteLength(text);
    await this.reopen(this.rewritten);
  }

  async reopen(size) {
    await this.file?.close();
    this.file = await open(this.path, "a");
    this.size = size;
  }

  /** A file beside it names the process that has it open; one that has ended loses it. */
  async lock() {
    const [own, beside] = [`${process.pid} ${randomUUID()}`, `${this.lockPath}.${process.pid}`];
    try {
      await writeFile(this.lockPath, own, { flag: "wx" });
      return;
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    const owner = Number.parseInt(await readFile(this.lockPath, "utf8").catch(() => "0"), 10);
    if (!(owner > 0 && isRunning(owner))) {
      await writeFile(beside, own);
      await rename(beside, this.lockPath);
      await new Promise((resolve) => setTimeout(resolve, 100)); // whoever takes it over at the same time: the last one has it
      if ((await readFile(this.lockPath, "utf8").catch(() => "")) === own) return;
    }
    const words = `${this.path} is open in another process; if there is none, remove ${this.lockPath}`;
    throw new GatewayError(words, "other_process");
  }

  async unlock() {
    await rm(this.lockPath, { force: true });
  }

  get lockPath() {
    return `${this.path}.lock`;
  }
}

function line(step) {
  const body = JSON.stringify(step);
  return `${checksum(body)} ${body}\n`;
}

function checksum(text) {
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

async function syncFile(path) {
  const file = await open(path, "r");
  try {
    await file.sync();
  } finally {
    await file.close();
  }
}

function raise(error) {
  throw error;
}
