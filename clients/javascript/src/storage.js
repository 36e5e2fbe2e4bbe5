// Where a store keeps its rows. `MemoryStorage` forgets them with the page; another one (IndexedDB, a file) has the
// same two methods. `save` gets everything that changed in one step and must keep all of it or nothing.

/**
 * load(): the state that was saved last, or null:
 *   { meta: {cursor, clock}, confirmed: [[table, rowId, plainFold], …], queue: [delta, …], rejected: [{…}, …] }
 * save(step): one step:
 *   { meta?, rows?: [[table, rowId, plainFold], …], replace?: boolean (rows are all there are), queue?, rejected? }
 */
export class MemoryStorage {
  constructor() {
    this.state = null;
  }

  async load() {
    return this.state;
  }

  async save(step) {
    const before = this.state ?? { meta: {}, confirmed: [], queue: [], rejected: [] };
    const rows = new Map((step.replace ? [] : before.confirmed).map((row) => [`${row[0]}\u0000${row[1]}`, row]));
    for (const row of step.rows ?? []) rows.set(`${row[0]}\u0000${row[1]}`, row);
    this.state = {
      meta: { ...before.meta, ...step.meta },
      confirmed: [...rows.values()],
      queue: step.queue ?? before.queue,
      rejected: step.rejected ?? before.rejected,
    };
  }
}
