// Draws all tokens that requested a place at one expert: their scores by row, the admitted ones, and the pair that
// proves the leak.
import type { Value } from './api';
import { num, whole } from './format';
import { line, picture, scale, words } from './plots';
import { s } from './dom';
import { isFields, isNumber, numbersOf } from './witness_parts';

export interface Token { row: number; sequence: number; position: number; score: number }

interface Candidate { row: number; score: number; kept: boolean; own: boolean }

function candidatesOf(queue: Value | undefined, of: Token): Candidate[] {
  if (!isFields(queue)) return [];
  const [row, sequence, score, kept] = ['row', 'sequence', 'score', 'kept'].map((key) => numbersOf(queue[key]));
  return row.map((one, i) => ({ row: one, score: score[i], kept: kept[i] === 1, own: sequence[i] === of.sequence })).filter((one) => Number.isFinite(one.score) && Number.isFinite(one.row));
}

// If all kept scores are above all others, returns the middle between the two.
export function cutOf(all: { score: number; kept: boolean }[]): number | null {
  const low = Math.min(...all.filter((one) => one.kept).map((one) => one.score));
  const high = Math.max(...all.filter((one) => !one.kept).map((one) => one.score));
  return Number.isFinite(low) && Number.isFinite(high) && low >= high ? (low + high) / 2 : null;
}

