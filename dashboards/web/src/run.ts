// Shows one run: the timeline with all data on one step axis, its series, the observed and the lost evidence.
import type { Coverage, IncidentRow, Points, RunPage } from './api';
import { get, getBytes, path } from './api';
import { h } from './dom';
import { clean, whole } from './format';
import { GUTTER, RIGHT, parseCells, type Cells } from './plots';
import { drawLanes, drawMini, type Range } from './run_axis';
import { runCurves } from './run_curves';
import { drawHeat } from './run_heat';
import { ranksCard } from './run_ranks';
import { drawRail, drawTop } from './run_rail';
import { seriesCard } from './run_series';
import { gone, runAddress, type View } from './view';

export function runView(name: string, params: URLSearchParams): View {
  let run: RunPage | null = null;
  let coverage: Coverage | null = null;
  let main: HTMLElement | null = null;
  let loss: Points | null = null;       // the loss over the whole run
  let parts: HTMLElement[] = [];        // children of `main`
  let timers: number[] = [];
  let cells: Cells | null = null;
  let busy = false;
  let again = false;

  // The address has the choices of the view.
  let chosen = params.get('series') ?? '';
  let heat = params.get('heat') ?? '';
  let filter = params.get('filter') ?? '';
  let range: Range | null = params.has('from') ? { from: Number(params.get('from')), to: Number(params.get('to')) } : null;
  let follows = params.get('last') === '500';

  const readout = h('div', { class: 'readout', 'aria-live': 'off' }, '');
  const lanes = h('div', { class: 'plot' });
  const mini = h('div', { class: 'plot' });
  const heatBox = h('div', {});
  const top = h('div', {});
  const rail = h('aside', { class: 'stack', 'aria-label': 'Incidents and evidence' });
  const plotTitle = h('div', { class: 'subhead' });
  const heatTitle = h('div', { class: 'subhead' });
  const rangeBar = h('span', { class: 'seg', role: 'group', 'aria-label': 'Range' });
  const curves = runCurves(name, params, {
    zoom: (range) => setRange(range),
    cursor: (step) => { readout.textContent = step === null ? '' : curves.readout(step); },
    changed() {
      address();
      void loadWindow();
    },
  });
  const plot = curves.plot;

  const bounds = (): Range => {
    const first = run?.attempts.length ? Math.min(...run.attempts.map((one) => one.step_first)) : 0;
    return { from: Math.min(first, loss?.step[0] ?? first), to: Math.max(run?.newest_step ?? 0, first + 1) };
  };
  const window_ = (): Range => {
    const all = bounds();
    if (follows) return { from: Math.max(all.from, all.to - 499), to: all.to };
    return range ?? all;
  };
  const open = (): IncidentRow[] => run?.incidents.filter((one) => one.state !== 'resolved') ?? [];

  function address(): void {
    const set = new URLSearchParams();
    if (chosen) set.set('series', chosen);
    if (heat) set.set('heat', heat);
    if (filter) set.set('filter', filter);
    if (ranksOf) set.set('ranks', ranksOf);
    if (range && !follows) {
      set.set('from', String(range.from));
      set.set('to', String(range.to));
    }
    if (follows) set.set('last', '500');
    curves.put(set);
    const text = set.toString();
    history.replaceState(null, '', runAddress(name) + (text ? '?' + text : ''));
  }
  function setRange(next: Range | null, follow = false): void {
    const all = bounds();
    range = next && { from: Math.max(all.from, Math.floor(next.from)), to: Math.min(all.to, Math.max(Math.floor(next.to), Math.floor(next.from) + 4)) };
    follows = follow;
    address();
    drawRangeBar();
    void loadWindow();
  }
  function zoom(by: number): void {
    const w = window_();
    const middle = (w.from + w.to) / 2;
    const half = Math.max(4, ((w.to - w.from) / 2) * by);
    setRange({ from: middle - half, to: middle + half });
  }
  function toFinding(by: number): void {
    const places = [...new Set(open().map((one) => one.step_first))].sort((a, b) => a - b);
    if (places.length === 0) return;
    const w = window_();
    const middle = (w.from + w.to) / 2;
    const next = by > 0 ? places.find((p) => p > middle + 0.5) ?? places[0] : [...places].reverse().find((p) => p < middle - 0.5) ?? places[places.length - 1];
    const half = Math.max(50, Math.min((w.to - w.from) / 2, 250));
    const all = bounds();
    range = { from: Math.max(all.from, Math.floor(next - half)), to: Math.floor(next + half) };
    follows = false;
    address();
    drawRangeBar();
    void loadWindow();
  }

  // ---- the parts on the step axis ----

  function drawRangeBar(): void {
    const worst = run?.worst;
    const around = worst ? { from: worst.step_first - 250, to: worst.step_first + 250 } : null;
    const isAround = !!range && !!worst && !follows && range.from <= worst.step_first && range.to >= worst.step_first && range.to - range.from <= 520;
    const button = (text: string, on: boolean, act: () => void, cls = ''): HTMLElement => h('button', { 'aria-pressed': String(on), onclick: act, class: cls }, text);
    rangeBar.replaceChildren(button('Whole run', !range && !follows, () => setRange(null)));
    if (around) rangeBar.append(button('Around the finding', isAround, () => setRange(around)));
    rangeBar.append(button('Last 500 steps', follows, () => setRange(null, true), 'hide-s'));
  }

  // ---- loading ----

  let shown: Points | null = null;
  const pickable = (): string[] => {
    return [...new Set([chosen, heat, ...list.names()].filter(Boolean))].slice(0, 400);
  };
  function picker(value: string, label: string, choose: (name: string) => void): HTMLElement {
    const select = h('select', { 'aria-label': label }, ...pickable().map((one) => h('option', { value: one }, clean(one, 100))));
    select.value = value;
    select.addEventListener('change', () => choose(select.value));
    return select;
  }

  async function loadWindow(): Promise<void> {
    drawAxis();
    if (!chosen) {
      plotTitle.replaceChildren(h('h3', {}, 'Series'), h('span', { class: 'small muted' }, 'This run has sent no series yet: run.scalar("loss", …)'));
      curves.element.hidden = true;
      return;
    }
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const w = window_();
      const points = await curves.load(name, chosen, w);
      shown = points;
      curves.element.hidden = false;
      plotTitle.replaceChildren(h('h3', {}, 'Series'), picker(chosen, 'Drawn series', (one) => {
        chosen = one;
        address();
        void loadWindow();
      }), h('span', { class: 'small muted' }, (points.bucket_steps ?? 1) > 1 ? `mean, smallest and largest of ${whole(points.bucket_steps!)} steps and all ranks` : 'each step, mean of all ranks'));
      const worst = run?.worst;
      curves.draw(worst ? [worst, ...open().filter((one) => one.fingerprint !== worst.fingerprint)] : open(), w);
      if (heat) await loadCells(w);
    } finally {
      busy = false;
      if (again) {
        again = false;
        void loadWindow();
      }
    }
  }

  async function loadCells(w: Range): Promise<void> {
    const width = Math.max(60, Math.min(400, Math.floor((curves.wide() - GUTTER - RIGHT) / 3)));
    const body = await getBytes(path('runs', name, 'cells'), { series: heat, from: w.from, to: w.to, columns: width, rows: 256, alone: alone()[0] });
    cells = parseCells(body);
    showHeat(w);
  }
  // Returns the ranks that the worst finding names. Each of them has its own row.
  function alone(): number[] {
    const where = run?.worst?.where.match(/rank (\d+)/);
    return where ? [Number(where[1])] : [];
  }

  // ---- the head and the rail ----

  function showHeat(w: Range): void {
    if (!cells) return;
    const choose = (one: string): void => {
      heat = one;
      address();
      void loadWindow();
    };
    drawHeat({ picture: heatBox, title: heatTitle, readout }, cells, w,
      { series: heat, culprit: alone()[0], onset: run?.worst?.step_first, picker: picker(heat, 'Series of the heat map', choose) });
  }
  function drawAxis(): void {
    if (!run) return;
    const over = run.incidents.filter((one) => one.state === 'resolved');
    const axis = { all: bounds(), shown: window_(), open: open(), over };
    drawMini(mini, axis, loss);
    drawLanes(lanes, axis, run);
  }
  function drawAll(): void {
    if (!run) return;
    drawTop(top, run);
    drawRangeBar();
    drawRail(rail, run, coverage);
    drawAxis();
  }
  const list = seriesCard(name, filter, {
    open,
    choose(one) {
      chosen = one.series;
      if (one.ranks > 1) heat = one.series;
      address();
      void loadWindow();
      plotTitle.scrollIntoView({ block: 'center' });
    },
    filtered(text) {
      filter = text;
      address();
    },
  });

  let ranksOf = params.get('ranks') ?? '';
  const ranks = ranksCard(name, ranksOf, (series) => {
    ranksOf = series;
    address();
  });

  async function loadRun(): Promise<void> {
    try {
      [run, coverage] = await Promise.all([get<RunPage>(path('runs', name)), get<Coverage>(path('runs', name, 'coverage'))]);
    } catch (error) {
      gone(main, error);
      throw error;
    }
    // Restores the parts if another view replaced them meanwhile.
    if (parts.length && !top.isConnected) main?.replaceChildren(...parts);
    drawAll();
  }
  function each(key: number, wait: number, what: () => Promise<void>): void {
    if (timers[key]) return;
    timers[key] = window.setTimeout(() => {
      timers[key] = 0;
      if (!document.hidden && main) what().catch(() => undefined);
    }, wait);
  }

  let width = 0;
  const resized = new ResizeObserver((entries) => {
    const wide = Math.round(entries[0].contentRect.width);
    if (!main || wide === width) return;
    width = wide;
    if (!shown) return;
    drawAxis();
    plot.resize();
    ranks.resize();
    showHeat(window_());
  });

  async function loadLoss(): Promise<void> {
    const points = await get<Points>(path('runs', name, 'spark'));
    loss = points.step ? points : null;
    if (main) drawAxis();
  }
  const soon = (): Promise<void> => new Promise((done, failed) => { setTimeout(() => void plot.ready().then(done, failed)); });
  async function loadCoverage(): Promise<void> {
    coverage = await get<Coverage>(path('runs', name, 'coverage'));
    if (main && run) drawRail(rail, run, coverage);
  }
  async function loadPlots(): Promise<void> {
    const all = (await list.load()).groups.flatMap((group) => group.series);
    curves.listed(all);
    chosen ||= loss?.series ?? all[0]?.series ?? '';
    if (!heat) {
      const wide = all.filter((one) => one.ranks > 1);
      heat = (wide.find((one) => one.series === chosen) ?? wide[0])?.series ?? '';
    }
    if (main) await loadWindow();
    if (main && run && Math.max(run.world, run.seen) > 1) await ranks.load(all);
  }

  return {
    get title() {
      return clean(name, 60);
    },
    nav: 'runs',
    async show(to) {
      main = to;
      run = await get<RunPage>(path('runs', name));
      if (!main) return;
      const timeline = h('section', { class: 'card', 'aria-label': 'Timeline' },
        h('div', { class: 'hd' }, h('h2', {}, 'Timeline'), h('span', { class: 'muted small hide-s' }, 'drag to choose steps, [ and ] move between findings'), h('span', { class: 'grow' }), rangeBar),
        h('div', { class: 'plotpad' }, mini, lanes, plotTitle, curves.element, readout, heatTitle, heatBox));
      parts = [top, h('div', { class: 'cols' }, h('div', { class: 'stack' }, timeline, ranks.element, list.element), rail)];
      main.replaceChildren(...parts);
      drawAll();
      // Loads curves after the facts, because their data is as large as all other data.
      this.whole = Promise.all([soon(), loadCoverage(), loadLoss().then(loadPlots)]).then(() => resized.observe(timeline));
    },
    onEvent(event) {
      if (event.kind === 'again' || (event.kind === 'incident' && event.row.run === name)) each(0, 200, loadRun);
      if (event.kind !== 'runs') return;
      const step = event.runs.find((one) => one.run === name);
      if (!step || !run) return;
      const moved = step.newest_step !== run.newest_step;
      Object.assign(run, { newest_step: step.newest_step, connected: step.connected, finished: step.finished, last_seen: step.last_seen });
      each(1, 1000, async () => {
        if (run) drawTop(top, run);
        // A window that ends at the newest step follows new steps. A window that the user has dragged does not move.
        if (moved && (follows || !range)) await loadWindow();
        else drawAxis();
      });
      each(2, 5000, async () => {
        await loadRun();
        await loadLoss();
      });
    },
    onKey(key) {
      if (key === '[') toFinding(-1);
      else if (key === ']') toFinding(1);
      else if (key === '+' || key === '=') zoom(0.5);
      else if (key === '-' || key === '−') zoom(2);
      else if (key === '0') setRange(null);
      else return false;
      return true;
    },
    onTheme() {
      plot.resize();
      ranks.draw();
      showHeat(window_());
    },
    leave() {
      main = null;
      timers.forEach(clearTimeout);
      timers = [];
      resized.disconnect();
      list.leave();
      plot.destroy();
    },
  };
}
