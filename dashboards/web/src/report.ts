// The report of `plumb audit --format html`: the page's views in one file, with the data in this file. It replaces the
// plain form, which a browser shows if scripts are disabled.
import { setSource, type IncidentPage, type IncidentRow, type Points } from './api';
import { card, copy, h, mark, message, s, scrolls } from './dom';
import { clean, count, sentence, whole } from './format';
import { fixes, howSure, sites, symptoms, why } from './incident_parts';
import { curvePlot } from './curves';
import { incidentText } from './text';
import { nextTheme, startTheme } from './theme';
import { alarm, incidentAddress, incidentRow, lostText } from './view';
import { drawWitness } from './witness';

interface Group { rule: string; words: string; sites: string }
interface Series { run: string; name: string; loss: boolean; points: Points }
interface Report {
  version: string;
  title: string;  // name of the run, or of the file
  summary: string;
  left_out: string;
  bottleneck: string; // the largest bottleneck; empty if there is no trace
  notes: string[];
  coverage: { judged: number; inconclusive: number; dropped: number };
  inputs: { path: string; format: string; bytes: number; records: number; problems: string[]; notes: string[] }[];
  incidents: IncidentPage[];
  series: Series[];
  inconclusive: Group[];
  passed: Group[];
  rules: { rule: string; title: string; page: string }[];
}

const data = JSON.parse(document.querySelector('#report')!.textContent!) as Report;
const KEYS = ['error', 'warning', 'note'];
const rank = (row: IncidentRow): number => (row.suppressed ? 9 : KEYS.indexOf(row.level));
const incidents = [...data.incidents].sort((a, b) => rank(a) - rank(b));
const toCount = incidents.filter((one) => !one.suppressed);

// The views send the same requests as to a server; this function answers them.
setSource((address, params) => {
  const parts = address.split('/').map(decodeURIComponent);
  const found = parts[0] === 'runs' && parts[2] === 'points' && data.series.find((one) => one.run === parts[1] && one.name === params.series);
  return found ? found.points : { step: [] };
});

// ---- the first view ----

function plots(): HTMLElement[] {
  const cards: HTMLElement[] = [];
  for (const one of data.series.filter((series) => series.loss).slice(0, 8)) {
    const plot = curvePlot(one.name, 240, () => undefined, () => undefined);
    const { step } = one.points;
    const marks = incidents.filter((row) => row.run === one.run && !row.suppressed && row.step_first >= step[0] && row.step_first <= step[step.length - 1] + (one.points.bucket_steps ?? 1));
    cards.push(card(clean(one.name, 80), one.run ? `run ${clean(one.run, 80)}` : null, h('div', { class: 'bd' }, plot.element, marks.length ? h('p', { class: 'small muted mt4' }, `Vertical lines: where ${count(marks.length, 'finding')} ${marks.length === 1 ? 'begins' : 'begin'}.`) : null)));
    plot.update([{ label: one.name, points: one.points }], marks);
    new ResizeObserver(() => plot.resize()).observe(plot.element);
  }
  return cards;
}

const table = (head: string[], rows: (string | HTMLElement)[][], label: string): HTMLElement => scrolls(h('div', { class: 'bd scrollx' }, h('table', {},
  h('thead', {}, h('tr', {}, ...head.map((one) => h('th', { scope: 'col' }, one)))), h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map((cell) => h('td', { class: typeof cell === 'string' && cell.length < 16 ? 'nowrap' : 'wrapany' }, cell))))))), label);

function groups(title: string, what: string, list: Group[]): HTMLElement | null {
  if (list.length === 0) return null;
  return h('section', { class: 'card' }, h('details', {}, h('summary', { class: 'hd between' }, h('h2', {}, title), h('span', { class: 'muted small' }, what)),
    table(['Rule', 'Why', 'Where'], list.map((one) => [ruleLink(one.rule), clean(one.words, 2000), clean(one.sites, 600)]), title)));
}

function ruleLink(rule: string): HTMLElement | string {
  const known = data.rules.some((one) => one.rule === rule);
  return known ? h('a', { href: '#/rule/' + rule }, rule) : rule;
}

function inputs(): HTMLElement {
  const words = (one: Report['inputs'][number]): HTMLElement => h('span', {}, ...one.problems.flatMap((text) => [mark('warning', 's'), clean(text, 600), h('br')]), ...one.notes.flatMap((text) => [clean(text, 600), h('br')]));
  return card('Inputs', count(data.inputs.length, 'file'), table(['Path', 'Format', 'Bytes', 'Records', 'Noted'], data.inputs.slice(0, 1000).map((one) => [clean(one.path, 400), one.format, whole(one.bytes), whole(one.records), words(one)]), 'Inputs'));
}

