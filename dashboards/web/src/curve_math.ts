// Computes the numbers of a curve before it is drawn: smoothing, the range of the axis, an axis other than steps, and a
// file of the values.
import type { Points } from './api';

export interface Curve { label: string; points: Points }
export interface Extent { low: number; high: number }

type Values = (number | null)[];

// Returns the usual exponential moving average, without the bias at its beginning. A step without a value has no
// average.
export function smoothed(values: Values, weight: number): Values {
  let sum = 0;
  let share = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

// Returns the steps of all curves, and for each curve its value at these steps, or null.
export function aligned(curves: Curve[]): { steps: number[]; values: Values[] } {
  const steps = [...new Set(curves.flatMap((one) => one.points.step))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, i) => [step, i]));
  return { steps, values: curves.map(({ points }) => {
    const out: Values = new Array(steps.length).fill(null);
    points.step.forEach((step, i) => { out[place.get(step)!] = points.mean?.[i] ?? null; });
    return out;
  }) };
}

// Returns the 1 to 99 % range of the means after the first tenth of the steps, and the number of values outside.
// Returns null if no value is outside, or if there are too few values.
export function calmExtent(curves: Curve[]): (Extent & { outside: number }) | null {
  const all = curves.flatMap(({ points }) => (points.mean ?? []).filter((v) => typeof v === 'number')) as number[];
  const late = curves.flatMap(({ points }) => (points.mean ?? []).slice(Math.floor(points.step.length / 10)).filter((v) => typeof v === 'number')) as number[];
  if (late.length < 20) return null;
  late.sort((a, b) => a - b);
  const at = (share: number): number => late[Math.round(share * (late.length - 1))];
  const pad = (at(0.99) - at(0.01)) * 0.25;
  const [low, high] = [at(0.01) - pad, at(0.99) + pad];
  const outside = all.filter((v) => v < low || v > high).length;
  return outside && high > low ? { low, high, outside } : null;
}

// Returns a function from steps to the values of another series, such as tokens. Interpolates between two steps.
// Returns null if the values do not increase.
export function axisOf(points: Points, per: 'total' | 'step'): ((step: number) => number) | null {
  const wide = points.bucket_steps ?? 1;
  const xs: number[] = [];
  const ys: number[] = [];
  let sum = 0;
  points.step.forEach((step, i) => {
    const value = points.mean?.[i];
    if (typeof value !== 'number') return;
    sum += value * wide;
    xs.push(step);
    ys.push(per === 'total' ? value : sum);
  });
  if (xs.length < 2 || ys.some((y, i) => i > 0 && y <= ys[i - 1])) return null;
  return (step) => {
    let i = 1;
    while (i < xs.length - 1 && xs[i] < step) i++;
    return ys[i - 1] + ((step - xs[i - 1]) / (xs[i] - xs[i - 1])) * (ys[i] - ys[i - 1]);
  };
}

// Returns a cell of a file in a form that a spreadsheet does not interpret as a formula.
const cell = (text: string): string => '"' + (/^[=+\-@\t\r]/.test(text) ? "'" : '') + text.replaceAll('"', '""') + '"';

// Returns the values of the curves as CSV: a row per step and curve.
export function csvOf(curves: Curve[]): string {
  const number = (v: number | null | undefined): string => (typeof v === 'number' ? String(v) : '');
  const lines = ['curve,step,steps,mean,min,max,not_finite'];
  for (const { label, points } of curves) {
    const bad = new Set(points.bad ?? []);
    points.step.forEach((step, i) => lines.push([cell(label), step, points.bucket_steps ?? 1, number(points.mean?.[i]), number(points.min?.[i] ?? points.mean?.[i]), number(points.max?.[i] ?? points.mean?.[i]), bad.has(i) ? 1 : 0].join(',')));
  }
  return lines.join('\n') + '\n';
}
