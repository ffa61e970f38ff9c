// One run: the timeline with everything on one step axis, its series, what was looked at and what was lost.
import type { Coverage, IncidentRow, Points, RunPage, SeriesList, SeriesRow } from './api';
import { get, getBytes, path } from './api';
import { card, copy, h, mark, markAt, s, tag, time } from './dom';
import { clean, count, num, sentence, steps, whole, at, ms } from './format';
import { BAD, GUTTER, NO_EVIDENCE, RIGHT, hatches, heatMap, lastOf, line, parseCells, picture, plumb, rangeOf, scale, seriesPlot, spark, ticks, words, type Cells } from './plots';
import { alarm, incidentRow, isCalm, runAddress, type View } from './view';
import { rate, runNote, waste } from './runs';

const brief = (v: number): string => num(Number(v.toPrecision(4)));

interface Range { from: number; to: number }

// At most so many marks on a lane: a cluster shows its worst shape and its count.
function clusters(rows: IncidentRow[], X: (step: number) => number, apart: number): { row: IncidentRow; x: number; n: number }[] {
  const rank: Record<string, number> = { error: 0, warning: 1, note: 2 };
  const out: { row: IncidentRow; x: number; n: number }[] = [];
  for (const row of [...rows].sort((a, b) => a.step_first - b.step_first)) {
    const x = X(row.step_first);
    const last = out[out.length - 1];
    if (last && x - last.x < apart) {
      last.n++;
      if (rank[row.level] < rank[last.row.level]) last.row = row;
    } else {
      out.push({ row, x, n: 1 });
    }
  }
  return out;
}

