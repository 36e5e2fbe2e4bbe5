// SHA-256 in plain JavaScript: the browser's own is asynchronous, and absent from pages without TLS.

const PRIMES = firstPrimes(64);
const INITIAL = PRIMES.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUND = PRIMES.map((prime) => fraction(Math.cbrt(prime)));

/** The lower-case hex digest of a text's UTF-8 bytes. */
export function sha256Hex(text) {
  const words = padded(new TextEncoder().encode(text));
  const state = Uint32Array.from(INITIAL);
  const schedule = new Uint32Array(64);
  for (let start = 0; start < words.length; start += 16) compress(state, words.subarray(start, start + 16), schedule);
  return Array.from(state, (word) => word.toString(16).padStart(8, "0")).join("");
}

function compress(state, block, schedule) {
  schedule.set(block);
  for (let i = 16; i < 64; i++) {
    const s0 = rotated(schedule[i - 15], 7) ^ rotated(schedule[i - 15], 18) ^ (schedule[i - 15] >>> 3);
    const s1 = rotated(schedule[i - 2], 17) ^ rotated(schedule[i - 2], 19) ^ (schedule[i - 2] >>> 10);
    schedule[i] = schedule[i - 16] + s0 + schedule[i - 7] + s1;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const big1 = rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25);
    const first = (h + big1 + ((e & f) ^ (~e & g)) + ROUND[i] + schedule[i]) | 0;
    const big0 = rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22);
    const second = (big0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => (state[i] += word));
}

function padded(bytes) {
  const length = ((bytes.length + 8) >> 6) * 16 + 16;
  const words = new Uint32Array(length);
  bytes.forEach((byte, i) => (words[i >> 2] |= byte << (24 - (i % 4) * 8)));
  words[bytes.length >> 2] |= 0x80 << (24 - (bytes.length % 4) * 8);
  words[length - 2] = Math.floor(bytes.length / 0x20000000);
  words[length - 1] = bytes.length << 3;
  return words;
}

function firstPrimes(count) {
  const found = [];
  for (let n = 2; found.length < count; n++) if (found.every((prime) => n % prime)) found.push(n);
  return found;
}

function fraction(number) {
  return Math.floor((number - Math.floor(number)) * 0x100000000);
}

function rotated(word, bits) {
  return (word >>> bits) | (word << (32 - bits));
}
