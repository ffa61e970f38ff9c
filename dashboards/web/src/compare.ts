// Compares two runs: their curves on one axis, the difference B - A, and the findings that only one
// has. `plumb diff` separates chance from effect; this view claims nothing that a screen cannot
// show.
import type { IncidentRow, Points, RunPage, RunRow } from './api';
import { get, path } from './api';
import { card, h, s } from './dom';
import { clean, count, num, whole } from './format';
import { GUTTER, RIGHT, line, picture, scale, ticks, words } from './plots';
import { incidentRow, runAddress, type View } from './view';

export const compareAddress = (a: string, b: string): string => '#/compare?' + new URLSearchParams({ a, b }).toString();

const isNumber = (v: number | null | undefined): v is number => typeof v === 'number';

// Returns the steps that both have, with both values. Columns have the same width, because both
// were requested for the same steps.
function shared(a: Points, b: Points): { step: number; a: number; b: number }[] {
  const of = new Map(b.step.map((step, i) => [step, b.mean?.[i]]));
  return a.step.flatMap((step, i) => {
    const [va, vb] = [a.mean?.[i], of.get(step)];
    return isNumber(va) && isNumber(vb) ? [{ step, a: va, b: vb }] : [];
  });
}

function draw(width: number, a: Points, b: Points): SVGElement {
  const both = shared(a, b);
  const steps = [...a.step, ...b.step];
  const values = [...(a.mean ?? []), ...(b.mean ?? [])].filter(isNumber);
  if (values.length === 0) return picture(width, 40, 'no values', words(GUTTER, 24, 'Neither run has this series.', 't3'));
  const X = scale(Math.min(...steps), Math.max(...steps), GUTTER, width - RIGHT);
  const sorted = [...values].sort((p, q) => p - q);
  const [low, high] = [sorted[0], sorted[Math.floor(0.99 * (sorted.length - 1))]];
  const Y = scale(low, high, 190, 10);
  const path_ = (points: Points): string => {
    let d = '';
    points.step.forEach((step, i) => {
      const v = points.mean?.[i];
      if (isNumber(v)) d += (d ? 'L' : 'M') + X(step).toFixed(1) + ' ' + Math.max(4, Y(v)).toFixed(1);
    });
    return d;
  };
  const parts: (SVGElement | null)[] = ticks(low, high, 4).flatMap((t) => [line(GUTTER, Y(t), width - RIGHT, Y(t), 'gr'), words(GUTTER - 8, Y(t) + 4, num(Number(t.toPrecision(4))), 't3', 'end')]);
  parts.push(s('path', { d: path_(b), fill: 'none', stroke: 'var(--s2)', 'stroke-width': 4, 'stroke-opacity': 0.5 }), s('path', { d: path_(a), fill: 'none', stroke: 'var(--s1)', 'stroke-width': 1.4 }));
  // The difference B - A, below.
  const less = both.map((one) => one.b - one.a);
  const reach = less.reduce((most, v) => Math.max(most, Math.abs(v)), 0) || 1;
  const D = scale(-reach, reach, 300, 224);
  parts.push(words(GUTTER, 216, 'B − A', 't1 b'), line(GUTTER, D(0), width - RIGHT, D(0)), words(GUTTER - 8, D(0) + 4, '0', 't3', 'end'), words(GUTTER - 8, D(reach) + 8, '+' + num(Number(reach.toPrecision(2))), 't3', 'end'),
    s('path', { d: both.map((one, i) => (i ? 'L' : 'M') + X(one.step).toFixed(1) + ' ' + D(one.b - one.a).toFixed(1)).join(''), fill: 'none', stroke: 'var(--s2)', 'stroke-width': 1.5 }));
  for (const t of ticks(Math.min(...steps), Math.max(...steps), width > 600 ? 8 : 3)) {
    if (Number.isInteger(t)) parts.push(words(X(t), 322, whole(t), 't3', X(t) > width - 40 ? 'end' : 'middle'));
  }
  return picture(width, 328, 'The series of both runs, and their difference', ...parts);
}

function sentence_(a: Points, b: Points): string {
  const both = shared(a, b);
  if (both.length === 0) return 'The two runs have no common step.';
  const last = both.slice(-Math.max(1, Math.floor(both.length / 10)));
  const mean = last.reduce((sum, one) => sum + one.b - one.a, 0) / last.length;
  if (mean === 0) return `Equal over the last tenth of the steps that both have, ${whole(last[0].step)} to ${whole(last[last.length - 1].step)}.`;
  return `Over the last tenth of the steps that both have (${whole(last[0].step)} to ${whole(last[last.length - 1].step)}) B is ${num(Number(Math.abs(mean).toPrecision(3)))} ${mean > 0 ? 'above' : 'below'} A on average.`;
}

