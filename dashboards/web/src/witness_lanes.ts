// Draws the comb: periodic gaps of the GPU, the host's work in the gaps, and the idle time of each step.
import type { Finding } from './api';
import { clean, num, whole } from './format';
import { hatches, line, picture, scale, ticks, words } from './plots';
import { h, s } from './dom';
import { fieldsTable, fitted, isFields, isNumber, numbersOf, textOf, type Drawn, type Fields } from './witness_parts';

interface Gap { from: number; ms: number; host: boolean }
interface Window { from: number; to: number }

// Returns the name of the waiting component: a GPU, or the loop of a trainer without a GPU.
const laneOf = (lanes: Fields): string => textOf(lanes.lane) || 'GPU';

const gapsOf = (lanes: Fields): Gap[] => {
  const [from, ms, host] = ['gap_from_ms', 'gap_ms', 'gap_by_host'].map((key) => numbersOf(lanes[key]));
  return from.map((one, i) => ({ from: one, ms: ms[i], host: host[i] === 1 }));
};

// Returns a window of some periods around the longest gap, so that single gaps are visible.
function windowOf(lanes: Fields, period: number, gaps: Gap[]): Window {
  const span = isNumber(lanes.span_ms) ? lanes.span_ms : Math.max(...gaps.map((gap) => gap.from + gap.ms));
  const middle = (isNumber(lanes.longest_from_ms) ? lanes.longest_from_ms : gaps[0].from) + (isNumber(lanes.longest_ms) ? lanes.longest_ms : 0) / 2;
  const reach = Math.max(3 * (period || span / 6), gaps[0].ms);
  const from = Math.max(0, Math.min(middle - reach, span - 2 * reach));
  return { from, to: Math.min(span, from + 2 * reach) };
}

const duration = (ms: number): string => (ms >= 1000 ? num(Number((ms / 1000).toPrecision(3))) + '\u00a0s' : num(Number(ms.toPrecision(3))) + '\u00a0ms');

function draw(width: number, lanes: Fields, period: number, cause: string): SVGElement {
  const narrow = width < 560;
  const left = narrow ? 44 : 74;
  const right = width - 12;
  const all = gapsOf(lanes);
  const w = windowOf(lanes, period, all);
  const X = scale(w.from, w.to, left, right);
  const inside = (x: number): number => Math.min(right, Math.max(left, X(x)));
  const { defs, none } = hatches();
  const longest = isNumber(lanes.longest_from_ms) ? lanes.longest_from_ms : NaN;
  const longestOne = all.reduce((best, gap) => (Math.abs(gap.from - longest) < Math.abs(best.from - longest) ? gap : best), all[0]);
  const seen = all.filter((gap) => gap.from + gap.ms >= w.from && gap.from <= w.to);
  const parts: (SVGElement | SVGElement[])[] = [defs, words(left - 8, 46, clean(laneOf(lanes), 9), 't3', 'end'), words(left - 8, 86, 'host', 't3', 'end'),
    s('rect', { x: left, y: 32, width: right - left, height: 22, fill: 'var(--s1)' }), line(left, 82, right, 82, 'gr')];
  for (const gap of seen) {
    const [x, wide] = [inside(gap.from), Math.max(2, inside(gap.from + gap.ms) - inside(gap.from))];
    const worst = gap === longestOne;
    parts.push(s('rect', { x, y: 31, width: wide, height: 24, fill: none, stroke: worst ? 'var(--error)' : 'var(--line-strong)', 'stroke-width': worst ? 2 : 1 }));
    if (gap.host) parts.push(s('rect', { x, y: 70, width: wide, height: 24, rx: 2, fill: 'var(--s2)' }));
    if (worst) {
      const at = x + wide / 2;
      parts.push(line(at, 22, at, 31, 'pl'), line(at, 55, at, 70, 'pl'), words(Math.min(right - 60, Math.max(left + 60, at)), 16, `idle for ${duration(gap.ms)}`, 'b e', 'middle'));
    }
  }
  const host = textOf(lanes.host);
  if (seen.some((gap) => gap.host)) parts.push(words(left, 112, clean(`under it: ${host || cause.replaceAll('-', ' ')}`, Math.floor((right - left) / 6.6)), 'b c2'));
  for (const t of ticks(w.from, w.to, narrow ? 3 : 6)) parts.push(line(X(t), 122, X(t), 127), words(X(t), 141, duration(t), 't3', X(t) > right - 30 ? 'end' : X(t) < left + 20 ? 'start' : 'middle'));
  parts.push(line(left, 122, right, 122));
  // Draws the idle time of each step.
  const [steps, idle] = [numbersOf(lanes.step), numbersOf(lanes.step_idle)];
  let height = 152;
  if (steps.length > 1) {
    const [top, bottom] = [168, 216];
    const wide = (right - left) / steps.length;
    const most = Math.max(0.01, ...idle.filter(Number.isFinite));
    idle.forEach((share, i) => {
      if (Number.isFinite(share)) parts.push(s('rect', { x: (left + i * wide).toFixed(1), y: (bottom - (share / most) * (bottom - top)).toFixed(1), width: Math.max(1, wide - 1).toFixed(1), height: ((share / most) * (bottom - top)).toFixed(1), fill: 'var(--s1)', 'fill-opacity': 0.7 }));
    });
    parts.push(line(left, bottom, right, bottom), words(left - 8, top + 8, num(Math.round(100 * most)) + '\u00a0%', 't3', 'end'), words(left, bottom + 16, `step ${whole(steps[0])}`, 't3'), words(right, bottom + 16, whole(steps[steps.length - 1]), 't3', 'end'),
      words((left + right) / 2, bottom + 16, narrow ? 'idle of each step' : `share of each step in which the ${clean(laneOf(lanes), 30)} is idle`, 't3', 'middle'));
    height = 240;
  }
  return picture(width, height, `The ${clean(laneOf(lanes), 30)}'s lane with ${seen.length} of ${all.length} recurring gaps, and the host under them`, ...parts);
}

export function lanesWitness(finding: Finding): Drawn | null {
  const { lanes } = finding.witness;
  if (!isFields(lanes) || gapsOf(lanes).length === 0) return null;
  const period = isNumber(finding.details.period_ms) ? finding.details.period_ms : 0;
  const cause = textOf(finding.details.cause);
  const gaps = isNumber(finding.details.gaps) ? finding.details.gaps : gapsOf(lanes).length;
  return {
    title: `Witness: the gaps of the ${clean(laneOf(lanes), 30)}, and the host under them`,
    element: h('figure', { class: 'bd' }, fitted((width) => draw(width, lanes, period, cause)),
      h('figcaption', {}, h('b', {}, `${whole(gaps)} gaps`), period ? ` recur every ${duration(period)}. ` : ' come again. ',
        cause === 'unknown' ? 'The trace shows no host activity in them.' : `Filled below: gaps in which the host spends at least half of the time in ${cause.replaceAll('-', ' ')}.`), fieldsTable(finding.witness, 'Witness')),
  };
}
