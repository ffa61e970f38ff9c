// Draws the ranks of a run by host: which hosts are slow, which ranks are missing.
import type { Ranks, SeriesRow } from './api';
import { get, path } from './api';
import { h, mark } from './dom';
import { clean, count, num, whole } from './format';
import { heatScale, rgb } from './plots';

const MOST_NAMED = 5;
const SLOW = 1.1;  // times the median of the hosts
const MOST_TILES = 2048;

// One host: indices in the columns. Or missing ranks, by number: `host` is absent.
interface Block { host?: number; ranks: number[] }
interface Cell { x: number; y: number; wide: number; tall: number; host?: number; ranks: number[] }

const median = (values: number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2 : NaN;
};
const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const ranges = (list: [number, number][], all: number): string => {
  const shown = list.slice(0, 8).map(([a, b]) => (b > a ? `${a}–${b}` : String(a))).join(', ');
  const named = list.slice(0, 8).reduce((sum, [a, b]) => sum + b - a + 1, 0);
  return shown + (named < all ? ` and ${whole(all - named)} more` : '');
};

// Returns the value that is drawn: of the series, or the steps before the newest one.
export function drawn(r: Ranks): { values: (number | null)[]; unit: string } {
  if (r.value.some((v) => typeof v === 'number')) return { values: r.value.map((v) => (typeof v === 'number' ? v : null)), unit: '' };
  const newest = r.through.reduce((a, b) => Math.max(a, b), -1);
  return { values: r.through.map((one) => newest - one), unit: ' steps before the newest' };
}

// Returns the hosts whose mean is more than SLOW times the median of all hosts, the slowest first.
export function slowHosts(r: Ranks): { host: number; ratio: number }[] {
  const { values, unit } = drawn(r);
  if (unit) return [];
  const of = r.hosts.map((_, host) => values.filter((v, i): v is number => r.host[i] === host && v !== null));
  const means = of.map((list) => (list.length ? mean(list) : NaN));
  const middle = median(means.filter((v) => !Number.isNaN(v)));
  if (!(middle > 0)) return [];
  return means.map((v, host) => ({ host, ratio: v / middle })).filter((one) => one.ratio > SLOW).sort((a, b) => b.ratio - a.ratio);
}

export interface RanksCard { element: HTMLElement; load(series: SeriesRow[]): Promise<void>; draw(): void; resize(): void }

