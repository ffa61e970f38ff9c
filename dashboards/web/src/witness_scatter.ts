// Plots the difference of the two sides' log-probabilities, token by token, and the fitted line of
// the cause.
import type { Finding } from './api';
import { clean, num, whole } from './format';
import { line, picture, scale, ticks, words } from './plots';
import { h, s } from './dom';
import { fieldsTable, fitted, isFields, isNumber, numbersOf, textOf, type Drawn, type Fields } from './witness_parts';

const PLAIN: Record<string, string> = { 'log pi + H': 'log π + H of the trainer', 'log mu': 'log μ of the rollout', 'log pi - log mu': 'log π − log μ' };

function draw(width: number, scatter: Fields): SVGElement {
  const narrow = width < 560;
  const left = narrow ? 52 : 74;
  const right = width - 12;
  const [top, bottom] = [26, 236];
  const [xs, ys] = [numbersOf(scatter.x), numbersOf(scatter.y)];
  const points = xs.map((x, i) => [x, ys[i]]).filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y));
  const [x1, x2] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
  const [y1, y2] = [Math.min(0, ...points.map((p) => p[1])), Math.max(0, ...points.map((p) => p[1]))];
  const pad = (y2 - y1 || 1) * 0.06;
  const X = scale(x1, x2, left + 8, right - 8);
  const Y = scale(y1 - pad, y2 + pad, bottom, top);
  const parts: (SVGElement | SVGElement[])[] = [];
  for (const t of ticks(y1, y2, 4)) parts.push(line(left, Y(t), right, Y(t), 'gr'), words(left - 8, Y(t) + 4, num(Number(t.toPrecision(3))), 't3', 'end'));
  for (const t of ticks(x1, x2, narrow ? 3 : 6)) parts.push(line(X(t), bottom, X(t), bottom + 5), words(X(t), bottom + 19, num(Number(t.toPrecision(3))), 't3', 'middle'));
  parts.push(line(left, bottom, right, bottom), line(left, Y(0), right, Y(0), 'axis', { 'stroke-dasharray': '5 4' }));
  for (const [x, y] of points) parts.push(s('circle', { cx: X(x).toFixed(1), cy: Y(y).toFixed(1), r: 2.4, fill: 'var(--s1)', 'fill-opacity': 0.55 }));
  const { slope, intercept } = scatter;
  if (isNumber(slope) && isNumber(intercept)) {
    const at = (x: number): number => Math.min(y2 + pad, Math.max(y1 - pad, intercept + slope * x));
    parts.push(s('line', { x1: X(x1), y1: Y(at(x1)), x2: X(x2), y2: Y(at(x2)), stroke: 'var(--error)', 'stroke-width': 2 }), words(right, 14, `fitted: ${slope > 0 ? '+' : ''}${num(Number(slope.toPrecision(3)))} a nat`, 'b e', 'end'));
  }
  parts.push(words(left, 14, `${PLAIN[textOf(scatter.y_name)] ?? clean(textOf(scatter.y_name), 40)}, ${clean(textOf(scatter.unit), 12)}`, 't3'),
    words(right, bottom + 38, `${PLAIN[textOf(scatter.x_name)] ?? clean(textOf(scatter.x_name), 40)} →`, 't3', 'end'), words(left + 4, Y(0) - 5, narrow ? '' : 'both sides agree', 't3'));
  return picture(width, bottom + 46, `${points.length} tokens: ${textOf(scatter.y_name)} over ${textOf(scatter.x_name)}`, ...parts);
}

export function scatterWitness(finding: Finding): Drawn | null {
  const { scatter } = finding.witness;
  if (!isFields(scatter) || numbersOf(scatter.x).length < 2) return null;
  const { slope, standard_error: error, r2, of } = scatter;
  const fit = isNumber(slope) && isNumber(error) && isNumber(r2)
    ? [' The line has slope ', h('b', {}, `${num(Number(slope.toPrecision(3)))} ± ${num(Number(error.toPrecision(1)))}`), ` and explains ${num(Math.round(100 * r2))}\u00a0%: `,
      finding.cause.id === 'temperature' && textOf(scatter.x_name) === 'log pi + H' ? `as a temperature of ${num(Number((1 - slope).toPrecision(3)))} does.` : 'the difference is not noise.']
    : [' No line explains it: the rest is noise, or has a different cause.'];
  return {
    title: 'Witness: difference between trainer and rollout, token by token',
    element: h('figure', { class: 'bd' }, fitted((width) => draw(width, scatter)),
      h('figcaption', {}, h('b', {}, 'Each dot is a token.'), ' If both sides agree, it is on the dashed line.', ...fit,
        isNumber(of) && of > numbersOf(scatter.x).length ? ` ${whole(numbersOf(scatter.x).length)} of ${whole(of)} tokens are drawn: an even selection, and all of the farthest ones.` : ''),
      Object.keys(finding.witness).length > 1 ? fieldsTable(finding.witness, 'Witness') : null),
  };
}
