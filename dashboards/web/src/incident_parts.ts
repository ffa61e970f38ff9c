// The text of a finding below its witness, shared by a server's page and a report.
import type { IncidentPage } from './api';
import { card, command, h, mark, scrolls, tag } from './dom';
import { clean, count, num, quantity, sentence, steps, whole } from './format';
import { incidentRow, ruleAddress } from './view';
import { fieldsTable } from './witness_parts';

const STRENGTH: Record<string, string> = {
  proved: 'A certificate: a replay of recorded facts, an intervention, or an exact invariant.',
  bounded: 'An error bound is exceeded, on the stated assumptions.',
  statistical: 'A statistical test, valid at every step. Its false-alarm rate is below.',
  heuristic: 'A customary threshold. It is not a proof.',
};

function falseAlarm(page: IncidentPage): string {
  const alarmOf = page.finding.false_alarm;
  if (alarmOf) {
    if (alarmOf.text) return alarmOf.text;
    const value = num(alarmOf.value);
    return alarmOf.kind === 'probability' ? `probability at most ${value} over the whole run, however long it lasts`
      : alarmOf.kind === 'run-length' ? `one in ${value} healthy steps on average` : alarmOf.kind === 'measured' ? `measured share of healthy runs: ${value}` : `${alarmOf.kind} ${value}`;
  }
  return { proved: 'none by chance: the finding was checked exactly', bounded: 'none if the assumptions hold', heuristic: 'not known: the threshold is customary' }[page.strength] ?? 'not stated';
}

// Returns a share as a percentage.
const measured = (value: number | string, unit: string): string =>
  (unit === 'share' && typeof value === 'number' ? quantity(Number((100 * value).toPrecision(4)), '%') : quantity(value, clean(unit, 40)));

export function why(page: IncidentPage): HTMLElement {
  const f = page.finding;
  const cell = (key: string, value: string, big = false): HTMLElement => h('div', {}, h('div', { class: 'k' }, key), big ? h('b', {}, value) : h('span', {}, value));
  return card('Why', null, h('div', { class: 'bd stack gap14' }, f.explanation.length > 1500 ? h('pre', { class: 'words', tabindex: '0' }, clean(f.explanation, 200000)) : h('p', { class: 'lede pretty' }, clean(f.explanation, 4000)),
    h('div', { class: 'kv' },
      f.measured ? cell('Measured' + (f.measured.name ? ': ' + clean(f.measured.name, 60) : ''), measured(f.measured.value, f.measured.unit), true) : null,
      f.threshold ? cell('Threshold', num(f.threshold.value) + (f.threshold.source ? ': ' + clean(f.threshold.source, 300) : '')) : null,
      f.bias ? cell('Bias', `${quantity(f.bias.mean, clean(f.bias.unit, 40))}, interval ${num(f.bias.low)} to ${num(f.bias.high)}`) : null,
      f.sample_size ? cell('Sample', count(f.sample_size, 'value')) : null),
    Object.keys(f.details).length ? h('details', {}, h('summary', {}, h('span', { class: 'tri' }, mark('tri', 's')), h('span', { class: 'small sub' }, 'All details')), fieldsTable(f.details, 'Details')) : null));
}

// Returns the other findings of the same fault. `linked`: each of them has its own page.
export function symptoms(page: IncidentPage, linked = true): HTMLElement | null {
  const rows = page.symptoms ?? [];
  if (rows.length === 0) return null;
  return card('Symptoms', 'the same fault, as other rules see it', ...rows.slice(0, 50).map((row) => (linked ? incidentRow(row, false)
    : h('p', { class: 'bd' }, h('b', {}, sentence(clean(row.title, 200))), h('span', { class: 'small muted' }, ` ${clean(row.rule, 60)} · ${clean(row.where, 120)} · ${steps(row.step_first, row.step_last)}`)))));
}

export function fixes(page: IncidentPage): HTMLElement {
  const f = page.finding;
  return card('Complete fix', null, h('div', { class: 'bd stack gap8' }, f.fix ? h('p', { class: 'pretty' }, clean(f.fix, 4000)) : h('p', {}, 'See the page of the rule.'),
    ...f.commands.flatMap((one) => [one.where ? h('div', { class: 'fixrow' }, h('span', { class: 'small sub' }, clean(one.where, 60)), command(one.command, true)) : command(one.command, true), one.fill ? h('p', { class: 'small muted' }, clean(one.fill, 300)) : '']), h('p', { class: 'small' }, h('a', { href: ruleAddress(page.rule) }, `What ${clean(page.rule, 80)} checks, and what it cannot see`))));
}

// Returns "train.py:57", the trainer's line that first reported the site.
const lineOf = (site: { file?: string; line?: number }): string => `${clean(site.file ?? '', 300)}:${num(site.line ?? 0)}`;

export function sites(page: IncidentPage): HTMLElement {
  return card('Sites', 'one cause, one incident', scrolls(h('div', { class: 'bd scrollx' }, h('table', {},
    h('thead', {}, h('tr', {}, ...['Site', 'Level', 'Steps', 'Ranks'].map((t) => h('th', {}, t)), h('th', { class: 'num' }, 'Found'))),
    h('tbody', {}, ...page.site_rows.map((site) => h('tr', {}, h('td', {}, h('span', { class: 'clip3' }, clean([site.layer, site.op].filter(Boolean).join(' / ') || 'the whole run', 160)), site.file ? h('span', { class: 'small muted mono clip3 wrapany' }, lineOf(site)) : null), h('td', {}, tag(site.level)),
      h('td', { class: 'nowrap' }, steps(site.step_first, site.step_last).replace(/^steps?\s/, '')), h('td', {}, site.ranks ? whole(site.ranks) : '–'), h('td', { class: 'num nowrap' }, count(site.count, 'time'))))))), 'Sites'),
    page.sites > page.site_rows.length ? h('p', { class: 'bd small muted' }, `and ${whole(page.sites - page.site_rows.length)} more`) : null);
}

export function howSure(page: IncidentPage): HTMLElement {
  const f = page.finding;
  const pair = (key: string, ...value: (string | HTMLElement)[]): HTMLElement => h('div', {}, h('dt', { class: 'k' }, key), h('dd', { class: 'wrapany' }, ...value));
  return card('How sure', null, h('div', { class: 'bd' }, h('dl', {},
    pair('Strength', h('b', {}, page.strength), h('br'), STRENGTH[page.strength] ?? ''), pair('False alarm', falseAlarm(page)),
    pair('Cause', f.cause.id && f.cause.id !== 'unknown' ? `${clean(f.cause.id, 80)}, confidence ${num(f.cause.confidence)}` : 'not named'),
    pair('Assumed', ...(f.assumptions.length ? f.assumptions.flatMap((a, i) => (i ? [h('br'), clean(a, 400)] : [clean(a, 400)])) : ['nothing'])))));
}