export function ranksCard(run: string, begin: string, chosen: (series: string) => void): RanksCard {
  const body = h('div', { class: 'bd stack gap12' });
  const picker = h('select', { 'aria-label': 'Series by rank' });
  const label = h('label', { class: 'small marked' }, 'Colour', picker);
  const element = h('section', { class: 'card', 'aria-label': 'Ranks by host', hidden: true }, h('div', { class: 'hd' }, h('h2', {}, 'Ranks by host'), h('span', { class: 'grow' }), label), body);
  const readout = h('div', { class: 'readout', 'aria-live': 'polite' }, '');
  let series = begin;
  let ranks: Ranks | null = null;
  let width = 0;

  async function fetch_(): Promise<void> {
    ranks = await get<Ranks>(path('runs', run, 'ranks'), { series });
    draw();
  }
  picker.addEventListener('change', () => {
    series = picker.value;
    chosen(series);
    void fetch_().catch(() => undefined);
  });

  async function load(all: SeriesRow[]): Promise<void> {
    const wide = all.filter((one) => one.ranks > 1 && one.role === 'trainer');
    series ||= wide.find((one) => one.is === 'step-seconds')?.series ?? '';
    const names = [...new Set([series, ...wide.map((one) => one.series)])].filter(Boolean).slice(0, 200);
    picker.replaceChildren(h('option', { value: '' }, 'steps before the newest'), ...names.map((one) => h('option', { value: one }, clean(one, 100))));
    picker.value = series;
    await fetch_();
  }

  function words(r: Ranks): HTMLElement[] {
    const host = (i: number): string => clean(r.hosts[i] || 'unnamed host', 60);
    const slow = slowHosts(r);
    const away = r.state.map((one, i) => (one === 'away' ? i : -1)).filter((i) => i >= 0);
    const awayHosts = [...new Set(away.map((i) => r.host[i]))];
    const line = (name: string, ...text: (string | HTMLElement)[]): HTMLElement => h('p', { class: 'small marked' }, mark(name, 's'), h('span', {}, ...text));
    const out: HTMLElement[] = [];
    if (r.missing) out.push(line('warning', h('b', {}, `${count(r.missing, 'rank')} of ${whole(r.world)} never reported: `), ranges(r.missing_ranges, r.missing)));
    if (away.length) out.push(line('warning', h('b', {}, `${count(away.length, 'rank')} on ${count(awayHosts.length, 'host')} not connected: `), awayHosts.slice(0, MOST_NAMED).map(host).join(', ') + (awayHosts.length > MOST_NAMED ? ` and ${whole(awayHosts.length - MOST_NAMED)} more` : '')));
    if (slow.length) out.push(line('warning', h('b', {}, `${count(slow.length, 'host')} above the median: `), slow.slice(0, MOST_NAMED).map((one) => `${host(one.host)} +${num(Number((100 * (one.ratio - 1)).toPrecision(2)))}\u00a0%`).join(', ') + (slow.length > MOST_NAMED ? ` and ${whole(slow.length - MOST_NAMED)} more` : '')));
    if (out.length === 0) out.push(line('ok', `All ${count(r.world || r.seen, 'rank')} on ${count(r.hosts.length, 'host')} report` + (drawn(r).unit || r.hosts.length < 2 ? '.' : ', and no host is more than 10\u00a0% above the median.')));
    if (r.left_out) out.push(line('note', `${whole(r.left_out)} more ranks are not drawn.`));
    return out;
  }

  function blocks(r: Ranks): Block[] {
    const of = new Map<number, number[]>();
    r.host.forEach((host, i) => of.set(host, [...(of.get(host) ?? []), i]));
    return [...of].map(([host, list]) => ({ host, ranks: list }));
  }
  // Missing ranks have no host: as many as a host has are one tile.
  function tiles(r: Ranks, each: number): Block[] {
    const out: Block[] = [];
    for (const [first, last] of r.missing_ranges) {
      for (let rank = first; rank <= last && out.length < MOST_TILES; rank += each) out.push({ ranks: [rank, Math.min(last, rank + each - 1)] });
    }
    return out;
  }

  // Places hosts in rows, one cell per rank, and missing ranks below.
  function layout(r: Ranks, room: number): { cells: Cell[]; wide: number; tall: number; each: number } {
    const list = blocks(r);
    const [wide, tall] = r.seen <= 64 ? [18, 20] : r.seen <= 512 ? [9, 14] : [5, 10];
    const each = Math.max(1, ...list.map((one) => one.ranks.length));
    const perRow = Math.min(each, Math.max(1, Math.floor((room - 6) / wide)));
    const [stepX, stepY] = [perRow * wide + 6, Math.ceil(each / perRow) * tall + 6];
    const across = Math.max(1, Math.floor(room / stepX));
    const cells: Cell[] = list.flatMap((block, b) => block.ranks.map((i, n) => ({
      x: (b % across) * stepX + (n % perRow) * wide, y: Math.floor(b / across) * stepY + Math.floor(n / perRow) * tall, wide: wide - 1, tall: tall - 1, host: block.host, ranks: [i] })));
    const below = Math.ceil(list.length / across) * stepY;
    const tile = 12;
    const columns = Math.max(1, Math.floor(room / tile));
    const missing = tiles(r, each);
    missing.forEach((one, n) => cells.push({ x: (n % columns) * tile, y: below + Math.floor(n / columns) * tile, wide: tile - 2, tall: tile - 2, ranks: one.ranks }));
    return { cells, wide: Math.min(room, Math.max(Math.min(list.length, across) * stepX, Math.min(missing.length, columns) * tile)), tall: below + Math.ceil(missing.length / columns) * tile, each };
  }

  function paint(canvas: HTMLCanvasElement, r: Ranks, cells: Cell[], shade: (i: number) => number | null): void {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    canvas.width = Math.max(1, canvas.width * ratio);
    canvas.height = Math.max(1, canvas.height * ratio);
    const context = canvas.getContext('2d')!;
    context.scale(ratio, ratio);
    const fill = (c: [number, number, number]): string => `rgb(${c.join(',')})`;
    const [none, error] = ['--none', '--error'].map((name) => fill(rgb(name)));
    const scaled = heatScale();
    for (const cell of cells) {
      const share = cell.host === undefined ? null : shade(cell.ranks[0]);
      if (share === null) {
        context.fillStyle = none;
        context.fillRect(cell.x + cell.wide / 2 - 1, cell.y + cell.tall / 2 - 1, 2, 2);
        continue;
      }
      context.fillStyle = fill(scaled(share));
      context.fillRect(cell.x, cell.y, cell.wide, cell.tall);
      if (r.state[cell.ranks[0]] !== 'away') continue;
      context.strokeStyle = error;
      context.strokeRect(cell.x + 1, cell.y + 1, cell.wide - 2, cell.tall - 2);
    }
  }

  // Returns the text of one cell.
  function reading(r: Ranks, cell: Cell): string {
    const [i, last] = cell.ranks;
    if (cell.host === undefined) return (last > i ? `ranks ${i}–${last}` : `rank ${i}`) + ': never reported';
    const { values, unit } = drawn(r);
    const value = values[i];
    const text = value === null ? 'no value' : unit ? whole(value) + unit : `${clean(series, 60)} ${num(Number(value.toPrecision(4)))}`;
    const state = { over: 'ended', away: 'not connected', connected: 'connected' }[r.state[i]];
    return `${clean(r.hosts[cell.host] || 'unnamed host', 60)}, rank ${r.rank[i]}: ${text}, ${r.through[i] < 0 ? 'no step complete' : `complete through step ${whole(r.through[i])}`}, ${state}`;
  }

  function draw(): void {
    const r = ranks;
    element.hidden = !r || Math.max(r.world, r.seen) < 2;
    if (!r || element.hidden) return;
    const { values, unit } = drawn(r);
    const known = values.filter((v): v is number => v !== null).sort((a, b) => a - b);
    const low = known[Math.floor(0.01 * (known.length - 1))] ?? 0;
    const high = known[Math.ceil(0.99 * (known.length - 1))] ?? 0;
    const { cells, wide, tall, each } = layout(r, width || body.clientWidth - 32 || 800);
    const canvas = h('canvas', { role: 'img', tabindex: '0', width: wide, height: tall, 'aria-label': `${count(r.seen, 'rank')} on ${count(r.hosts.length, 'host')}, ${whole(r.missing)} missing; arrow keys read a rank` });
    canvas.style.width = wide + 'px';
    canvas.style.height = tall + 'px';
    paint(canvas, r, cells, (i) => {
      const value = values[i];
      return value === null ? null : high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0.25;
    });
    let at = 0;
    const read = (next: number): void => {
      at = Math.max(0, Math.min(cells.length - 1, next));
      if (cells.length) readout.textContent = reading(r, cells[at]);
    };
    canvas.addEventListener('mousemove', (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      const found = cells.findIndex((one) => x >= one.x && x <= one.x + one.wide && y >= one.y && y <= one.y + one.tall);
      if (found >= 0) read(found);
    });
    canvas.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -each, ArrowDown: each }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      read(at + by);
    });
    const short = (v: number): string => (unit ? whole(v) : num(Number(v.toPrecision(3))));
    const ends = short(low) === short(high) ? [short(low) + unit] : [short(low), h('span', { class: 'ramp' }, ...[0, 1, 2, 3, 4].map(() => h('i', {}))), short(high) + unit];
    body.replaceChildren(...words(r), h('div', { class: 'rankmap' }, canvas), readout, h('span', { class: 'legend flat' }, h('span', {}, ...ends), h('span', { class: 'muted' }, 'one block per host, one cell per rank' + (r.missing ? '; dots: never reported' : ''))));
  }

  return {
    element,
    load,
    draw,
    resize() {
      const wide = body.clientWidth - 32;
      if (wide > 0 && wide !== width) {
        width = wide;
        draw();
      }
    },
  };
}
