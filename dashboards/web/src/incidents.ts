// Shows all incidents, by state.
import type { IncidentRow } from './api';
import { get, isNew } from './api';
import { h, announce } from './dom';
import { clean, count, whole } from './format';
import { incidentRow, type View } from './view';

interface Answer {
  now: string;
  counts: { open: number; acknowledged: number; silenced: number; suppressed: number; resolved: number };
  left_out: number;
  incidents: IncidentRow[];
}

export function incidentsView(params: URLSearchParams): View {
  const state = params.get('state') ?? 'open';
  let main: HTMLElement | null = null;
  let timer = 0;

  const tab = (name: string, label: string, n: number): HTMLElement =>
    h('button', { 'aria-pressed': String(name === state), onclick: () => { location.hash = name === 'open' ? '#/incidents' : '#/incidents?state=' + name; } }, `${label} ${whole(n)}`);

  async function load(): Promise<void> {
    const data = await get<Answer>('incidents', { state });
    if (!main) return;
    const focus = (document.activeElement as HTMLElement | null)?.dataset.key;
    const { open, acknowledged, silenced, suppressed, resolved } = data.counts;
    const levels = (['error', 'warning', 'note'] as const).map((level) => [level, data.incidents.filter((one) => one.level === level).length] as const)
      .filter(([, n]) => n > 0).map(([level, n]) => count(n, level)).join(', ');
    main.replaceChildren(
      h('div', { class: 'sumline' }, h('h1', {}, 'Incidents'), h('span', { class: 'sub' }, levels ? `${state}: ${levels}` : ''), h('span', { class: 'spacer' }),
        h('span', { class: 'seg', role: 'group', 'aria-label': 'State' }, tab('open', 'Open', open), tab('acknowledged', 'Acknowledged', acknowledged), tab('silenced', 'Silenced', silenced), tab('resolved', 'Resolved', resolved),
          suppressed || state === 'suppressed' ? tab('suppressed', 'Suppressed', suppressed) : null, tab('all', 'All', open + acknowledged + silenced + suppressed + resolved))),
      data.incidents.length ? h('section', { class: 'card', 'aria-label': 'Incidents' }, ...data.incidents.map((row) => incidentRow(row, true)))
        : h('section', { class: 'card' }, h('div', { class: 'bd' }, h('p', { class: 'lede' }, state === 'open' ? 'Nothing is open.' : 'No incident is in this state.'),
          h('p', { class: 'small muted mt4' }, state === 'open' ? 'This does not prove health: some runs may not be judged. See the list of runs.' : state === 'resolved' ? 'An incident is resolved when its cause is over, or when it was not found again for many steps.' : 'An incident appears here when a person acknowledges or silences it.'))),
      ...(data.left_out ? [h('p', { class: 'small muted mt8' }, `${whole(data.left_out)} more are not listed here; use plumb query incidents`)] : []));
    if (focus) main.querySelector<HTMLElement>(`[data-row][data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  }

  return {
    title: 'Incidents',
    nav: 'incidents',
    async show(to) {
      main = to;
      await load();
    },
    onEvent(event) {
      if (event.kind === 'runs') return;
      if (event.kind === 'incident' && isNew(event.row)) announce(`New ${event.row.level}: ${clean(event.row.title, 120)}`);
      if (timer) return;
      timer = window.setTimeout(() => {
        timer = 0;
        load().catch(() => undefined);
      }, 150);
    },
    leave() {
      clearTimeout(timer);
      main = null;
    },
  };
}
