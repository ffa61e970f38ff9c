// The interface of views, and parts that several of them show: the four facts, rows of incidents.
import type { IncidentRow, Lost, ServerInfo } from './api';
import { ApiError, Unanswered } from './api';
import { breaking, command, h, mark, message, tag, time } from './dom';
import { clean, at, localTime, ms, num, sentence, steps, whole } from './format';
import { partsOf } from './address';
import type { LiveEvent } from './live';

export interface View {
  title: string;
  nav: 'runs' | 'incidents' | 'rules';
  // Draws into `main`; called again after a change. Throws ApiError.
  show(main: HTMLElement): Promise<void>;
  whole?: Promise<void>;  // set by `show`: resolves when data for parts further down is loaded
  onEvent?(event: LiveEvent): void;
  onKey?(key: string): boolean;  // returns true if the view handled the key
  onTheme?(): void;
  leave?(): void;
}

// State that all views share.
export interface Shell {
  server: ServerInfo | null;
  loaded: Promise<void>;  // resolves when `server` is loaded
  go(address: string): void;
  dialog(content: HTMLElement): HTMLDialogElement;
  refresh(): void;
}

export const runAddress = (run: string): string => '#/run/' + encodeURIComponent(run);
export const incidentAddress = (fingerprint: string): string => '#/incident/' + encodeURIComponent(fingerprint.slice(0, 16));
export const ruleAddress = (rule: string): string => '#/rule/' + rule.split('/').map(encodeURIComponent).join('/');

export const isCalm = (row: IncidentRow): boolean => row.state !== 'open' || row.suppressed;
export const markOf = (row: IncidentRow): string =>
  (row.state === 'acknowledged' ? 'ack' : row.state === 'silenced' || row.suppressed ? 'mute' : row.state === 'resolved' ? 'done' : row.level);

interface Facts {
  run: string;
  runNote: string;
  waste?: string;
  lost?: string;    // time that ranks lost by it, measured
  plain?: boolean;  // true in a report, which has no page of the run
}

// Returns "12.4 GPU hours lost", if the time was measured.
export function lostText(lost: Lost | null | undefined): string | undefined {
  if (!lost) return undefined;
  const short = lost.rank_seconds < 3600;
  const unit = `${lost.on_gpus ? 'GPU' : 'rank'}\u00a0${short ? 's' : 'h'}`;
  return `${num(Number((short ? lost.rank_seconds : lost.rank_seconds / 3600).toPrecision(3)))}\u00a0${unit} lost: ${clean(lost.of, 80)}`;
}

// Returns the facts, always in the same order and place: the run, the beginning, the site, the fix.
export function facts(row: IncidentRow, of: Facts): HTMLElement {
  const more = row.sites > 1 ? `and ${whole(row.sites - 1)} more ${row.sites === 2 ? 'site' : 'sites'}` : steps(row.step_first, row.step_last);
  return h('dl', { class: 'facts' },
    h('div', {}, h('dt', {}, 'Run'), h('dd', {}, h('b', {}, of.plain ? clean(of.run || 'not named', 120) : h('a', { href: runAddress(of.run), title: clean(of.run, 2000) }, clean(of.run, 120))), h('span', {}, of.runNote))),
    h('div', {}, h('dt', {}, 'Since'), row.opened ? h('dd', {}, h('b', {}, time(row.opened)), h('span', {}, at(ms(row.opened))), localTime(ms(row.opened)) && h('span', {}, localTime(ms(row.opened))), h('span', {}, `step\u00a0${whole(row.step_first)}`), (of.lost || of.waste) && h('span', {}, of.lost ?? of.waste))
      : h('dd', {}, h('b', {}, `step\u00a0${whole(row.step_first)}`), h('span', {}, row.step_last > row.step_first ? `last seen in step\u00a0${whole(row.step_last)}` : 'seen in this step'), of.lost && h('span', {}, of.lost))),
    h('div', {}, h('dt', {}, 'Where'), h('dd', {}, h('b', {}, ...breaking(row.where, 160)), h('span', {}, more))),
    h('div', { class: 'do' }, h('dt', {}, 'Do first'), h('dd', {}, h('b', {}, sentence(clean(row.act, 300))), row.command ? command(row.command) : null, row.fill ? h('span', { class: 'small muted' }, clean(row.fill, 300)) : null)));
}

