// Compares 2 to 8 runs: one series of all runs on one axis, the first step in which two differ, and the findings that
// only one has. `plumb diff` separates chance from effect; this view makes no such claim.
import type { IncidentRow, Points, RunPage, RunRow, SeriesList } from './api';
import { get, path } from './api';
import { choicesOf, curveBar, lookOf, putChoices } from './curve_bar';
import { aligned, axisOf, type Curve } from './curve_math';
import { curvePlot, type Plot } from './curves';
import { card, h, scrolls } from './dom';
import { clean, count, num, seconds, whole } from './format';
import type { Range } from './run_axis';
import { curveKey, readoutOf } from './run_curves';
import { incidentRow, runAddress, type View } from './view';

export const MOST_RUNS = 8;
export const compareAddress = (...runs: string[]): string => ['#/compare', ...runs.filter(Boolean).map(encodeURIComponent)].join('/');

const LETTERS = 'ABCDEFGH';
// In any two runs, the same rule at the same place is the same finding.
const placeOf = (row: IncidentRow): string => row.rule + '\n' + row.where.replace(/, ranks? .*$/, '');
const isNumber = (v: number | null | undefined): v is number => typeof v === 'number';

// Returns B - A at the steps that both have.
function difference(a: Points, b: Points): Points {
  const of = new Map(b.step.map((step, i) => [step, b.mean?.[i]]));
  const out: { step: number[]; mean: number[] } = { step: [], mean: [] };
  a.step.forEach((step, i) => {
    const [va, vb] = [a.mean?.[i], of.get(step)];
    if (!isNumber(va) || !isNumber(vb)) return;
    out.step.push(step);
    out.mean.push(vb - va);
  });
  return { ...out, bucket_steps: a.bucket_steps };
}

function endWords(less: Points): string {
  if (less.step.length === 0) return 'The two runs have no common step.';
  const n = Math.max(1, Math.floor(less.step.length / 10));
  const [last, at] = [less.mean!.slice(-n) as number[], less.step.slice(-n)];
  const mean = last.reduce((sum, v) => sum + v, 0) / n;
  const over = `Over the last tenth of the steps that both have (${whole(at[0])} to ${whole(at[n - 1])})`;
  return mean === 0 ? over + ' A and B are equal.' : `${over} B is ${num(Number(Math.abs(mean).toPrecision(3)))} ${mean > 0 ? 'above' : 'below'} A on average.`;
}

// Returns the first step whose values differ; null if all are equal. Requests the steps of the first column that
// differs, until that column has only one step.
async function firstDifference(series: string, a: string, b: string, to: number): Promise<{ step: number; a: number; b: number } | null> {
  let range: Range = { from: 0, to };
  for (let turn = 0; turn < 6; turn++) {
    const [pa, pb] = await Promise.all([a, b].map((run) => get<Points>(path('runs', run, 'points'), { series, from: range.from, to: range.to, px: 1000 })));
    const less = difference(pa, pb);
    const i = less.mean!.findIndex((v) => v !== 0);
    if (i < 0) return null;
    const step = less.step[i];
    const wide = pa.bucket_steps ?? 1;
    if (wide <= 1) return { step, a: pa.mean![pa.step.indexOf(step)]!, b: pb.mean![pb.step.indexOf(step)]! };
    range = { from: step, to: step + wide - 1 };
  }
  return null;
}

