// Lists the series of a run by group, each with its curve. A curve is fetched when it becomes visible.
import type { IncidentRow, Points, SeriesList, SeriesRow } from './api';
import { get, path } from './api';
import { h, mark, tag } from './dom';
import { clean, count, num, whole } from './format';
import { lastOf, rangeOf, spark } from './plots';
import { isCalm } from './view';

const brief = (v: number): string => num(Number(v.toPrecision(4)));

export interface SeriesCard {
  element: HTMLElement;
  load(): Promise<SeriesList>;
  names(): string[];  // the listed names
  leave(): void;
}

export function seriesCard(name: string, begin: string, of: { open(): IncidentRow[]; choose(one: SeriesRow): void; filtered(filter: string): void }): SeriesCard {
  let filter = begin;
  let series: SeriesList | null = null;
  const seriesBox = h('div', {});
  const sparks = new Map<string, Points>();
  const opened = new Set<string>();
  const more = new Map<string, SeriesRow[]>();

  async function load(): Promise<SeriesList> {
    series = await get<SeriesList>(path('runs', name, 'series'), { filter });
    drawSeries();
    return series;
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
    const found = of.open().find((i) => (i.where === one.series || i.where.startsWith(one.series + ',')) && !isCalm(i));
    const show = (points: Points): void => {
      box.replaceChildren(spark(Math.max(80, box.clientWidth || 150), points, found ? { level: found.level, step: found.step_first } : null, clean(one.series, 60)));
      nowBox.textContent = num(lastOf(points));
      const extent = rangeOf(points);
      rangeText.textContent = extent ? extent.low === extent.high ? brief(extent.low) : `${brief(extent.low)} – ${brief(extent.high)}` : '';
    };
    const known = sparks.get(one.series);
    if (known) requestAnimationFrame(() => show(known));
    const row = h('div', { class: 'srow' }, h('button', { class: 'nm linkish', title: clean(one.series, 300), onclick: () => of.choose(one) }, clean(one.series, 120)), box, nowBox, rangeText, h('span', {}, found ? tag(found.level) : null));
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
          } }, `${whole(group.count - listed.length)} more`) : h('span', { class: 'small muted' }, `${whole(group.count - listed.length)} more: use the filter`)));
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
    }), list.groups.length === 0 ? h('p', { class: 'bd sub' }, filter ? 'No series name matches.' : 'No series yet.') : '');
    if (list.more_groups) seriesBox.append(h('p', { class: 'bd small muted' }, `${whole(list.more_groups)} more groups: use the filter`));
    seriesCount.textContent = filter ? `${whole(list.matching)} of ${whole(list.count)}` : `${whole(list.count)} in ${count(list.groups.length + list.more_groups, 'group')}`;
  }
  const seriesCount = h('span', { class: 'muted small' });
  let filterTimer = 0;
  const filterBox = h('input', { type: 'text', class: 'filter', placeholder: 'Filter: name or layer', 'aria-label': 'Filter series', value: filter, oninput: () => {
    clearTimeout(filterTimer);
    filterTimer = window.setTimeout(() => {
      filter = filterBox.value.trim();
      more.clear();
      of.filtered(filter);
      void load();
    }, 200);
  } });

  return {
    element: h('section', { class: 'card', 'aria-label': 'Series' }, h('div', { class: 'hd' }, h('h2', {}, 'Series'), seriesCount, h('span', { class: 'grow' }), filterBox), seriesBox),
    load,
    names: () => series?.groups.flatMap((group) => [...group.series, ...(more.get(group.group) ?? [])].map((one) => one.series)) ?? [],
    leave: () => watch.disconnect(),
  };
}