export function drawQueue(width: number, queue: Value | undefined, refused: Token, admitted: Token): SVGElement | null {
  const whole_ = candidatesOf(queue, refused);
  if (whole_.length < 3 || !isFields(queue)) return null;
  const narrow = width < 560;
  const left = narrow ? 48 : 74;
  const right = width - 12;
  const [top, bottom] = [44, 236];
  const [a, b] = [refused.row, admitted.row];
  // On a small screen, shows only the rows around the pair.
  const reach = Math.max(6, Math.abs(b - a) * 1.2);
  const all = narrow ? whole_.filter((one) => one.row >= Math.min(a, b) - reach && one.row <= Math.max(a, b) + reach) : whole_;
  const rows = [...all.map((one) => one.row), a, b];
  const scores = [...all.map((one) => one.score), refused.score, admitted.score];
  const [first, last] = [Math.min(...rows), Math.max(...rows)];
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  const X = scale(first, last, left + 10, right - 10);
  const Y = scale(low - room, high + room, bottom, top);
  const cut = cutOf(whole_);
  const parts: (SVGElement | SVGElement[])[] = [line(left, bottom, right, bottom)];
  if (cut !== null) {
    parts.push(s('rect', { x: left, y: Y(cut), width: right - left, height: Math.max(0, bottom - Y(cut)), fill: 'var(--error)', opacity: 0.05 }), line(left, Y(cut), right, Y(cut), 'axis', { 'stroke-dasharray': '5 4' }));
  }
  // Kept tokens are filled circles, refused ones open circles. Tokens of the pair's own sequence are dark.
  for (const one of all) {
    if (one.row === a || one.row === b) continue;
    const ink = one.own ? 'var(--s1)' : 'var(--line-strong)';
    parts.push(s('circle', { cx: X(one.row).toFixed(1), cy: Y(one.score).toFixed(1), r: one.own ? 4 : 3, fill: one.kept ? ink : 'var(--surface)', stroke: ink, 'stroke-width': 1.4 }));
  }
  const [xa, ya, xb, yb] = [X(a), Y(refused.score), X(b), Y(admitted.score)];
  parts.push(line(xa, 36, xa, bottom, 'pl'), line(xb, 36, xb, bottom, 'pl'),
    s('path', { d: `M${xb} ${yb}Q${(xa + xb) / 2} ${Math.min(ya, yb) - 30} ${xa} ${ya - 11}`, fill: 'none', stroke: 'var(--error)', 'stroke-width': 2 }),
    s('path', { d: `M${xa - 5} ${ya - 19}l5 8 5-8`, fill: 'none', stroke: 'var(--error)', 'stroke-width': 2 }),
    s('circle', { cx: xa, cy: ya, r: 8, fill: 'var(--surface)', stroke: 'var(--error)', 'stroke-width': 2 }), s('path', { d: `M${xa - 3.5} ${ya - 3.5}l7 7m0-7l-7 7`, stroke: 'var(--error)', 'stroke-width': 2.2 }),
    s('circle', { cx: xb, cy: yb, r: 8, fill: 'var(--surface)', stroke: 'var(--error)', 'stroke-width': 2 }), s('circle', { cx: xb, cy: yb, r: 4.5, fill: 'var(--s1)' }));
  if (cut !== null) parts.push(words(right, bottom - 7, narrow ? 'below: refused' : `below ${num(Number(cut.toPrecision(4)))}: refused, independent of the order`, 't1 halo', 'end'));
  // Each label has one line, and the label of the right token is lower, so that labels do not overlap.
  const label = (x: number, y: number, head: string, below: string): void => {
    const room = 7 * (head.length + below.length) + 12;
    const to = x + room < right ? 1 : -1;
    parts.push(line(x, y - 10, x, 36, 'pl'), s('text', { x: x + 6 * to, y, class: 'halo', 'text-anchor': to < 0 ? 'end' : 'start' }, s('tspan', { class: 'b e' }, head + ' '), s('tspan', { class: 't1' }, below)));
  };
  const labelOf = (token: Token, what: string): [string, string] => [`Token ${whole(token.row)}`, narrow ? what : `${what} with ${num(Number(token.score.toPrecision(5)))}`];
  label(xa, xa <= xb ? 12 : 29, ...labelOf(refused, 'refused'));
  label(xb, xa <= xb ? 29 : 12, ...labelOf(admitted, 'admitted'));
  for (const value of [low, high]) parts.push(words(left - 8, Y(value) + 4, num(Number(value.toPrecision(3))), 't3', 'end'));
  // Draws the row numbers of the pair below, with a distance between them.
  const nearer = Math.min(right - 64, Math.max(left + 20, Math.min(xa, xb)));
  const farther = Math.min(right - 20, Math.max(nearer + 44, Math.max(xa, xb)));
  for (const [x, value] of [[xa <= xb ? nearer : farther, a], [xa <= xb ? farther : nearer, b]]) {
    parts.push(s('rect', { x: x - 20, y: bottom + 4, width: 40, height: 18, rx: 3, fill: 'var(--error)' }), s('text', { x, y: bottom + 17, 'text-anchor': 'middle', class: 'onerr b' }, whole(value)));
  }
  // Draws the legend of the dots.
  const total = queue.candidates;
  const shown = isNumber(total) && total > all.length ? `, ${whole(all.length)} of ${whole(total)} shown` : '';
  const key = (x: number, filled: boolean, ink: string, text: string): number => {
    parts.push(s('circle', { cx: x + 4, cy: bottom + 39, r: 3.6, fill: filled ? ink : 'var(--surface)', stroke: ink, 'stroke-width': 1.4 }), words(x + 13, bottom + 43, text, 't3'));
    return x + 24 + text.length * 6.3;
  };
  let x = key(left, true, 'var(--s1)', narrow ? 'got a place' : 'got a place, same sequence');
  x = key(x, false, 'var(--s1)', 'refused');
  if (!narrow && all.some((one) => !one.own)) x = key(x, true, 'var(--line-strong)', 'of other sequences');
  parts.push(words(right, bottom + 43, narrow ? 'row →' : `rows as recorded →${shown}`, 't3', 'end'), words(left - 8, 29, narrow ? '' : 'score', 't3', 'end'));
  return picture(width, bottom + 50, `${all.length} tokens that chose the expert; token ${a} with score ${refused.score} was refused, token ${b} with score ${admitted.score} was admitted`, ...parts);
}