export function compareView(rest: string[], params: URLSearchParams): View {
  const runs = [...new Set((rest.length ? rest : [params.get('a') ?? '', params.get('b') ?? '']).filter(Boolean))].slice(0, MOST_RUNS);
  const choices = choicesOf(params);
  let series = params.get('series') ?? '';
  let plots: Plot[] = [];
  let observer: ResizeObserver | null = null;
  let range: Range | null = params.has('from') ? { from: Number(params.get('from')), to: Number(params.get('to')) } : null;

  function address(): void {
    const set = new URLSearchParams();
    if (series) set.set('series', series);
    if (range) {
      set.set('from', String(range.from));
      set.set('to', String(range.to));
    }
    putChoices(choices, set);
    const text = set.toString();
    history.replaceState(null, '', compareAddress(...runs) + (text ? '?' + text : ''));
  }
  const go = (names: string[]): void => { location.hash = compareAddress(...names); };

  function head(all: string[]): HTMLElement[] {
    const left = all.filter((one) => !runs.includes(one));
    const add = h('select', { 'aria-label': 'Add a run', onchange: () => { if (add.value) go([...runs, add.value]); } }, h('option', { value: '' }, runs.length ? 'add a run' : 'choose a run'), ...left.map((one) => h('option', { value: one }, clean(one, 100))));
    return [h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Runs'), h('span', {}, '/'), h('span', {}, 'compare')),
      h('div', { class: 'sumline' }, h('h1', {}, runs.length > 2 ? `Compare ${runs.length} runs` : 'Compare two runs'), runs.length === 2 ? h('button', { onclick: () => go([runs[1], runs[0]]) }, 'Swap') : null),
      h('div', { class: 'curvekeys' }, ...runs.map((one, i) => curveKey(i, '', h('b', {}, LETTERS[i]), h('a', { href: runAddress(one), title: clean(one, 2000) }, clean(one, 100)),
        h('button', { class: 'small quiet', 'aria-label': `Remove run ${LETTERS[i]}`, onclick: () => go(runs.filter((other) => other !== one)) }, '×'))), runs.length < MOST_RUNS && left.length ? add : '')];
  }

  // ---- the tables ----

  function facts(pages: RunPage[]): HTMLElement {
    const rows: [string, (one: RunPage) => string][] = [['State', (one) => one.word], ['Steps', (one) => whole(one.newest_step + 1)], ['Ranks', (one) => whole(one.world)], ['Attempts', (one) => whole(one.attempt + 1)], ['Time', (one) => seconds(one.step_seconds) || 'not known'],
      ['Open incidents', (one) => whole(one.incidents.filter((row) => row.state === 'open').length)]];
    const differ = rows.filter(([, of]) => new Set(pages.map(of)).size > 1);
    return card('What differs', `of ${rows.length} facts`, differ.length ? scrolls(h('div', { class: 'bd scrollx' }, h('table', {}, h('thead', {}, h('tr', {}, h('td', {}), ...pages.map((_, i) => h('th', { class: 'num' }, LETTERS[i])))),
      h('tbody', {}, ...differ.map(([name, of]) => h('tr', {}, h('td', {}, name), ...pages.map((one) => h('td', { class: 'num nowrap' }, of(one)))))))), 'What differs') : h('p', { class: 'bd small muted' }, 'None.'));
  }
  function findings(pages: RunPage[]): HTMLElement {
    const places = pages.map((one) => new Set(one.incidents.map(placeOf)));
    const list = (label: string, rows: IncidentRow[]): HTMLElement[] => [h('p', { class: 'bd small' }, h('b', {}, label), rows.length ? ` ${count(rows.length, 'finding')}` : ' none'), ...rows.slice(0, 20).map((row) => incidentRow(row, false))];
    return h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Findings')),
      ...pages.flatMap((one, i) => list(`Only in ${LETTERS[i]}`, one.incidents.filter((row) => places.every((other, j) => i === j || !other.has(placeOf(row)))))),
      ...list(pages.length === 2 ? 'In both' : 'In all', pages[0].incidents.filter((row) => places.every((other) => other.has(placeOf(row))))));
  }

  // ---- the curves ----

  function curvesCard(pages: RunPage[], lists: SeriesList[], common: string[]): HTMLElement {
    const readout = h('div', { class: 'readout' });
    const caption = h('figcaption', {});
    let curves: Curve[] = [];
    const last = Math.max(...pages.map((one) => one.newest_step));
    const cursor = (step: number | null): void => { readout.textContent = step === null ? '' : readoutOf(curves, step); };
    const zoom = (from: number, to: number): void => {
      range = { from: Math.max(0, from), to: Math.max(from + 4, to) };
      void load();
    };
    const plot = curvePlot('the series of all runs', 340, zoom, cursor);
    const lower = curvePlot('B − A', 150, zoom, cursor);
    plots = [plot, lower];
    const tokens = lists[0].groups.flatMap((group) => group.series).find((one) => one.is === 'tokens')?.series;
    const bar = curveBar(choices, { plot, curves: () => curves, file: () => `compare-${series}`, axes: () => (tokens ? [[tokens, 'tokens of A: ' + clean(tokens, 30)]] : []), changed: () => void load() });
    const pick = h('select', { 'aria-label': 'Series', onchange: () => {
      series = pick.value;
      void load();
    } }, ...common.map((one) => h('option', { value: one }, clean(one, 100))));
    pick.value = series;
    const whole_ = h('button', { class: 'small', onclick: () => {
      range = null;
      void load();
    } }, 'Whole run');
    async function load(): Promise<void> {
      address();
      const shown = range ?? { from: 0, to: last };
      const px = Math.max(100, Math.min(2048, plot.element.clientWidth || 800));
      const [points, axis] = await Promise.all([Promise.all(runs.map((run) => get<Points>(path('runs', run, 'points'), { series, from: shown.from, to: shown.to, px }))),
        choices.x === 'step' ? null : get<Points>(path('runs', runs[0], 'points'), { series: choices.x, px: 2048 }), plot.ready()]);
      curves = runs.map((run, i) => ({ label: `${LETTERS[i]} ${clean(run, 40)}`, points: points[i] }));
      plot.look(lookOf(choices, axis && (axisOf(axis, 'total') ?? axisOf(axis, 'step'))));
      plot.update(curves, [], shown);
      const two = runs.length === 2 ? difference(points[0], points[1]) : null;
      lower.element.hidden = !two || two.step.length < 2;
      if (two && two.step.length > 1) lower.update([{ label: 'B − A', points: two }], [], shown);
      const values = aligned(curves).values.some((one) => one.some((v) => v !== null));
      caption.replaceChildren(!values ? 'No run has this series here. ' : two ? endWords(two) + ' ' : '', ...plot.notes().map((one) => one + '. '), 'Whether a difference is chance, ', h('code', {}, 'plumb diff'), ' reports from their records.');
      if (two) {
        const first = await firstDifference(series, runs[0], runs[1], last);
        caption.prepend(first ? `First difference at step ${whole(first.step)}: ${num(first.a)} and ${num(first.b)}. ` : two.step.length ? 'All values are equal. ' : '');
      }
    }
    requestAnimationFrame(() => void load().catch((error: unknown) => { caption.textContent = error instanceof Error ? error.message : 'The server does not answer.'; }));
    const legend = h('div', { class: 'curvekeys' }, ...runs.map((run, i) => curveKey(i, `${LETTERS[i]} ${clean(run, 60)}`)));
    return h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Curves'), h('span', { class: 'subhead' }, pick), h('span', { class: 'grow' }), whole_), h('figure', { class: 'bd' }, bar.element, plot.element, legend, readout, lower.element, caption));
  }

  return {
    title: 'Compare',
    nav: 'runs',
    async show(main) {
      const { runs: rows } = await get<{ runs: RunRow[] }>('runs');
      const top = head(rows.map((one) => one.run));
      if (runs.length < 2) {
        main.replaceChildren(...top, h('section', { class: 'card mt12' }, h('p', { class: 'bd' }, 'Choose 2 to 8 runs. Any series of them is drawn on one axis, with the findings that only one of them has.')));
        return;
      }
      const [pages, sparks, lists] = await Promise.all([Promise.all(runs.map((run) => get<RunPage>(path('runs', run)))), Promise.all(runs.map((run) => get<Points>(path('runs', run, 'spark')))), Promise.all(runs.map((run) => get<SeriesList>(path('runs', run, 'series'))))]);
      const names = lists.map((list) => list.groups.flatMap((group) => group.series.map((one) => one.series)));
      const common = [...new Set([...sparks.map((one) => one.series ?? ''), ...names.flat()].filter(Boolean))].slice(0, 400);
      series ||= sparks.find((one) => one.series)?.series ?? common[0] ?? '';
      if (series && !common.includes(series)) common.unshift(series);
      const curves = curvesCard(pages, lists, common);
      main.replaceChildren(...top, h('div', { class: 'cols mt12' }, h('div', { class: 'stack' }, curves, facts(pages)), h('aside', { class: 'stack', 'aria-label': 'Findings' }, findings(pages))));
      // A plot that is made again loses its cursor, and the values at the cursor change the height.
      let width = 0;
      observer = new ResizeObserver(([entry]) => {
        const wide = Math.round(entry.contentRect.width);
        if (wide === width) return;
        width = wide;
        for (const one of plots) one.resize();
      });
      observer.observe(curves);
    },
    onTheme: () => { for (const one of plots) one.resize(); },
    leave() {
      observer?.disconnect();
      for (const one of plots) one.destroy();
    },
  };
}
