// Draws a map of ranks and steps: the picture, its labels, the value at the pointer or at the cell that the arrow keys
// chose, the legend.
import { h, s } from './dom';
import { clean, num, steps, whole } from './format';
import { BAD, GUTTER, NO_EVIDENCE, RIGHT, hatches, heatMap, line, picture, plumb, scale, ticks, words, type Cells } from './plots';
import type { Range } from './run_axis';

export interface HeatBoxes { picture: HTMLElement; title: HTMLElement; readout: HTMLElement }
export interface HeatOf {
  series: string;
  culprit: number | undefined;  // the rank that a finding names
  onset: number | undefined;    // step of the onset
  picker: HTMLElement;
}

export function drawHeat(boxes: HeatBoxes, c: Cells, w: Range, of: HeatOf): void {
  const canvas = heatMap(c, w.from, w.to);
  const rows = c.first_rank.length;
  const label = (row: number): string => (c.last_rank[row] > c.first_rank[row] ? `${c.first_rank[row]}–${c.last_rank[row]}` : String(c.first_rank[row]));
  const every = Math.max(1, Math.ceil(rows / 8));
  const labels = h('div', { class: 'labels', 'aria-hidden': 'true' });
  const { culprit, onset, series } = of;
  const culpritRow = culprit === undefined || rows < 2 ? -1 : c.first_rank.findIndex((first, row) => first <= culprit && c.last_rank[row] >= culprit);
  for (let row = 0; row < rows; row++) {
    const bad = row === culpritRow;
    // The label of the culprit takes the place of those that would overlap it.
    if (!bad && (row % every !== 0 || (culpritRow >= 0 && Math.abs(row - culpritRow) < every * 0.8))) continue;
    const element = h('span', { class: bad ? 'e' : '' }, row === 0 ? 'rank ' + label(row) : label(row));
    element.style.top = ((row + 0.5) / rows) * 100 + '%';
    labels.append(element);
  }
  const steps_ = h('div', { class: 'plot' });
  const read = (x: number, y: number): void => {
    const row = Math.min(rows - 1, Math.max(0, Math.floor(y * rows)));
    const step = w.from + x * (w.to - w.from);
    let column = -1;
    c.step.forEach((one, i) => { if (one <= step) column = i; });
    if (column < 0) return;
    const byte = c.bytes[row * c.step.length + column];
    const low = Number(c.low);
    const value = byte === BAD ? 'not finite' : byte === NO_EVIDENCE ? 'no evidence' : 'about ' + num(Number((low + ((Number(c.high) - low) * byte) / 253).toPrecision(3)));
    boxes.readout.textContent = `${steps(c.step[column], c.step[column] + c.bucket_steps - 1)}, rank ${label(row)}: ${clean(series, 60)} ${value}`;
  };
  let at: [number, number] = [0.5, 0];
  canvas.addEventListener('mousemove', (event) => {
    const box = canvas.getBoundingClientRect();
    at = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    read(...at);
  });
  canvas.addEventListener('keydown', (event) => {
    const by = { ArrowLeft: [-1 / Math.max(2, c.step.length), 0], ArrowRight: [1 / Math.max(2, c.step.length), 0], ArrowUp: [0, -1 / rows], ArrowDown: [0, 1 / rows] }[event.key];
    if (!by) return;
    event.preventDefault();
    at = [Math.min(1, Math.max(0, at[0] + by[0])), Math.min(0.999, Math.max(0, at[1] + by[1]))];
    read(...at);
  });
  boxes.picture.replaceChildren(h('div', { class: 'heatwrap' }, labels, canvas, h('span', {})), steps_);
  const width = Math.floor(steps_.clientWidth);
  if (width) {
    const X = scale(w.from, w.to, GUTTER, width - RIGHT);
    const parts: (SVGElement | SVGElement[])[] = [words(GUTTER - 10, 20, 'step', 't3', 'end'), line(GUTTER, 2, width - RIGHT, 2)];
    for (const t of ticks(w.from, w.to, width > 600 ? 8 : 3)) {
      if (!Number.isInteger(t)) continue;
      parts.push(line(X(t), 2, X(t), 7), words(X(t), 20, whole(t), 't3', X(t) > width - 40 ? 'end' : X(t) < GUTTER + 20 ? 'start' : 'middle'));
    }
    if (onset !== undefined && onset >= w.from && onset <= w.to) {
      const x = Math.min(width - 36, Math.max(GUTTER + 26, X(onset)));
      parts.push(plumb(X(onset), 0, 4), s('rect', { x: x - 30, y: 11, width: 60, height: 17, rx: 3, fill: 'var(--ink)' }), s('text', { x, y: 24, 'text-anchor': 'middle', class: 'onink b' }, whole(onset)));
    }
    steps_.replaceChildren(picture(width, 32, 'The step axis', ...parts));
  }
  const { defs, bad, none } = hatches();
  const square = (fill: string, stroke = ''): SVGElement => s('svg', { viewBox: '0 0 16 14', 'aria-hidden': 'true' }, s('rect', { width: 16, height: 14, fill, stroke }));
  boxes.title.replaceChildren(h('h3', {}, 'Ranks × steps'), of.picker, h('span', { class: 'spacer' }), h('span', { class: 'legend flat' }, h('span', {}, num(Number(Number(c.low).toPrecision(3))), h('span', { class: 'ramp' }, ...[0, 1, 2, 3, 4].map(() => h('i', {}))), num(Number(Number(c.high).toPrecision(3)))),
    h('span', {}, s('svg', { viewBox: '0 0 16 14', 'aria-hidden': 'true' }, defs, s('rect', { width: 16, height: 14, fill: bad })), 'not finite'), h('span', {}, square(none, 'var(--line)'), 'no evidence')));
}
