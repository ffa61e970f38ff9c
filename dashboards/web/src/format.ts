// Formats numbers, times and units for display. The space between a number and its unit does not
// break.

const NB = '\u00a0';
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

// The server's clock minus the browser's clock, in ms, because a laptop's clock may be wrong.
let skew = 0;
export function setServerTime(ns: string): void {
  skew = ms(ns) - Date.now();
}
export const now = (): number => Date.now() + skew;

// Converts Unix ns as decimal text to ms.
export const ms = (ns: string): number => Number(BigInt(ns) / 1000000n);

// Returns "12,345". The system's own formatter takes tens of milliseconds at its first call.
export function whole(n: number): string {
  const text = String(Math.round(n) + 0);  // avoids -0
  return Number.isFinite(n) && Math.abs(n) < 1e15 ? text.replace(/\B(?=(\d{3})+$)/g, ',') : text;
}

// Returns a number with six significant digits. From 1e9 on, returns three digits with a unit: "418 G" for
// 417847000000. Non-finite values are given as text.
export function num(value: number | string | null | undefined): string {
  if (value === null || value === undefined) return '–';
  if (typeof value === 'string') return value === 'nan' ? 'NaN' : value;
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'NaN' : value > 0 ? 'inf' : '−inf';
  const size = Math.abs(value);
  if (size >= 1e9 && size < 1e18) {
    const power = Math.min(5, Math.floor(Math.log10(size * (1 + 5e-4)) / 3));
    return (value / 10 ** (3 * power)).toPrecision(3).replace(/^-/, '−') + NB + ['', 'k', 'M', 'G', 'T', 'P'][power];
  }
  const text = Number.isInteger(value) && size < 1e15 ? whole(value)
    : size !== 0 && (size < 1e-4 || size >= 1e7) ? value.toExponential(3).replace('e+', 'e')
    : String(Number(value.toPrecision(size < 1 ? 4 : 6)));
  return text.replace(/^-/, '−');
}

export function quantity(value: number | string, unit: string): string {
  return num(value) + (unit ? NB + unit : '');
}

export function bytes(n: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return (i === 0 ? String(n) : n.toPrecision(3)) + NB + units[i];
}

export function count(n: number, one: string, many = one + 's'): string {
  return whole(n) + NB + (n === 1 ? one : many);
}

// Returns "3 s", "14 min", "1 h 52 min", "2 d 4 h".
export function span(millis: number): string {
  const s = Math.max(0, Math.round(millis / 1000));
  if (s < 60) return s + NB + 's';
  if (s < 3600) return Math.round(s / 60) + NB + 'min';
  if (s < 86400) {
    const m = Math.floor((s % 3600) / 60);
    return Math.floor(s / 3600) + NB + 'h' + (m ? ' ' + m + NB + 'min' : '');
  }
  const h = Math.floor((s % 86400) / 3600);
  return Math.floor(s / 86400) + NB + 'd' + (h ? ' ' + h + NB + 'h' : '');
}

export function seconds(s: number): string {
  return s <= 0 ? '' : s < 0.001 ? num(Number((s * 1e6).toPrecision(2))) + NB + 'µs per step'
    : s < 1 ? num(Number((s * 1000).toPrecision(3))) + NB + 'ms per step' : num(Number(s.toPrecision(3))) + NB + 's per step';
}

export const ago = (t: number): string => span(now() - t) + ' ago';

const two = (n: number): string => String(n).padStart(2, '0');
export const clock = (t: number): string => {
  const d = new Date(t);
  return two(d.getUTCHours()) + ':' + two(d.getUTCMinutes()) + ':' + two(d.getUTCSeconds());
};

// Returns "02:58:04 UTC", "yesterday 23:44:51 UTC", "22 Nov 18:31:07 UTC".
export function at(t: number): string {
  const d = new Date(t);
  const midnight = (x: number): number => Math.floor(x / 86400000);
  const days = midnight(now()) - midnight(t);
  const day = days === 0 ? '' : days === 1 ? 'yesterday ' : days === -1 ? 'tomorrow '
    : d.getUTCDate() + ' ' + MONTHS[d.getUTCMonth()] + ' ' + (Math.abs(days) > 300 ? d.getUTCFullYear() + ' ' : '');
  return day + clock(t) + NB + 'UTC';
}

// Returns "14:02:11 here" if the reader's clock is not UTC, otherwise "".
export function localTime(t: number): string {
  const d = new Date(t);
  return d.getTimezoneOffset() === 0 ? '' : `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}${NB}here`;
}

export function steps(first: number, last: number): string {
  return last > first ? 'steps' + NB + whole(first) + '–' + whole(last) : 'step' + NB + whole(first);
}

// Returns a text with a capital first letter, because the titles of rules begin with a lower-case letter.
export const sentence = (text: string): string => (/^[a-z]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

// Returns the code of a verdict's reason as words: 'few steps' for 'few-steps: 3 steps'.
export function reasonName(reason: string): string {
  const code = reason.split(':')[0];
  if (!/^[a-z0-9-]+$/.test(code) || code === reason) return reason;
  return code === 'poisoned' || code === 'no-number' ? 'NaN or infinite values' : code.replaceAll('-', ' ');
}

// Cleans a title: removes control characters and characters that change the direction of the text. Truncates long
// titles; a tooltip has the whole text.
export function clean(text: string, most = 400): string {
  const plain = text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '\ufffd');
  return plain.length > most ? plain.slice(0, most) + '…' : plain;
}
