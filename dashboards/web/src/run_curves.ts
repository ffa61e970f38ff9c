// The plot of a run: one series or several, on steps, tokens or time, with the findings on it.
import type { IncidentRow, Points, SeriesRow } from './api';
import { get, path } from './api';
import { axisOf, type Curve } from './curve_math';
import { choicesOf, curveBar, lookOf, putChoices } from './curve_bar';
import { colourOf, curvePlot, dashOf } from './curves';
import { h, s } from './dom';
import { clean, num, steps } from './format';
import { GUTTER, RIGHT } from './plots';
import type { Range } from './run_axis';

const MOST = 6;  // limit of series in one plot

// Returns the legend of one curve: its line and its name.
export function curveKey(i: number, label: string, ...more: (Node | string | null)[]): HTMLElement {
  return h('span', { class: 'key' }, s('svg', { viewBox: '0 0 22 10', 'aria-hidden': 'true' }, s('path', { d: 'M0 5h22', stroke: colourOf(i), 'stroke-width': 2, 'stroke-dasharray': dashOf(i).join(' ') || null })), clean(label, 120), ...more);
}

// Returns the values of all curves at a step: "step 12: loss 2.31, 2.2 to 2.4".
export function readoutOf(curves: Curve[], step: number): string {
  const words = curves.map(({ label, points }) => {
    let i = points.step.indexOf(step);
    if (i < 0 && curves.length > 1) i = points.step.findIndex((one) => one <= step && step < one + (points.bucket_steps ?? 1));
    if (i < 0) return curves.length > 1 ? '' : `${clean(label, 60)} –`;
    const value = points.bad?.includes(i) ? 'not finite' : num(points.mean?.[i] ?? null);
    const [low, high] = [points.min?.[i], points.max?.[i]];
    const spread = typeof low === 'number' && typeof high === 'number' && low !== high ? `, ${num(low)} to ${num(high)}` : '';
    return `${clean(label, 60)} ${value}${spread}`;
  });
  const wide = Math.max(...curves.map((one) => one.points.bucket_steps ?? 1));
  return `${steps(step, step + wide - 1)}: ${words.filter(Boolean).join(' · ')}`;
}

export interface RunCurves {
  element: HTMLElement;  // the controls, the plot, its legend
  plot: ReturnType<typeof curvePlot>;
  extra: string[];  // names drawn in addition to the chosen one
  wide(): number;  // width of the plot, in pixels
  load(run: string, chosen: string, shown: Range): Promise<Points>;
  draw(marks: IncidentRow[], shown: Range): void;
  listed(all: SeriesRow[]): void;  // sets the known series of the run
  put(to: URLSearchParams): void;
  readout(step: number): string;
}

export function runCurves(run: string, params: URLSearchParams, of: { zoom(range: Range): void; cursor(step: number | null): void; changed(): void }): RunCurves {
  const choices = choicesOf(params);
  const extra = params.getAll('also').slice(0, MOST - 1);
  const plot = curvePlot('the series', 340, (from, to) => of.zoom({ from, to }), of.cursor);
  const keys = h('div', { class: 'curvekeys' });
  let curves: Curve[] = [];
  let known: SeriesRow[] = [];
  let axis: Points | null = null;
  let axisName = '';
  const axes = (): [string, string][] => known.filter((one) => one.is === 'tokens' || one.is === 'step-seconds').slice(0, 4)
    .map((one) => [one.series, (one.is === 'tokens' ? 'tokens: ' : 'time: ') + clean(one.series, 40)]);
  const bar = curveBar(choices, { plot, curves: () => curves, axes, file: () => `${run}-${curves[0]?.label ?? 'series'}`, changed: () => of.changed(), zoomed: () => drawKeys() });

  function drawKeys(): void {
    const names = known.map((one) => one.series).filter((one) => !curves.some((curve) => curve.label === one)).slice(0, 400);
    const add = h('select', { 'aria-label': 'Add a series', onchange: () => {
      if (!add.value) return;
      extra.push(add.value);
      of.changed();
    } }, h('option', { value: '' }, 'add a series'), ...names.map((one) => h('option', { value: one }, clean(one, 100))));
    keys.replaceChildren(...curves.map((one, i) => curveKey(i, one.label, i === 0 ? null : h('button', { class: 'small quiet', 'aria-label': `Remove ${clean(one.label, 80)}`, onclick: () => {
      extra.splice(extra.indexOf(one.label), 1);
      of.changed();
    } }, '×'))), curves.length < MOST && names.length ? h('label', { class: 'key' }, add) : '', ...plot.notes().map((one) => h('span', { class: 'muted' }, one)));
  }
  return {
    element: h('div', {}, bar.element, plot.element, keys),
    plot, extra,
    wide: () => plot.element.clientWidth || 800,
    async load(name, chosen, shown) {
      const px = Math.max(100, Math.min(2048, Math.floor(this.wide() - GUTTER - RIGHT)));
      const ask = (series: string): Promise<Points> => get<Points>(path('runs', name, 'points'), { series, from: shown.from, to: shown.to, px });
      axisName = choices.x === 'step' ? '' : choices.x;
      const names = [chosen, ...extra.filter((one) => one !== chosen)];
      const [all, x] = await Promise.all([Promise.all(names.map(ask)), axisName ? get<Points>(path('runs', name, 'points'), { series: axisName, px: 2048 }) : null, plot.ready()]);
      axis = x;
      curves = names.map((label, i) => ({ label, points: all[i] }));
      return all[0];
    },
    draw(marks, shown) {
      const per = known.find((one) => one.series === axisName)?.is === 'tokens' ? 'total' : 'step';
      const x = axis && (axisOf(axis, per) ?? axisOf(axis, 'step'));
      plot.look(lookOf(choices, x));
      plot.update(curves, marks, shown);
      drawKeys();
    },
    listed(all) {
      known = all;
      bar.draw();
    },
    put(to) {
      putChoices(choices, to);
      for (const one of extra) to.append('also', one);
    },
    readout: (step) => readoutOf(curves, step),
  };
}
