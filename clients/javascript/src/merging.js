// The one rule of merging: per column the greatest stamp wins, unless a greater DELETE covers it.

// As many digits of an id as snapshots have: they tell apart what hlc and client do not.
const ID_DIGITS = 16;

/** A row with its stamps, ready to take deltas in any order and any number of times. */
export class RowFold {
  constructor() {
    this.columns = new Map(); // name -> { stamp, value }
    this.written = null; // greatest INSERT or UPDATE
    this.deleted = null; // greatest DELETE
  }

  /** Take one delta in. */
  add(delta) {
    const stamp = [BigInt(delta.hlc), delta.clientId, delta.deltaId.slice(0, ID_DIGITS), delta.op === "DELETE"];
    if (delta.op === "DELETE") {
      this.deleted = later(this.deleted, stamp);
      return this;
    }
    this.written = later(this.written, stamp);
    for (const { column, value } of delta.columns) {
      const held = this.columns.get(column);
      if (held === undefined || compare(stamp, held.stamp) > 0) this.columns.set(column, { stamp, value });
    }
    return this;
  }

  /** Whether the row lives. */
  get live() {
    return this.written !== null && (this.deleted === null || compare(this.written, this.deleted) > 0);
  }

  /** The visible columns in order of their names, null where the row does not live. */
  state() {
    if (!this.live) return null;
    return Object.fromEntries(this.visible().map(([name, { value }]) => [name, value]));
  }

  /** The row as a snapshot line holds it: each stamp once, greatest first. */
  toPlain() {
    const shown = this.live ? this.visible() : [];
    const every = [...shown.map(([, { stamp }]) => stamp), this.live ? this.written : null, this.deleted];
    const order = distinct(every.filter((stamp) => stamp !== null));
    const at = (stamp) => order.findIndex((each) => compare(each, stamp) === 0);
    const plain = { stamps: order.map(([hlc, client, id]) => [String(hlc), client, id]) };
    if (this.live) {
      plain.columns = Object.fromEntries(shown.map(([name, { value }]) => [name, value]));
      plain.by = Object.fromEntries(shown.map(([name, { stamp }]) => [name, at(stamp)]));
      plain.live = at(this.written);
    }
    if (this.deleted !== null) plain.deleted = at(this.deleted);
    return plain;
  }

  /** The fold of a snapshot line. */
  static fromPlain(plain) {
    const fold = new RowFold();
    const stamp = (place, isDelete) => {
      const [hlc, client, id] = plain.stamps[place];
      return [BigInt(hlc), client, id, isDelete];
    };
    for (const [name, value] of Object.entries(plain.columns ?? {})) {
      fold.columns.set(name, { stamp: stamp(plain.by[name], false), value });
    }
    if (plain.live !== undefined) fold.written = stamp(plain.live, false);
    if (plain.deleted !== undefined) fold.deleted = stamp(plain.deleted, true);
    return fold;
  }

  visible() {
    return [...this.columns]
      .filter(([, { stamp }]) => this.deleted === null || compare(stamp, this.deleted) > 0)
      .sort(([one], [other]) => (one < other ? -1 : 1));
  }
}

/** The rows of some deltas, whatever order they come in: a map of `table\u0000rowId` to columns, or null. */
export function merge(deltas) {
  const folds = new Map();
  for (const delta of deltas) {
    const key = `${delta.table}\u0000${delta.rowId}`;
    if (!folds.has(key)) folds.set(key, new RowFold());
    folds.get(key).add(delta);
  }
  return new Map([...folds].map(([key, fold]) => [key, fold.state()]));
}

function compare(one, other) {
  for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return one[i] < other[i] ? -1 : 1;
  return 0;
}

function later(one, other) {
  return one === null || compare(other, one) > 0 ? other : one;
}

function distinct(stamps) {
  const sorted = [...stamps].sort((one, other) => compare(other, one));
  return sorted.filter((stamp, i) => i === 0 || compare(stamp, sorted[i - 1]) !== 0);
}
