// Draws the whole run with its window, and the lanes of the step axis: findings, evidence, attempts.
import type { IncidentRow, Points, RunPage } from './api';
import { markAt, s } from './dom';
import { clean, sentence, whole } from './format';
import { GUTTER, RIGHT, hatched, hatches, line, picture, plumb, rangeOf, scale, words } from './plots';
import { isCalm } from './view';

export interface Range { from: number; to: number }
// `over`: resolved incidents.
export interface Axis { all: Range; shown: Range; open: IncidentRow[]; over: IncidentRow[] }

// Joins marks that are too close on a lane. A cluster shows the worst shape and the number of its marks.
function clusters(rows: IncidentRow[], X: (step: number) => number, apart: number): { row: IncidentRow; x: number; n: number }[] {
  const rankOf = (row: IncidentRow): number => (row.state === 'resolved' ? 3 : { error: 0, warning: 1 }[row.level] ?? 2);
  const out: { row: IncidentRow; x: number; n: number }[] = [];
  for (const row of [...rows].sort((a, b) => a.step_first - b.step_first)) {
    const x = X(row.step_first);
    const last = out[out.length - 1];
    if (last && x - last.x < apart) {
      last.n++;
      if (rankOf(row) < rankOf(last.row)) last.row = row;
    } else {
      out.push({ row, x, n: 1 });
    }
  }
  return out;
}

export function drawMini(mini: HTMLElement, axis: Axis, loss: Points | null): void {
  const width = Math.floor(mini.clientWidth);
  if (!width) return;
  const { all, shown: w, open } = axis;
  const X = scale(all.from, all.to, GUTTER, width - RIGHT);
  const extent = loss && rangeOf(loss);
  const parts: (SVGElement | SVGElement[] | null)[] = [words(GUTTER - 10, 24, 'whole run', 't3', 'end'), s('rect', { x: GUTTER, y: 2, width: width - RIGHT - GUTTER, height: 36, rx: 3, fill: 'var(--sunken)' })];
  if (loss && extent) {
    const Y = scale(extent.low, extent.high, 34, 6);
    let d = '';
    let pen = false;
    loss.step.forEach((step, i) => {
      const high = loss.max?.[i] ?? loss.mean?.[i];
      if (typeof high === 'number') d += (pen ? 'L' : 'M') + X(step).toFixed(1) + ' ' + Y(high).toFixed(1);
      pen = typeof high === 'number';
    });
    parts.push(s('path', { d, fill: 'none', stroke: 'var(--ink-3)', 'stroke-width': 1.2 }));
    parts.push(hatched(loss, X, width - RIGHT, 28, 8));
  }
  for (const one of clusters(open, X, 6)) parts.push(line(one.x, 4, one.x, 36, 'axis', { stroke: `var(--${one.row.level === 'warning' ? 'warn-fill' : one.row.level})`, 'stroke-width': 1.5 }));
  const x = X(w.from);
  const wide = Math.max(6, X(w.to) - x);
  parts.push(s('rect', { x, y: 2, width: wide, height: 36, fill: 'var(--s1)', opacity: 0.14 }), s('rect', { x, y: 2, width: wide, height: 36, fill: 'none', stroke: 'var(--s1)', 'stroke-width': 1.5 }),
    words(GUTTER, 54, whole(all.from), 't3'), words(width - RIGHT, 54, whole(all.to), 't3', 'end'), width > 600 ? words((GUTTER + width - RIGHT) / 2, 54, w.from > all.from || w.to < all.to ? 'the part in the frame is shown below' : 'all steps are shown below', 't3', 'middle') : null);
  mini.replaceChildren(picture(width, 58, `The whole run, steps ${all.from} to ${all.to}; shown are ${w.from} to ${w.to}`, ...parts));
}

export function drawLanes(lanes: HTMLElement, axis: Axis, run: RunPage): void {
  const width = Math.floor(lanes.clientWidth);
  if (!width) return;
  const { shown: w, open } = axis;
  const X = scale(w.from, w.to, GUTTER, width - RIGHT);
  const inside = (x: number): number => Math.min(width - RIGHT, Math.max(GUTTER, x));
  const { defs, none } = hatches();
  const parts: (SVGElement | SVGElement[] | null)[] = [defs, words(GUTTER - 10, 26, 'findings', 't3', 'end'), line(GUTTER, 22, width - RIGHT, 22, 'gr')];
  const visible = open.filter((one) => one.step_last >= w.from && one.step_first <= w.to);
  for (const row of [...visible].reverse()) {
    const colour = row.level === 'warning' ? 'warn-fill' : row.level;
    parts.push(s('line', { x1: inside(X(row.step_first)), y1: 22, x2: inside(X(row.step_last)), y2: 22, stroke: `var(--${colour})`, 'stroke-width': row.level === 'error' ? 4 : 2 }));
  }
  const over = axis.over.filter((one) => one.step_first >= w.from && one.step_first <= w.to);
  const groups = clusters([...visible.filter((one) => one.step_first >= w.from), ...over], X, 22);
  let taken = GUTTER;  // where the last label ends
  groups.forEach((one, i) => {
    parts.push(markAt(one.row.state === 'resolved' ? 'gone' : isCalm(one.row) ? 'ack' : one.row.level, one.x, 22, 18));
    const room = (groups[i + 1]?.x ?? width - RIGHT) - one.x - 16;
    const roomLeft = one.x - taken - 16;
    const label = one.n > 1 ? `${one.n} findings` : sentence(clean(one.row.title_short, 60));
    const fits = Math.floor(room / 6.6);
    // Near the right edge, the label is on the left.
    const left = label.length > fits && roomLeft > room;
    const most = left ? Math.floor(roomLeft / 6.6) : fits;
    if (most < 6) return;
    taken = one.x + (left ? 0 : 13 + 6.6 * Math.min(label.length, most));
    parts.push(words(one.x + (left ? -13 : 13), 13, label.length > most ? label.slice(0, most - 1) + '…' : label, one.row.state === 'resolved' ? 't3' : one.row.level === 'error' ? 'b e' : one.row.level === 'warning' ? 'w' : 't3', left ? 'end' : 'start'));
  });
  parts.push(words(GUTTER - 10, 54, 'evidence', 't3', 'end'), s('rect', { x: GUTTER, y: 44, width: width - RIGHT - GUTTER, height: 12, fill: 'var(--s1-soft)' }));
  for (const gap of run.gaps) {
    if (gap.step_last < w.from || gap.step_first > w.to) continue;
    const from = inside(X(gap.step_first));
    parts.push(s('rect', { x: from, y: 44, width: Math.max(4, inside(X(gap.step_last)) - from), height: 12, fill: none, stroke: 'var(--line-strong)' }));
  }
  for (const attempt of run.attempts.slice(1)) {
    if (attempt.step_first < w.from || attempt.step_first > w.to) continue;
    const x = X(attempt.step_first);
    parts.push(line(x, 40, x, 60, 'axis', { 'stroke-dasharray': '3 2' }), words(x + 5, 70, `attempt ${attempt.attempt}`, 't3'));
  }
  const worst = run.worst;
  if (worst && worst.step_first >= w.from && worst.step_first <= w.to) {
    // Draws a line from the finding down through all lanes below it.
    const x = X(worst.step_first);
    parts.push(plumb(x, 32, 62));
  }
  lanes.replaceChildren(picture(width, run.attempts.length > 1 ? 76 : 72, `${visible.length} findings, ${over.length} resolved, and the evidence on the step axis`, ...parts));
}