export function runView(name: string, params: URLSearchParams): View {
  let run: RunPage | null = null;
  let coverage: Coverage | null = null;
  let main: HTMLElement | null = null;
  let loss: Points | null = null;       // of the whole run
  let series: SeriesList | null = null;
  let timers: number[] = [];
  let cells: Cells | null = null;
  let busy = false;
  let again = false;
  const sparks = new Map<string, Points>();
  const opened = new Set<string>();
  const more = new Map<string, SeriesRow[]>();

  // What is shown stands in the address.
  let chosen = params.get('series') ?? '';
  let heat = params.get('heat') ?? '';
  let filter = params.get('filter') ?? '';
  let range: Range | null = params.has('from') ? { from: Number(params.get('from')), to: Number(params.get('to')) } : null;
  let follows = params.get('last') === '500';

  const readout = h('div', { class: 'readout', 'aria-live': 'off' }, '');
  const lanes = h('div', { class: 'plot' });
  const mini = h('div', { class: 'plot' });
  const heatBox = h('div', {});
  const seriesBox = h('div', {});
  const top = h('div', {});
  const rail = h('aside', { class: 'stack', 'aria-label': 'Incidents and evidence' });
  const plotTitle = h('div', { class: 'subhead' });
  const heatTitle = h('div', { class: 'subhead' });
  const rangeBar = h('span', { class: 'seg', role: 'group', 'aria-label': 'Range' });
  const plot = seriesPlot('the series', 190, (from, to) => setRange({ from, to }), (step) => showReadout(step));

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
    if (range && !follows) {
      set.set('from', String(range.from));
      set.set('to', String(range.to));
    }
    if (follows) set.set('last', '500');
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

  function drawMini(): void {
    const width = Math.floor(mini.clientWidth);
    if (!width || !run) return;
    const all = bounds();
    const w = window_();
    const X = scale(all.from, all.to, GUTTER, width - RIGHT);
    const extent = loss && rangeOf(loss);
    const parts: (SVGElement | SVGElement[] | null)[] = [words(GUTTER - 10, 24, 'whole run', 't3', 'end'), s('rect', { x: GUTTER, y: 2, width: width - RIGHT - GUTTER, height: 36, rx: 3, fill: 'var(--sunken)' })];
    if (loss && extent) {
      const Y = scale(extent.low, extent.high, 34, 6);
      let d = '';
      loss.step.forEach((step, i) => {
        const high = loss!.max?.[i] ?? loss!.mean?.[i];
        if (typeof high === 'number') d += (d ? 'L' : 'M') + X(step).toFixed(1) + ' ' + Y(high).toFixed(1);
      });
      parts.push(s('path', { d, fill: 'none', stroke: 'var(--ink-3)', 'stroke-width': 1.2 }));
      if (loss.bad?.length) {
        const { defs, bad } = hatches();
        const from = X(loss.step[loss.bad[0]]);
        parts.push(defs, s('rect', { x: from, y: 28, width: Math.max(2, width - RIGHT - from), height: 8, fill: bad }));
      }
    }
    for (const one of clusters(open(), X, 6)) parts.push(line(one.x, 4, one.x, 36, 'axis', { stroke: `var(--${one.row.level === 'warning' ? 'warn-fill' : one.row.level})`, 'stroke-width': 1.5 }));
    const x = X(w.from);
    const wide = Math.max(6, X(w.to) - x);
    parts.push(s('rect', { x, y: 2, width: wide, height: 36, fill: 'var(--s1)', opacity: 0.14 }), s('rect', { x, y: 2, width: wide, height: 36, fill: 'none', stroke: 'var(--s1)', 'stroke-width': 1.5 }),
      words(GUTTER, 54, whole(all.from), 't3'), words(width - RIGHT, 54, whole(all.to), 't3', 'end'), width > 600 ? words((GUTTER + width - RIGHT) / 2, 54, range || follows ? 'the frame is shown below' : 'all of it is shown below', 't3', 'middle') : null);
    mini.replaceChildren(picture(width, 58, `The whole run, steps ${all.from} to ${all.to}; shown are ${w.from} to ${w.to}`, ...parts));
  }

  function drawLanes(): void {
    const width = Math.floor(lanes.clientWidth);
    if (!width || !run) return;
    const w = window_();
    const X = scale(w.from, w.to, GUTTER, width - RIGHT);
    const inside = (x: number): number => Math.min(width - RIGHT, Math.max(GUTTER, x));
    const { defs, none } = hatches();
    const parts: (SVGElement | SVGElement[] | null)[] = [defs, words(GUTTER - 10, 26, 'findings', 't3', 'end'), line(GUTTER, 22, width - RIGHT, 22, 'gr')];
    const visible = open().filter((one) => one.step_last >= w.from && one.step_first <= w.to);
    for (const row of [...visible].reverse()) {
      const colour = row.level === 'warning' ? 'warn-fill' : row.level;
      parts.push(s('line', { x1: inside(X(row.step_first)), y1: 22, x2: inside(X(row.step_last)), y2: 22, stroke: `var(--${colour})`, 'stroke-width': row.level === 'error' ? 4 : 2 }));
    }
    const groups = clusters(visible.filter((one) => one.step_first >= w.from), X, 22);
    groups.forEach((one, i) => {
      parts.push(markAt(isCalm(one.row) ? 'ack' : one.row.level, one.x, 22, 18));
      const room = (groups[i + 1]?.x ?? width - RIGHT) - one.x - 16;
      const label = one.n > 1 ? `${one.n} findings` : sentence(clean(one.row.title_short, 60));
      const fits = Math.floor(room / 6.6);
      if (fits >= 6) parts.push(words(one.x + 13, 13, label.length > fits ? label.slice(0, fits - 1) + '…' : label, one.row.level === 'error' ? 'b e' : one.row.level === 'warning' ? 'w' : 't3'));
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
      // One line hangs from the finding through all that stands below it.
      const x = X(worst.step_first);
      parts.push(plumb(x, 32, 62));
    }
    lanes.replaceChildren(picture(width, run.attempts.length > 1 ? 76 : 72, `${visible.length} findings and the evidence on the step axis`, ...parts));
  }

  function showReadout(step: number | null): void {
    if (step === null || !shown) {
      readout.textContent = '';
      return;
    }
    const i = shown.step.indexOf(step);
    const value = shown.bad?.includes(i) ? 'not finite' : num(shown.mean?.[i] ?? null);
    const low = shown.min?.[i];
    const high = shown.max?.[i];
    const spread = typeof low === 'number' && typeof high === 'number' && low !== high ? `, ${num(low)} to ${num(high)}` : '';
    const to = step + (shown.bucket_steps ?? 1) - 1;
    readout.textContent = `${steps(step, to)}: ${clean(shown.series ?? chosen, 60)} ${value}${spread}`;
  }

  // ---- loading ----

  let shown: Points | null = null;
  const pickable = (): string[] => {
    const names = series?.groups.flatMap((group) => [...group.series, ...(more.get(group.group) ?? [])].map((one) => one.series)) ?? [];
    return [...new Set([chosen, heat, ...names].filter(Boolean))].slice(0, 400);
  };
  function picker(value: string, label: string, choose: (name: string) => void): HTMLElement {
    const select = h('select', { 'aria-label': label }, ...pickable().map((one) => h('option', { value: one }, clean(one, 100))));
    select.value = value;
    select.addEventListener('change', () => choose(select.value));
    return select;
  }

  async function loadWindow(): Promise<void> {
    drawMini();
    drawLanes();
    if (!chosen) {
      plotTitle.replaceChildren(h('h3', {}, 'Series'), h('span', { class: 'small muted' }, 'This run has told no series yet: run.scalar("loss", …)'));
      plot.element.hidden = true;
      return;
    }
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const w = window_();
      const px = Math.max(100, Math.min(2048, Math.floor((plot.element.clientWidth || 800) - GUTTER - RIGHT)));
      const points = await get<Points>(path('runs', name, 'points'), { series: chosen, from: w.from, to: w.to, px });
      shown = points;
      plot.element.hidden = false;
      plotTitle.replaceChildren(h('h3', {}, 'Series'), picker(chosen, 'Series that is drawn', (one) => {
        chosen = one;
        address();
        void loadWindow();
      }), h('span', { class: 'small muted' }, (points.bucket_steps ?? 1) > 1 ? `mean, smallest and largest of ${whole(points.bucket_steps!)} steps and all ranks` : 'each step, mean of all ranks'));
      const worst = run?.worst;
      plot.update(points, worst ? [worst, ...open().filter((one) => one.fingerprint !== worst.fingerprint)] : open());
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
    const width = Math.max(60, Math.min(400, Math.floor(((plot.element.clientWidth || 800) - GUTTER - RIGHT) / 3)));
    const body = await getBytes(path('runs', name, 'cells'), { series: heat, from: w.from, to: w.to, columns: width, rows: 256, alone: alone()[0] });
    cells = parseCells(body);
    drawHeat(w);
  }
  // Ranks that the worst finding names keep a row of their own.
  function alone(): number[] {
    const where = run?.worst?.where.match(/rank (\d+)/);
    return where ? [Number(where[1])] : [];
  }

  function drawHeat(w: Range): void {
    if (!cells) return;
    const c = cells;
    const canvas = heatMap(c, w.from, w.to);
    const rows = c.first_rank.length;
    const label = (row: number): string => (c.last_rank[row] > c.first_rank[row] ? `${c.first_rank[row]}–${c.last_rank[row]}` : String(c.first_rank[row]));
    const every = Math.max(1, Math.ceil(rows / 8));
    const labels = h('div', { class: 'labels', 'aria-hidden': 'true' });
    const culprit = alone()[0];
    for (let row = 0; row < rows; row++) {
      const bad = culprit !== undefined && c.first_rank[row] <= culprit && c.last_rank[row] >= culprit && rows > 1;
      if (row % every !== 0 && !bad) continue;
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
      readout.textContent = `${steps(c.step[column], c.step[column] + c.bucket_steps - 1)}, rank ${label(row)}: ${clean(heat, 60)} ${value}`;
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
    heatBox.replaceChildren(h('div', { class: 'heatwrap' }, labels, canvas, h('span', {})), steps_);
    const width = Math.floor(steps_.clientWidth);
    if (width) {
      const X = scale(w.from, w.to, GUTTER, width - RIGHT);
      const parts: (SVGElement | SVGElement[])[] = [words(GUTTER - 10, 20, 'step', 't3', 'end'), line(GUTTER, 2, width - RIGHT, 2)];
      for (const t of ticks(w.from, w.to, width > 600 ? 8 : 3)) {
        if (!Number.isInteger(t)) continue;
        parts.push(line(X(t), 2, X(t), 7), words(X(t), 20, whole(t), 't3', X(t) > width - 40 ? 'end' : X(t) < GUTTER + 20 ? 'start' : 'middle'));
      }
      const onset = run?.worst?.step_first;
      if (onset !== undefined && onset >= w.from && onset <= w.to) {
        const x = Math.min(width - 36, Math.max(GUTTER + 26, X(onset)));
        parts.push(plumb(X(onset), 0, 4), s('rect', { x: x - 30, y: 11, width: 60, height: 17, rx: 3, fill: 'var(--ink)' }), s('text', { x, y: 24, 'text-anchor': 'middle', class: 'onink b' }, whole(onset)));
      }
      steps_.replaceChildren(picture(width, 32, 'The step axis', ...parts));
    }
    const { defs, bad, none } = hatches();
    const square = (fill: string, stroke = ''): SVGElement => s('svg', { viewBox: '0 0 16 14', 'aria-hidden': 'true' }, s('rect', { width: 16, height: 14, fill, stroke }));
    heatTitle.replaceChildren(h('h3', {}, 'Ranks × steps'), picker(heat, 'Series of the heat map', (one) => {
      heat = one;
      address();
      void loadWindow();
    }), h('span', { class: 'spacer' }), h('span', { class: 'legend flat' }, h('span', {}, num(Number(Number(c.low).toPrecision(3))), h('span', { class: 'ramp' }, ...[0, 1, 2, 3, 4].map(() => h('i', {}))), num(Number(Number(c.high).toPrecision(3)))),
      h('span', {}, s('svg', { viewBox: '0 0 16 14', 'aria-hidden': 'true' }, defs, s('rect', { width: 16, height: 14, fill: bad })), 'not finite'), h('span', {}, square(none, 'var(--line)'), 'no evidence')));
  }

  // ---- series by group ----

  async function loadSeries(): Promise<void> {
    series = await get<SeriesList>(path('runs', name, 'series'), { filter });
    drawSeries();
  }
  const queue: (() => Promise<void>)[] = [];
  let running = 0;
  function next(): void {
    while (running < 4 && queue.length) {
      running++;
      void queue.shift()!().catch(() => undefined).finally(() => {
        running--;
        next();
      });
    }
  }
  function seriesRow(one: SeriesRow): HTMLElement {
    const box = h('span', { class: 'plot' });
    const nowBox = h('span', { class: 'num' });
    const rangeText = h('span', { class: 'sub' });
    const found = open().find((i) => (i.where === one.series || i.where.startsWith(one.series + ',')) && !isCalm(i));
    const show = (points: Points): void => {
      box.replaceChildren(spark(Math.max(80, box.clientWidth || 150), points, found ? { level: found.level, step: found.step_first } : null, clean(one.series, 60)));
      nowBox.textContent = num(lastOf(points));
      const extent = rangeOf(points);
      rangeText.textContent = extent ? extent.low === extent.high ? brief(extent.low) : `${brief(extent.low)} – ${brief(extent.high)}` : '';
    };
    const known = sparks.get(one.series);
    if (known) requestAnimationFrame(() => show(known));
    const row = h('div', { class: 'srow' }, h('button', { class: 'nm linkish', title: clean(one.series, 300), onclick: () => {
      chosen = one.series;
      heat = one.ranks > 1 ? one.series : heat;
      address();
      void loadWindow();
      plotTitle.scrollIntoView({ block: 'center' });
    } }, clean(one.series, 120)), box, nowBox, rangeText, h('span', {}, found ? tag(found.level) : null));
    if (!known) {
      watch.observe(row);
      pending.set(row, () => {
        queue.push(async () => {
          const points = await get<Points>(path('runs', name, 'points'), { series: one.series, px: 120, role: one.role });
          sparks.set(one.series, points);
          show(points);
        });
        next();
      });
    }
    return row;
  }
  const pending = new Map<Element, () => void>();
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watch.unobserve(entry.target);
      pending.get(entry.target)?.();
      pending.delete(entry.target);
    }
  }, { rootMargin: '200px' });

  function drawSeries(): void {
    if (!series) return;
    const list = series;
    watch.disconnect();
    pending.clear();
    if (opened.size === 0) list.groups.slice(0, 2).forEach((group) => opened.add(group.group));
    const header = (): HTMLElement => h('div', { class: 'srow hd', 'aria-hidden': 'true' }, h('span', {}, 'Name'), h('span', {}, 'All steps'), h('span', { class: 'num' }, 'Now'), h('span', {}, 'Range'), h('span', {}, 'Finding'));
    seriesBox.replaceChildren(...list.groups.map((group) => {
      const listed = more.get(group.group) ?? group.series;
      const body = h('div', {});
      const fill = (): void => {
        if (body.childElementCount) return;
        body.append(header(), ...listed.map(seriesRow));
        if (listed.length < group.count) {
          body.append(h('div', { class: 'srow' }, listed.length < 500 ? h('button', { class: 'small quiet', onclick: async () => {
            const whole_ = await get<SeriesList>(path('runs', name, 'series'), { filter, group: group.group });
            const found = whole_.groups.find((one) => one.group === group.group);
            if (!found) return;
            more.set(group.group, found.series);
            drawSeries();
          } }, `${whole(group.count - listed.length)} more`) : h('span', { class: 'small muted' }, `${whole(group.count - listed.length)} more: filter for them`)));
        }
      };
      const details = h('details', { class: 'grp' }, h('summary', {}, h('span', { class: 'tri' }, mark('tri', 's')), h('b', { class: 'strong' }, clean(group.group, 80)), h('span', { class: 'muted small' }, `${whole(group.count)} series`)), body);
      details.addEventListener('toggle', () => {
        if (details.open) {
          opened.add(group.group);
          fill();
        } else {
          opened.delete(group.group);
        }
      });
      if (opened.has(group.group) || filter) {
        details.open = true;
        fill();
      }
      return details;
    }), list.groups.length === 0 ? h('p', { class: 'bd sub' }, filter ? 'No series has this in its name.' : 'No series yet.') : '');
    if (list.more_groups) seriesBox.append(h('p', { class: 'bd small muted' }, `${whole(list.more_groups)} more groups: filter for them`));
    seriesCount.textContent = filter ? `${whole(list.matching)} of ${whole(list.count)}` : `${whole(list.count)} in ${count(list.groups.length + list.more_groups, 'group')}`;
  }
  const seriesCount = h('span', { class: 'muted small' });
  let filterTimer = 0;
  const filterBox = h('input', { type: 'text', class: 'filter', placeholder: 'Filter: name or layer', 'aria-label': 'Filter series', value: filter, oninput: () => {
    clearTimeout(filterTimer);
    filterTimer = window.setTimeout(() => {
      filter = filterBox.value.trim();
      more.clear();
      address();
      void loadSeries();
    }, 200);
  } });

  // ---- the head and the rail ----

  function drawTop(): void {
    if (!run) return;
    const r = run;
    const worst = r.worst;
    top.replaceChildren(
      h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Runs'), h('span', {}, '/'), h('span', { class: 'clip' }, clean(r.run, 120)), h('span', { class: 'grow' }), h('button', { class: 'hide-s', onclick: () => void copy(location.href) }, 'Copy link')),
      h('div', { class: 'sumline runhead' }, h('h1', { title: clean(r.run, 2000) }, clean(r.run, 200)), tag(r.state, r.word), h('span', { class: 'sub' }, 'step ', h('b', {}, whole(r.newest_step)), ', ', time(r.last_seen)),
        rate(r) ? h('span', { class: 'sub' }, rate(r)) : null, h('span', { class: 'sub' }, count(r.world, 'rank')), h('span', { class: 'sub hide-s', title: at(ms(r.first_seen)) }, `attempt\u00a0${whole(r.attempt)}, first seen `, time(r.first_seen))),
      ...(r.quarantined ? [h('div', { class: 'banner err' }, mark('error'), h('div', { class: 'grow' }, h('b', {}, 'This run is set aside: it could not be judged. '), clean(r.quarantined, 400), h('div', { class: 'small sub' }, 'What it sends is kept. plumb runs --retry judges it again.')))] : []),
      ...(worst && !isCalm(worst) ? [alarm(worst, { run: r.run, runNote: runNote(r), waste: waste(r) }, { heading: 'h2', link: true })] : []));
  }

  const bar = (label: string, words_: string, value: number, max: number): HTMLElement =>
    h('div', {}, h('div', { class: 'between small' }, h('span', {}, label), h('span', { class: 'sub nowrap' }, words_)), h('progress', { value, max: Math.max(max, 1), 'aria-label': label }));

  function drawRail(): void {
    if (!run) return;
    const r = run;
    const incidents = open();
    const parts: HTMLElement[] = [h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Open incidents'), h('span', { class: 'muted small' }, whole(incidents.length))),
      ...(incidents.length ? incidents.slice(0, 20).map((row) => incidentRow(row, false)) : [h('p', { class: 'bd small muted' }, r.judged > r.inconclusive ? 'None: every verdict passed or says what it lacks.' : 'None, and nothing was judged yet.')]),
      incidents.length > 20 ? h('p', { class: 'bd small muted' }, `and ${whole(incidents.length - 20)} more`) : '')];
    if (coverage) {
      const c = coverage;
      const total = c.evidence + c.lost;
      const reasons = new Map<string, number>();
      for (const one of c.reasons) {
        const id = one.reason.split(':')[0];
        reasons.set(id, (reasons.get(id) ?? 0) + one.sites);
      }
      const probes = c.reasons.filter((one) => one.rule === 'meta/probe-coverage').slice(0, 3);
      parts.push(card('Coverage', null, h('div', { class: 'bd stack gap12' },
        bar('Verdicts reached', `${whole(c.judged - c.inconclusive)} of ${whole(c.judged)}`, c.judged - c.inconclusive, c.judged),
        bar('Evidence kept', `${whole(c.evidence)} of ${whole(total)}`, c.evidence, total),
        bar('Ranks that report', `${whole(r.seen)} of ${whole(r.world)}`, r.seen, r.world),
        ...probes.map((one) => h('p', { class: 'small sub' }, clean(one.reason, 200))),
        reasons.size ? h('p', { class: 'small sub' }, `${whole(c.inconclusive)} inconclusive: `, h('span', { class: 'muted' }, [...reasons].slice(0, 5).map(([id, n]) => `${clean(id, 40)} (${count(n, 'site')})`).join(', '))) : null,
        h('details', {}, h('summary', {}, h('span', { class: 'tri' }, mark('tri', 's')), h('span', { class: 'small sub' }, `By rule: ${count(c.rules.length, 'rule')} spoke`)), h('table', {}, h('thead', {}, h('tr', {}, ...['Rule', 'Passed', 'Found', 'Open'].map((t, i) => h('th', { class: i ? 'num' : '' }, t === 'Open' ? 'Could not tell' : t)))),
          h('tbody', {}, ...c.rules.map((one) => h('tr', {}, h('td', { class: 'small' }, clean(one.rule, 60)), h('td', { class: 'num' }, whole(one.pass)), h('td', { class: 'num' }, whole(one.finding)), h('td', { class: 'num' }, whole(one.inconclusive))))))))));
      const losses = [...Object.entries(c.lost_by_cause).map(([cause, n]) => [cause, n, 'lost'] as const), ...Object.entries(c.late_by_cause).map(([cause, n]) => [cause, n, 'late'] as const)];
      parts.push(card('Data loss', null, h('div', { class: 'bd' }, c.lost + c.late === 0 ? h('div', { class: 'tag ok' }, mark('ok', 's'), 'Nothing was dropped or late') : [
        h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'Cause'), h('th', { class: 'num' }, 'Items'))), h('tbody', {}, ...losses.map(([cause, n, what]) => h('tr', {}, h('td', {}, `${clean(cause, 60)} `, h('span', { class: 'muted small' }, what)), h('td', { class: 'num' }, whole(n)))))),
        ...c.gaps.slice(0, 6).map((gap) => h('p', { class: 'small sub mt4' }, `${steps(gap.step_first, gap.step_last)}: `, h('span', { class: 'muted' }, clean(gap.reason, 200)))),
        h('p', { class: 'small sub mt8' }, `${num(Number(((100 * c.lost) / Math.max(1, total)).toPrecision(2)))}\u00a0% of the run is lost. With a spool an agent loses nothing while the server is away.`)])));
    }
    const states = Object.entries(r.liveness);
    parts.push(card('Processes', null, h('div', { class: 'bd small' }, states.length ? states.map(([state, n]) => h('div', { class: 'between' }, h('span', { class: 'tag ' + (state === 'running' ? 'ok' : 'none') }, mark(state === 'running' ? 'ok' : state === 'late' ? 'note' : 'warning', 's'), state), h('span', {}, whole(n))))
      : h('div', { class: 'tag none' }, mark('done', 's'), r.over ? 'All have ended by themselves' : 'None is connected'))));
    rail.replaceChildren(...parts);
  }

  function drawAll(): void {
    drawTop();
    drawRangeBar();
    drawRail();
    drawMini();
    drawLanes();
  }

  async function loadRun(): Promise<void> {
    [run, coverage] = await Promise.all([get<RunPage>(path('runs', name)), get<Coverage>(path('runs', name, 'coverage'))]);
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
    drawMini();
    drawLanes();
    plot.resize();
    drawHeat(window_());
  });

  return {
    get title() {
      return clean(name, 60);
    },
    nav: 'runs',
    async show(to) {
      main = to;
      [run, loss] = await Promise.all([get<RunPage>(path('runs', name)), get<Points>(path('runs', name, 'spark')).then((p) => (p.step ? p : null))]);
      if (!main) return;
      const timeline = h('section', { class: 'card', 'aria-label': 'Timeline' },
        h('div', { class: 'hd' }, h('h2', {}, 'Timeline'), h('span', { class: 'muted small hide-s' }, 'drag to choose steps, [ and ] go from finding to finding'), h('span', { class: 'grow' }), rangeBar),
        h('div', { class: 'plotpad' }, mini, lanes, plotTitle, plot.element, readout, heatTitle, heatBox));
      const list = h('section', { class: 'card', 'aria-label': 'Series' }, h('div', { class: 'hd' }, h('h2', {}, 'Series'), seriesCount, h('span', { class: 'grow' }), filterBox), seriesBox);
      main.replaceChildren(top, h('div', { class: 'cols' }, h('div', { class: 'stack' }, timeline, list), rail));
      drawAll();
      coverage = await get<Coverage>(path('runs', name, 'coverage'));
      drawRail();
      series = await get<SeriesList>(path('runs', name, 'series'), { filter });
      const all = series.groups.flatMap((group) => group.series);
      chosen ||= loss?.series ?? all[0]?.series ?? '';
      if (!heat) {
        const wide = all.filter((one) => one.ranks > 1);
        heat = (wide.find((one) => one.series === chosen) ?? wide[0])?.series ?? '';
      }
      drawSeries();
      await loadWindow();
      resized.observe(timeline);
    },
    onEvent(event) {
      if (event.kind === 'again' || (event.kind === 'incident' && event.row.run === name)) each(0, 200, loadRun);
      if (event.kind !== 'runs') return;
      const step = event.runs.find((one) => one.run === name);
      if (!step || !run) return;
      const moved = step.newest_step !== run.newest_step;
      Object.assign(run, { newest_step: step.newest_step, connected: step.connected, finished: step.finished, last_seen: step.last_seen });
      each(1, 1000, async () => {
        drawTop();
        // A window that ends at the newest step follows; one that was dragged stays.
        if (moved && (follows || !range)) await loadWindow();
        else drawMini();
      });
      each(2, 5000, async () => {
        await loadRun();
        loss = await get<Points>(path('runs', name, 'spark'));
        if (!loss.step) loss = null;
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
      drawHeat(window_());
    },
    leave() {
      main = null;
      timers.forEach(clearTimeout);
      timers = [];
      resized.disconnect();
      watch.disconnect();
      plot.destroy();
    },
  };
}