function coverage(): HTMLElement {
  const { judged, inconclusive, dropped } = data.coverage;
  const cell = (key: string, value: number, unit: string): HTMLElement => h('div', {}, h('div', { class: 'k' }, key), h('b', {}, whole(value)), h('div', { class: 'small' }, unit));
  return card('Coverage', null, h('div', { class: 'bd kv' }, cell('Judged', judged, 'verdicts'), cell('Inconclusive', inconclusive, 'verdicts, each with its reason'), cell('Dropped', dropped, 'items of evidence')));
}

function overview(): HTMLElement[] {
  const worst = toCount[0];
  const of = (level: string): number => toCount.filter((one) => one.level === level).length;
  const counts = KEYS.filter((level) => of(level)).map((level) => count(of(level), level)).join(', ');
  const runs = new Set(data.incidents.map((one) => one.run)).size;
  return [
    h('div', { class: 'sumline' }, h('h1', {}, counts || 'No findings'), data.title ? h('span', { class: 'sub' }, clean(data.title, 100)) : '', h('span', { class: 'muted small' }, clean(data.summary, 400)), data.left_out ? h('span', { class: 'muted small' }, clean(data.left_out, 400)) : '', data.bottleneck ? h('span', { class: 'small' }, clean(data.bottleneck, 400)) : ''),
    ...(worst ? [alarm(worst, { run: worst.run, runNote: runs > 1 ? `one of ${count(runs, 'run')}` : '', plain: true }, { heading: 'h2', link: true })]
      : [h('section', { class: 'alarm calm' }, h('div', { class: 'headline' }, h('div', {}, h('h2', {}, data.coverage.judged > 0 ? 'Every verdict passed or is inconclusive with its reason' : 'Nothing could be judged: see the missing parts'))))]),
    h('div', { class: 'stack' },
      incidents.length ? card('Incidents', whole(incidents.length), ...incidents.slice(0, 500).map((row) => incidentRow(row, true)), incidents.length > 500 ? h('p', { class: 'bd small muted' }, `and ${whole(incidents.length - 500)} more: see the JSON report`) : null) : '',
      ...plots(), coverage(), ...[groups('Inconclusive', count(data.coverage.inconclusive, 'verdict'), data.inconclusive), groups('Passed', count(data.passed.length, 'line'), data.passed)].filter((one) => one !== null), inputs()),
  ];
}

// ---- one incident, one rule ----

let shown: IncidentPage | null = null;

function incident(page: IncidentPage): HTMLElement[] {
  shown = page;
  const drawn = drawWitness(page);
  const place = incidents.indexOf(page);
  const text = (): void => void copy(incidentText(page));
  return [
    h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Report'), h('span', {}, '/'), h('span', {}, `incident ${place + 1} of ${incidents.length}`), h('span', { class: 'grow' }),
      incidents.length > 1 ? [h('button', { class: 'tiny', 'aria-label': 'Previous incident (k)', onclick: () => step(-1) }, '‹'), h('button', { class: 'tiny', 'aria-label': 'Next incident (j)', onclick: () => step(1) }, '›')] : ''),
    alarm(page, { run: page.run, runNote: '', plain: true, lost: lostText(page.lost) }, { heading: 'h1' }),
    h('div', { class: 'cols' }, h('div', { class: 'stack' }, card(drawn.title, null, drawn.element), symptoms(page, false), why(page), fixes(page), sites(page)),
      h('aside', { class: 'stack rail', 'aria-label': 'Evidence' }, h('section', { class: 'card' }, h('div', { class: 'bd acts' }, h('button', { onclick: text }, 'Copy as text', h('kbd', { 'aria-hidden': 'true' }, 'c')))), howSure(page),
        h('section', { class: 'card' }, h('div', { class: 'bd' }, h('dl', {}, h('div', {}, h('dt', { class: 'k' }, 'Finding'), h('dd', { class: 'mono wrapany' }, page.finding.fingerprint)),
          page.also.length ? h('div', {}, h('dt', { class: 'k' }, 'Also of this run'), h('dd', {}, ...page.also.flatMap((one, i) => [i ? h('br') : '', h('a', { href: incidentAddress(one.fingerprint) }, sentence(clean(one.title_short, 80)))]))) : null))))),
  ];
}

