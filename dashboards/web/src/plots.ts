// Plots series, which the server has reduced to a minimum, a maximum and a mean per pixel.
import type { Points } from './api';
import { h, markAt, s } from './dom';
import { num } from './format';

export const GUTTER = 74;
export const RIGHT = 12;

export const css = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export const line = (x1: number, y1: number, x2: number, y2: number, cls = 'axis', more: Record<string, unknown> = {}): SVGElement =>
  s('line', { x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1), class: cls, ...more });
export const words = (x: number, y: number, text: string, cls = '', anchor = 'start'): SVGElement =>
  s('text', { x: x.toFixed(1), y: y.toFixed(1), class: cls, 'text-anchor': anchor }, text);
// Draws the onset: a thin line with a plumb bob at its end.
export const plumb = (x: number, y1: number, y2: number): SVGElement[] =>
  [line(x, y1, x, y2, 'pl'), s('path', { class: 'bob', d: `M${x - 4} ${y2}h8l-4 10z` })];
export const scale = (a: number, b: number, c: number, d: number) => (x: number): number => (b === a ? (c + d) / 2 : c + ((x - a) / (b - a)) * (d - c));

export function picture(width: number, height: number, label: string, ...parts: (SVGElement | SVGElement[] | null)[]): SVGElement {
  return s('svg', { width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label }, ...(parts as Node[]));
}

let patterns = 0;
// Returns fill patterns: a diagonal hatch for non-finite values, dots for no evidence. Each picture has its own
// patterns, because ids are unique in the document.
export function hatches(): { defs: SVGElement; bad: string; none: string } {
  const id = 'p' + ++patterns;
  const defs = s('defs', {},
    s('pattern', { id: id + 'x', width: 7, height: 7, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
      s('rect', { width: 7, height: 7, fill: 'var(--error-bg)' }), s('path', { d: 'M0 0v7', stroke: 'var(--hatch)', 'stroke-opacity': 0.62, 'stroke-width': 2 })),
    s('pattern', { id: id + 'd', width: 5, height: 5, patternUnits: 'userSpaceOnUse' },
      s('rect', { width: 5, height: 5, fill: 'var(--surface)' }), s('circle', { cx: 2.5, cy: 2.5, r: 1, fill: 'var(--none)' })));
  return { defs, bad: `url(#${id}x)`, none: `url(#${id}d)` };
}

export function ticks(low: number, high: number, n: number): number[] {
  if (!(high > low)) return [low];
  const rough = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= rough) ?? rough;
  const out: number[] = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9 && out.length < 50; v += step) out.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return out;
}

const finite = (values: (number | null | undefined)[]): number[] => values.filter((v): v is number => typeof v === 'number');

export function rangeOf(points: Points): { low: number; high: number } | null {
  const all = finite([...(points.min ?? points.mean ?? []), ...(points.max ?? [])]);
  if (all.length === 0) return null;
  return { low: all.reduce((a, b) => Math.min(a, b)), high: all.reduce((a, b) => Math.max(a, b)) };
}

// Returns an axis range without the highest 2 % of the first tenth, because the start of a curve
// may hide the rest.
function calm(points: Points): { low: number; high: number } | null {
  const all = rangeOf(points);
  if (!all) return null;
  const n = points.step.length;
  const late = finite((points.max ?? points.mean ?? []).slice(Math.floor(n / 25)));
  if (late.length > 8) all.high = late.reduce((a, b) => Math.max(a, b));
  return all;
}

// Returns one path: a vertical stroke per column, so that a spike of one step is never lost.
function pathOf(points: Points, X: (x: number) => number, Y: (y: number) => number): string {
  let d = '';
  let pen = false;
  points.step.forEach((step, i) => {
    const low = points.min?.[i] ?? points.mean?.[i];
    const high = points.max?.[i] ?? points.mean?.[i];
    if (typeof low !== 'number' || typeof high !== 'number') {
      pen = false;
      return;
    }
    const x = X(step).toFixed(1);
    d += (pen ? 'L' : 'M') + x + ' ' + Y(high).toFixed(1);
    if (high !== low) d += 'L' + x + ' ' + Y(low).toFixed(1);
    pen = true;
  });
  return d;
}

// Returns the first and last step of each stretch of adjacent columns with non-finite values.
export function badStretches(points: Points): { from: number; to: number }[] {
  const out: { from: number; to: number }[] = [];
  const wide = points.bucket_steps ?? 1;
  let before = -2;
  for (const column of points.bad ?? []) {
    const from = points.step[column];
    if (column === before + 1 && out.length && from <= out[out.length - 1].to + wide) out[out.length - 1].to = from + wide - 1;
    else out.push({ from, to: from + wide - 1 });
    before = column;
  }
  return out;
}

// Draws a strip that is hatched at steps with non-finite values, at least three pixels wide.
export function hatched(points: Points, X: (step: number) => number, right: number, y: number, height: number): SVGElement[] {
  const stretches = badStretches(points);
  if (stretches.length === 0) return [];
  const { defs, bad } = hatches();
  return [defs, ...stretches.map(({ from, to }) => {
    const wide = Math.max(3, Math.min(right, X(to + 1)) - X(from));
    return s('rect', { class: 'notfinite', x: Math.min(X(from), right - 3).toFixed(1), y, width: wide.toFixed(1), height, fill: bad });
  })];
}

export interface Onset { level: string; step: number }