// The same rule at the same place is the same finding, whatever the run.
const placeOf = (row: IncidentRow): string => row.rule + '\n' + row.where.replace(/, ranks? .*$/, '');

export function compareView(params: URLSearchParams): View {
  const [a, b] = [params.get('a') ?? '', params.get('b') ?? ''];
  let observer: ResizeObserver | null = null;
  return {
    title: 'Compare',
    nav: 'runs',
    async show(main) {
      const { runs } = await get<{ runs: RunRow[] }>('runs');
      const names = runs.map((one) => one.run);
      const choose = (label: string, value: string, go: (name: string) => void): HTMLElement => {
        const select = h('select', { 'aria-label': label }, h('option', { value: '' }, 'choose a run'), ...names.map((one) => h('option', { value: one }, clean(one, 100))));
        select.value = value;
        select.addEventListener('change', () => go(select.value));
        return select;
      };
      const head = [h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Runs'), h('span', {}, '/'), h('span', {}, 'compare')),
        h('div', { class: 'sumline' }, h('h1', {}, 'Compare two runs')),
        h('div', { class: 'subhead' }, h('span', { class: 'tag' }, s('svg', { class: 'g', viewBox: '0 0 16 14', 'aria-hidden': 'true' }, s('path', { d: 'M0 7h16', stroke: 'var(--s1)', 'stroke-width': 1.6 })), 'A'), choose('Run A', a, (one) => { location.hash = compareAddress(one, b); }),
          h('span', { class: 'tag' }, s('svg', { class: 'g', viewBox: '0 0 16 14', 'aria-hidden': 'true' }, s('path', { d: 'M0 7h16', stroke: 'var(--s2)', 'stroke-width': 5, 'stroke-opacity': 0.5 })), 'B'), choose('Run B', b, (one) => { location.hash = compareAddress(a, one); }),
          a && b ? h('button', { onclick: () => { location.hash = compareAddress(b, a); } }, 'Swap') : null)];
      if (!a || !b) {
        main.replaceChildren(...head, h('section', { class: 'card mt12' }, h('p', { class: 'bd' }, 'Choose both. Their losses are drawn on one axis, with the findings that only one of them has.')));
        return;
      }
      const [pageA, pageB, sparkA, sparkB] = await Promise.all([get<RunPage>(path('runs', a)), get<RunPage>(path('runs', b)), get<Points>(path('runs', a, 'spark')), get<Points>(path('runs', b, 'spark'))]);
      const last = Math.max(pageA.newest_step, pageB.newest_step);
      const points = (run: string, series?: string): Promise<Points> => (series ? get<Points>(path('runs', run, 'points'), { series, from: 0, to: last, px: 600 }) : Promise.resolve({ step: [] }));
      const [lossA, lossB] = await Promise.all([points(a, sparkA.series), points(b, sparkB.series)]);
      const box = h('div', { class: 'plot' });
      const places = (rows: IncidentRow[]): Set<string> => new Set(rows.map(placeOf));
      const [inA, inB] = [places(pageA.incidents), places(pageB.incidents)];
      const list = (label: string, rows: IncidentRow[]): HTMLElement[] => [h('p', { class: 'bd small' }, h('b', {}, label), rows.length ? ` ${count(rows.length, 'finding')}` : ' none'), ...rows.map((row) => incidentRow(row, false))];
      const who = (label: string, run: RunPage): HTMLElement => h('p', {}, h('b', {}, label + ' '), h('a', { href: runAddress(run.run) }, clean(run.run, 100)), ` ${count(run.world, 'rank')}, ${count(run.newest_step + 1, 'step')}`);
      main.replaceChildren(...head, h('div', { class: 'cols mt12' }, h('div', { class: 'stack' },
        card('Loss', [sparkA.series, sparkB.series].filter(Boolean).map((one) => clean(one!, 40)).join(' and '), h('figure', { class: 'bd' }, box, h('figcaption', {}, sentence_(lossA, lossB), ' Whether this is chance, and at which step they diverge, ', h('code', {}, 'plumb diff'), ' reports from their records.')))),
        h('aside', { class: 'stack', 'aria-label': 'Findings' }, h('section', { class: 'card' }, h('div', { class: 'bd stack gap8' }, who('A', pageA), who('B', pageB))),
          h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Findings')), ...list('Only in A', pageA.incidents.filter((row) => !inB.has(placeOf(row)))), ...list('Only in B', pageB.incidents.filter((row) => !inA.has(placeOf(row)))),
            ...list('In both', pageA.incidents.filter((row) => inB.has(placeOf(row))))))));
      observer = new ResizeObserver(() => { if (box.clientWidth) box.replaceChildren(draw(Math.floor(box.clientWidth), lossA, lossB)); });
      observer.observe(box);
    },
    leave: () => observer?.disconnect(),
  };
}
