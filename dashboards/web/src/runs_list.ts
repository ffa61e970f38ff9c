// Chooses the runs of the list and their order from the address, and draws the controls that change them.
import type { RunRow } from './api';
import { h } from './dom';
import { clean } from './format';

export interface Chosen { text: string; state: string; owner: string; sort: string; most: number }

const PAGE = 100;
const STATES: [string, string][] = [['', 'all states'], ['error', 'errors'], ['warning', 'warnings'], ['none', 'not judged'], ['ok', 'healthy'], ['done', 'finished'], ['archived', 'archived'], ['deleted', 'deleted']];
const SORTS: [string, string][] = [['', 'severity'], ['name', 'name'], ['seen', 'last seen'], ['started', 'first seen'], ['step', 'newest step']];

export const chosenOf = (params: URLSearchParams): Chosen => ({
  text: params.get('q') ?? '', owner: params.get('owner') ?? '', most: PAGE,
  state: STATES.find(([value]) => value === params.get('state'))?.[0] ?? '', sort: SORTS.find(([value]) => value === params.get('sort'))?.[0] ?? '',
});

export function chosenAddress(of: Chosen): string {
  const set = new URLSearchParams();
  if (of.text) set.set('q', of.text);
  if (of.state) set.set('state', of.state);
  if (of.owner) set.set('owner', of.owner);
  if (of.sort) set.set('sort', of.sort);
  const text = set.toString();
  return '#/' + (text ? '?' + text : '');
}

export const isQuiet = (run: RunRow): boolean => !run.worst && (run.state === 'ok' || run.state === 'done');

// Archived and deleted runs are listed only if their state is chosen.
function inState(run: RunRow, state: string): boolean {
  const { archived, deleted } = run.labels;
  if (state === 'deleted') return deleted;
  if (state === 'archived') return archived && !deleted;
  return !archived && !deleted && (!state || run.state === state);
}

// Returns the runs of the filter, in its order. The server's order is by severity.
export function chosenRuns(all: RunRow[], of: Chosen): RunRow[] {
  const words = of.text.toLowerCase().split(' ').filter(Boolean);
  const hits = all.filter((run) => inState(run, of.state) && (!of.owner || run.owner === of.owner) && words.every((word) => `${run.run} ${run.labels.name} owner:${run.owner} ${run.labels.tags.map((tag) => '#' + tag).join(' ')} ${run.labels.note} ${run.word} ${run.worst?.title ?? ''} ${run.worst?.rule ?? ''}`.toLowerCase().includes(word)));
  const ns = (a: string, b: string): number => (BigInt(a) < BigInt(b) ? 1 : BigInt(a) > BigInt(b) ? -1 : 0);
  if (of.sort === 'name') hits.sort((a, b) => a.run.localeCompare(b.run, 'en', { numeric: true }));
  if (of.sort === 'seen') hits.sort((a, b) => ns(a.last_seen, b.last_seen));
  if (of.sort === 'started') hits.sort((a, b) => ns(a.first_seen, b.first_seen));
  if (of.sort === 'step') hits.sort((a, b) => b.newest_step - a.newest_step);
  return hits;
}

// Offers the owners of the runs. Hides the choice if no run has an owner.
export function offerOwners(bar: HTMLElement, all: RunRow[], of: Chosen): void {
  const select = bar.querySelector<HTMLSelectElement>('select.owners')!;
  const owners = [...new Set([...all.map((run) => run.owner), of.owner])].filter(Boolean).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  select.hidden = owners.length === 0;
  if (select.dataset.of === owners.join('\n')) return;
  select.dataset.of = owners.join('\n');
  select.replaceChildren(h('option', { value: '' }, 'all owners'), ...owners.map((owner) => h('option', { value: owner }, clean(owner, 60))));
  select.value = of.owner;
}

// Calls `changed` after each change. The address has the choices.
export function listBar(of: Chosen, changed: () => void): HTMLElement {
  const put = (): void => {
    of.most = PAGE;
    history.replaceState(null, '', chosenAddress(of));
    changed();
  };
  const choose = (label: string, options: [string, string][], value: string, set: (value: string) => void): HTMLElement => {
    const select = h('select', { 'aria-label': label, onchange: () => {
      set(select.value);
      put();
    } }, ...options.map(([one, text]) => h('option', { value: one }, text)));
    select.value = value;
    return select;
  };
  const owners = choose('Owner', [], '', (value) => { of.owner = value; });
  owners.classList.add('owners');
  const box = h('input', { type: 'text', class: 'filter', placeholder: 'Filter: run, #tag, owner:NAME, finding', 'aria-label': 'Filter runs', value: of.text, oninput: () => {
    of.text = box.value.trim();
    put();
  } });
  return h('div', { class: 'listbar' }, box, choose('State', STATES, of.state, (value) => { of.state = value; }), owners, h('label', { class: 'small muted' }, 'by '), choose('Sort', SORTS, of.sort, (value) => { of.sort = value; }));
}

export function moreButton(left: number, of: Chosen, draw: () => void): HTMLElement {
  return h('p', { class: 'bd' }, h('button', { onclick: () => {
    of.most += PAGE;
    draw();
  } }, `Show ${Math.min(left, PAGE)} more of ${left}`));
}