function step(by: number): void {
  if (!shown || incidents.length < 2) return;
  location.hash = incidentAddress(incidents[(incidents.indexOf(shown) + by + incidents.length) % incidents.length].fingerprint);
}

function rule(id: string): HTMLElement[] {
  const found = data.rules.find((one) => one.rule === id);
  const here = incidents.filter((one) => one.rule === id);
  return [h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Report'), h('span', {}, '/'), h('span', {}, clean(id, 80))), h('h1', {}, found ? sentence(found.title) : clean(id, 80)),
    h('div', { class: 'stack mt12' }, found ? card(id, null, h('pre', { class: 'bd words', tabindex: '0' }, found.page)) : h('p', { class: 'lede' }, `plumb explain ${clean(id, 80)} prints its page.`), here.length ? card('Found here', null, ...here.map((row) => incidentRow(row, true))) : '')];
}

// ---- the shell ----

const main = h('main', { id: 'main', tabindex: '-1' });
function route(): void {
  const [what, ...rest] = location.hash.slice(1).split('/').filter(Boolean).map(decodeURIComponent);
  shown = null;
  const page = what === 'incident' ? incidents.find((one) => one.fingerprint.startsWith(rest[0] ?? '-')) : undefined;
  const content = !what ? overview() : page ? incident(page) : what === 'rule' ? rule(rest.join('/')) : [message('This report has no such page', h('a', { href: '#/' }, 'The whole report'))];
  main.replaceChildren(...content);
  document.title = (page ? sentence(clean(page.title, 80)) + ' – ' : '') + clean(data.title, 100) + ' – Plumbline';
  scrollTo(0, 0);
  document.documentElement.dataset.ready = location.hash;
}

function turnTheme(): void {
  nextTheme();
  route();
}

document.querySelector('#plain-style')?.remove();
document.querySelector<HTMLStyleElement>('#page-style')!.media = 'all';
const brand = s('svg', { viewBox: '0 0 16 16', width: 18, height: 18, 'aria-hidden': 'true' }, s('path', { d: 'M8 0v5', stroke: 'currentColor', 'stroke-width': 1.4 }), s('path', { d: 'M4.2 5h7.6L8 16z', fill: 'currentColor' }));
document.body.replaceChildren(h('a', { class: 'skip', href: '#main', onclick: (event: Event) => { event.preventDefault(); main.focus(); } }, 'To the content'),
  h('header', { class: 'top' }, h('a', { class: 'brand', href: '#/', 'aria-label': 'Plumbline, the whole report' }, brand, h('span', {}, 'Plumbline')), h('span', { class: 'sub small' }, 'Audit report'), h('span', { class: 'grow' }), h('button', { class: 'quiet', id: 'theme', 'aria-label': 'Theme', onclick: turnTheme })),
  main, h('footer', {}, `plumb ${data.version}. This file is self-contained: it loads nothing and sends nothing. `, ...data.notes.map((one) => clean(one, 400) + ' '), count(data.inputs.length, 'input') + '.'),
  h('div', { class: 'toast', role: 'status' }), h('div', { class: 'sr', id: 'announced', role: 'log', 'aria-live': 'polite' }));
document.addEventListener('keydown', (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  const rows = [...main.querySelectorAll<HTMLElement>('[data-row]')];
  const by = { j: 1, k: -1 }[event.key];
  if (by && shown) step(by);
  else if (by && rows.length) rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(document.activeElement as HTMLElement) + by))].focus();
  else if (event.key === 't') turnTheme();
  else if (event.key === 'c' && shown) void copy(incidentText(shown));
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', route);
addEventListener('hashchange', route);
startTheme();
route();

// The printed form: the whole report, with the witness, the reason and the fix of each incident, in the width of a
// page. It is drawn before printing, because printing does not wait for a plot.
const MOST_PRINTED = 40;
const printed = h('div', { class: 'printed', 'aria-hidden': 'true', inert: true });
setTimeout(() => {
  const whole_ = (page: IncidentPage): HTMLElement => {
    const drawn = drawWitness(page);
    return h('section', { class: 'printpart' }, alarm(page, { run: page.run, runNote: '', plain: true }, { heading: 'h2' }), h('div', { class: 'stack' }, card(drawn.title, null, drawn.element), symptoms(page, false), why(page), fixes(page), howSure(page)));
  };
  printed.append(...overview(), ...incidents.slice(0, MOST_PRINTED).map(whole_));
  for (const one of printed.querySelectorAll('details')) one.open = true;
  document.body.append(printed);
}, 50);
