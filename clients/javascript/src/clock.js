// Hybrid logical clock: 48 bits of wall milliseconds and 16 bits of counter in one BigInt.

const MAX_DRIFT_MS = 5000;
const COUNTER_BITS = 16n;
const MAX_COUNTER = (1n << COUNTER_BITS) - 1n;

/** A remote clock is too far ahead. */
export class ClockDriftError extends Error {
  constructor(aheadMs) {
    super(`Remote clock is ${aheadMs}ms ahead (max drift: ${MAX_DRIFT_MS}ms)`);
    this.code = "CLOCK_DRIFT";
  }
}

/** Every answer is greater than all before it; `last` is the timestamp to go on from. */
export class Clock {
  constructor(wall = Date.now, last = 0n) {
    this.wall = wall;
    this.last = BigInt(last);
  }

  /** The next timestamp. */
  now() {
    const physical = BigInt(Math.trunc(this.wall()));
    const previous = this.last >> COUNTER_BITS;
    this.last = physical > previous ? physical << COUNTER_BITS : this.last + 1n;
    return this.last;
  }

  /** Step past a remote timestamp; one too far ahead leaves the clock as it was. */
  recv(remote) {
    const seen = BigInt(remote);
    const physical = BigInt(Math.trunc(this.wall()));
    const ahead = (seen >> COUNTER_BITS) - physical;
    if (ahead > BigInt(MAX_DRIFT_MS)) throw new ClockDriftError(ahead);
    const least = physical << COUNTER_BITS;
    const newest = this.last > seen ? this.last : seen;
    // Adding one carries a full counter into the wall clock.
    this.last = (newest >> COUNTER_BITS) >= physical ? newest + 1n : least;
    return this.last;
  }

  /** Go on from a timestamp of the gateway, whatever this machine's clock says. */
  observe(hlc) {
    if (BigInt(hlc) > this.last) this.last = BigInt(hlc);
  }
}

/** Wall milliseconds and counter of a timestamp. */
export function splitHlc(hlc) {
  return [Number(BigInt(hlc) >> COUNTER_BITS), Number(BigInt(hlc) & MAX_COUNTER)];
}