export function alarm(row: IncidentRow, of: Facts, options: { heading: 'h1' | 'h2'; lead?: string; link?: boolean }): HTMLElement {
  const calm = isCalm(row);
  const title = sentence(clean(row.title, 300));
  return h('section', { class: `alarm ${row.level} ${calm ? 'calm' : ''}`, 'aria-label': options.heading === 'h1' ? 'The incident' : 'Worst incident' },
    h('div', { class: 'headline' },
      h('div', {},
        h('div', { class: 'row1' }, tag(row.level, options.lead), h('a', { class: 'small rule', href: ruleAddress(row.rule) }, clean(row.rule)),
          h('span', { class: 'pill ' + (row.strength === 'proved' ? 'proved' : '') }, row.strength),
          calm ? h('span', { class: 'pill' }, mark(markOf(row), 's'), row.suppressed ? 'suppressed' : row.state) : null),
        h(options.heading, { title: clean(row.title, 4000) }, options.link ? h('a', { href: incidentAddress(row.fingerprint) }, title) : title)),
      options.link ? h('a', { class: 'btn hide-s', href: incidentAddress(row.fingerprint) }, 'See the witness') : null),
    facts(row, of));
}

export function incidentRow(row: IncidentRow, withRun: boolean): HTMLElement {
  const where = [row.rule, withRun ? row.run : '', row.where].filter(Boolean).map((part) => clean(part, 120)).join(' · ');
  const word = row.suppressed ? 'suppressed' : row.state === 'open' ? { error: 'Error', warning: 'Warning', note: 'Note' }[row.level] ?? row.level : row.state;
  return h('a', { class: 'incrow', href: incidentAddress(row.fingerprint), 'data-row': true, 'data-key': row.fingerprint }, mark(markOf(row)),
    h('span', { class: 'incgrid' }, h('b', {}, sentence(clean(row.title, 200))), h('span', { class: 'small sub nowrap num' }, row.opened ? time(row.opened) : steps(row.step_first, row.step_last)),
      h('span', { class: 'small muted' }, where), h('span', { class: 'small muted nowrap num' }, word),
      ...(row.symptoms ?? []).slice(0, 4).map((one) => h('span', { class: 'small sub also' }, 'also: ', sentence(clean(one.title, 160)), h('span', { class: 'muted' }, ` · ${clean(one.rule, 60)}, ${steps(one.step_first, one.step_first)}`)))));
}

export const UNANSWERED = 'The server did not answer in time. A browser has six connections to a host: are many tabs or windows open at the same time?';

// Call if a reload failed. If the item no longer exists, replaces the view and returns true.
export function gone(main: HTMLElement | null, error: unknown): boolean {
  if (!main || !(error instanceof ApiError) || error.status !== 404) return false;
  main.replaceChildren(failure(error));
  return true;
}

// Returns a message about an error, with advice.
export function failure(error: unknown): HTMLElement {
  if (error instanceof ApiError) {
    if (error.status === 403) return message('You have no access to this page', error.message, h('a', { href: '#/signin' }, 'Sign in with another token'));
    if (error.status === 404) {
      return message('Not found: ' + clean(partsOf(location.hash).slice(1).join('/'), 120), error.message, 'Retention removes old incidents and runs. Another plumbd may have this one.', h('a', { href: '#/' }, 'All runs of this server'));
    }
    return message('The server could not answer', `${error.message} (HTTP ${num(error.status)})`);
  }
  if (error instanceof Unanswered) return message('The server does not answer', UNANSWERED, 'This page tries again by itself.');
  return message('The server does not answer', 'Is plumbd running, and is the tunnel to it open? This page tries again by itself.');
}
