// Numbers of exact columns (`integer`, `decimal(S)`), digit by digit: a double or the order of texts would change them.

const NUMBER = /^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$/;
const INTEGER = /^-?[1-9][0-9]{15,18}$/;
const DECIMAL = /^(?!-0$)-?(?:0|[1-9][0-9]{0,37})(?:\.[0-9]{0,37}[1-9])?$/;
const MAX_DIGITS = 38;
const MAX_EXPONENT = 10n ** 18n - 1n;

/** A number as its sign, its digits without zeros at either end, and how many of them stand before the point. */
export class Exact {
  constructor(sign, digits, point) {
    Object.assign(this, { sign, digits, point });
  }

  /** The number that a value is, or that a text spells as JSON does; null for everything else. */
  static of(value) {
    if (!["number", "bigint", "string"].includes(typeof value)) return null;
    const [, minus, whole, fraction = "", exponent = "0"] = NUMBER.exec(String(value)) ?? [];
    if (whole === undefined || abs(BigInt(exponent)) > MAX_EXPONENT) return null;
    const all = whole + fraction;
    const digits = all.replace(/^0+/, "");
    if (digits === "") return new Exact(0, "", 0n);
    const point = BigInt(exponent) + BigInt(whole.length - (all.length - digits.length));
    return new Exact(minus ? -1 : 1, digits.replace(/0+$/, ""), point);
  }

  /** -1, 0 or 1. */
  compare(other) {
    if (this.sign !== other.sign) return this.sign < other.sign ? -1 : 1;
    const [one, two] = this.point === other.point ? [this.digits, other.digits] : [this.point, other.point];
    return one === two ? 0 : one < two ? -this.sign : this.sign;
  }

  /** The wire form of a decimal; null where no column holds so many digits. */
  text() {
    if (this.sign === 0) return "0";
    if (abs(this.point) > MAX_DIGITS || this.digits.length > MAX_DIGITS) return null;
    const point = Number(this.point);
    const whole = point > 0 ? this.digits.slice(0, point).padEnd(point, "0") : "0";
    const fraction = point > 0 ? this.digits.slice(point) : "0".repeat(-point) + this.digits;
    return `${this.sign < 0 ? "-" : ""}${whole}${fraction === "" ? "" : `.${fraction}`}`;
  }
}

/** A row's value as filters compare it: its number where it is the wire form of the column's exact type. */
export function comparable(value, type) {
  return type !== undefined && isWire(value, type) ? Exact.of(value) : value;
}

function isWire(value, type) {
  if (type === "integer") {
    if (typeof value === "number") return Number.isSafeInteger(value);
    if (typeof value !== "string" || !INTEGER.test(value)) return false;
    return !Number.isSafeInteger(Number(value)) && BigInt.asIntN(64, BigInt(value)) === BigInt(value);
  }
  if (typeof value !== "string" || !DECIMAL.test(value)) return false;
  const scale = Number(/\((\d+)\)/.exec(type)?.[1] ?? 18);
  const [whole, fraction = ""] = value.replace("-", "").split(".");
  return fraction.length <= scale && (whole === "0" || whole.length <= MAX_DIGITS - scale);
}

function abs(number) {
  return number < 0n ? -number : number;
}