export function spark(width: number, points: Points | null, onset: Onset | null, label = 'loss'): SVGElement {
  const height = 34;
  const range = points && calm(points);
  if (!points || !range || points.step.length === 0) {
    return picture(width, height, `no ${label} reported`, line(0, 17, width, 17, 'axis', { 'stroke-dasharray': '2 4' }));
  }
  const first = points.step[0];
  const last = points.step[points.step.length - 1] + (points.bucket_steps ?? 1) - 1;
  const X = scale(first, Math.max(last, onset?.step ?? last), 2, width - 6);
  const Y = scale(range.low, range.high, height - 5, 5);
  const parts: SVGElement[] = [s('path', { d: pathOf(points, X, (y) => Math.max(3, Y(y))), fill: 'none', stroke: 'var(--ink-2)', 'stroke-width': 1.3 })];
  parts.push(...hatched(points, X, width - 6, height - 10, 7));
  if (onset && onset.step >= first) {
    const x = Math.min(width - 7, Math.max(7, X(onset.step)));
    const colour = onset.level === 'warning' ? 'warn' : onset.level === 'note' ? 'note' : 'error';
    parts.push(s('line', { x1: x, y1: 8, x2: x, y2: height - 3, stroke: `var(--${colour})`, 'stroke-width': 1.25 }), markAt(onset.level, x, 7, 12));
  }
  return picture(width, height, `${label}, the newest value ${num(lastOf(points))}` + (onset ? `, a finding at step ${onset.step}` : ''), ...parts);
}

export function lastOf(points: Points): number | null | undefined {
  const n = points.step.length;
  if (n === 0) return undefined;
  if (points.bad?.includes(n - 1)) return NaN;
  return points.mean?.[n - 1];
}

// ---- ranks by steps ----

export interface Cells {
  first_rank: number[];
  last_rank: number[];
  step: number[];
  bucket_steps: number;
  low: number | string;
  high: number | string;
  bytes: Uint8Array;
}

export function parseCells(body: Uint8Array): Cells {
  const end = body.indexOf(10);
  const head = JSON.parse(new TextDecoder().decode(body.subarray(0, end)));
  return { ...head, bytes: body.subarray(end + 1) };
}

export const BAD = 255;
export const NO_EVIDENCE = 254;

export function rgb(name: string): [number, number, number] {
  const text = css(name).replace('#', '');
  return [0, 2, 4].map((i) => parseInt(text.slice(i, i + 2), 16)) as [number, number, number];
}

// Returns the heat scale of the theme, from a share (0 to 1) to a colour.
export function heatScale(): (share: number) => [number, number, number] {
  const ramp = [0, 1, 2, 3, 4].map((i) => rgb('--h' + i));
  return (share) => {
    const at = share * 4;
    const low = ramp[Math.floor(at)];
    const high = ramp[Math.min(4, Math.floor(at) + 1)];
    return low.map((v, i) => Math.round(v + (high[i] - v) * (at - Math.floor(at)))) as [number, number, number];
  };
}

// Draws one pixel per cell, or several if there are few: the browser stretches the picture.
export function heatMap(cells: Cells, from: number, to: number): HTMLElement {
  const rows = cells.first_rank.length;
  const columns = cells.step.length;
  const height = Math.max(24, Math.min(512, rows * Math.max(1, Math.floor(224 / Math.max(rows, 1)))));
  const canvas = h('canvas', { class: 'heat', role: 'img', tabindex: '0', 'aria-label': `${rows} rows of ranks by ${columns} columns of steps; arrow keys read a cell` });
  const wide = Math.max(1, Math.round((to - from + 1) / cells.bucket_steps));
  const across = Math.max(1, Math.min(8, Math.floor(800 / wide)));
  const down = Math.max(1, Math.floor(height / Math.max(rows, 1)));
  canvas.width = wide * across;
  canvas.height = Math.max(1, rows * down);
  canvas.style.height = height + 'px';
  const context = canvas.getContext('2d')!;
  const image = context.createImageData(canvas.width, canvas.height);
  const scaled = heatScale();
  const [surface, none, hatch, hatchBg] = ['--surface', '--none', '--hatch', '--error-bg'].map(rgb);
  const stripe = hatch.map((v, i) => Math.round(0.62 * v + 0.38 * hatchBg[i])) as [number, number, number];
  const colour = (byte: number, x: number, y: number): [number, number, number] => {
    if (byte === BAD) return (x + y) % 7 < 2 ? stripe : hatchBg;
    if (byte === NO_EVIDENCE) return x % 4 === 1 && y % 4 === 1 ? none : surface;
    return scaled(byte / 253);
  };
  const columnOf = new Int32Array(wide).fill(-1);
  cells.step.forEach((step, i) => {
    const place = Math.floor((step - from) / cells.bucket_steps);
    if (place >= 0 && place < wide) columnOf[place] = i;
  });
  for (let y = 0; y < canvas.height; y++) {
    const row = Math.floor(y / down);
    for (let x = 0; x < canvas.width; x++) {
      const column = columnOf[Math.floor(x / across)];
      const byte = column < 0 ? NO_EVIDENCE : cells.bytes[row * columns + column];
      const [r, g, b] = colour(byte, x, y);
      const at = (y * canvas.width + x) * 4;
      image.data[at] = r;
      image.data[at + 1] = g;
      image.data[at + 2] = b;
      image.data[at + 3] = 255;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
