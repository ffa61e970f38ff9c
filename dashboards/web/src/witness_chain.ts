// Draws how NaN or infinity spread: tensors in order of execution, by step.
import type { Finding, IncidentPage, Value } from './api';
import { clean, num, steps, whole } from './format';
import { h, markAt, s } from './dom';
import { hatches, picture, plumb, words } from './plots';
import { fieldsTable, fitted, isNumber, textOf, type Drawn } from './witness_parts';

const NAME = 15, ROW = 46, MOST_SYMPTOMS = 5;

interface Row {
  name: string;
  note: string;
  clean: number | null;  // the step in which it was last finite
  bad: number | null;    // the step from which on it was not
}

const siteName = (layer: string, op: string): string => [layer, op].filter(Boolean).join('/');

function rowsOf(page: IncidentPage): Row[] {
  const finding = page.finding;
  const onset = finding.site.step_first;
  const text = (value: Value | undefined, before: string): string => (isNumber(value) ? before + num(value) : '');
  const rows: Row[] = [];
  const before = textOf(finding.details.before);
  const last = finding.details.clean_step;
  if (before) rows.push({ name: before, note: 'last clean' + text(finding.details.before_amax, ', largest |x| '), clean: onset, bad: null });
  rows.push({ name: siteName(finding.site.layer, finding.site.op), note: 'first NaN or infinite value: ' + textOf(finding.witness.values), clean: isNumber(last) && last < onset ? last : null, bad: onset });
  for (const one of (page.symptoms ?? []).slice(0, MOST_SYMPTOMS)) rows.push({ name: one.where, note: `${one.title}, ${steps(one.step_first, one.step_first)}`, clean: null, bad: one.step_first });
  return rows;
}

function drawChain(width: number, rows: Row[], columns: number[], onset: number): SVGElement {
  const cell = width < 560 ? 44 : 76;
  const left = width - cell * columns.length;
  const { defs, none } = hatches();
  const parts: (SVGElement | SVGElement[])[] = [defs, words(0, 12, 'in order of execution', 't3'), ...columns.map((step, i) => words(left + (i + 0.5) * cell, 12, width < 560 ? whole(step) : steps(step, step), 't3', 'middle'))];
  rows.forEach((row, i) => {
    const y = 20 + i * ROW;
    parts.push(words(0, y + 17, clean(row.name, Math.max(8, Math.floor(left / 7.8))), row.bad === null ? 't1 b' : 'e b'), words(0, y + 33, clean(row.note, Math.max(8, Math.floor(left / 7))), 't3'));
    columns.forEach((step, j) => {
      const state = row.bad !== null && step >= row.bad ? 'error' : row.clean === step ? 'ok' : '';
      const x = left + j * cell;
      parts.push(s('rect', { x: x + 2, y: y + 2, width: cell - 4, height: ROW - 6, rx: 4, fill: state === 'error' ? 'var(--error-bg)' : state === 'ok' ? 'var(--ok-bg)' : none, stroke: state === 'error' ? 'var(--error)' : state === 'ok' ? 'var(--ok)' : 'var(--line)', 'stroke-width': state ? 2 : 1 }));
      if (state) parts.push(markAt(state, x + cell / 2, y + ROW / 2 - 1, 16));
    });
  });
  const height = 20 + rows.length * ROW;
  parts.push(...plumb(left + (columns.indexOf(onset) + 0.5) * cell, height - 2, height + NAME));
  const [first] = rows.filter((row) => row.bad !== null);
  return picture(width, height + NAME + 10, (rows[0].bad === null ? `last clean ${rows[0].name}, ` : '') + `first bad ${first.name} in step ${onset}` + (first.clean !== null ? `, finite in step ${first.clean}` : ''), ...parts);
}

export function chainWitness(page: IncidentPage): Drawn | null {
  const finding: Finding = page.finding;
  if (finding.rule !== 'precision/non-finite') return null;
  const rows = rowsOf(page);
  const onset = finding.site.step_first;
  const columns = [...new Set(rows.flatMap((row) => [row.clean, row.bad]).filter((step): step is number => step !== null))].sort((a, b) => a - b);
  if (rows.length === 1 && rows[0].clean === null) return null;
  // The onset and at most two steps on each side.
  const at = columns.indexOf(onset);
  const shown = columns.slice(Math.max(0, at - 2), at + 3);
  const before = rows[0].bad === null;
  const caption = before ? 'The operation between the first two tensors produced the first NaN or infinite value.'
    : rows[0].clean === null ? 'It was not observed in an earlier step.' : `It was finite in step ${whole(rows[0].clean)}, and no longer in step ${whole(onset)}.`;
  return {
    title: before ? 'Witness: the last clean tensor and the first bad one' : 'Witness: where NaN or infinity began, and how it spread',
    element: h('figure', { class: 'bd' }, fitted((width) => drawChain(width, rows, shown, onset)),
      h('figcaption', {}, h('b', {}, caption), ' Dots: not observed in that step.'), fieldsTable(finding.witness, 'Witness')),
  };
}
