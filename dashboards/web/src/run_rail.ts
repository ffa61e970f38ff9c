// Draws the parts above and next to the timeline of a run: its four facts, incidents, coverage, losses, processes.
import type { Coverage, RunPage } from './api';
import { compareAddress } from './compare';
import { breaking, card, copy, h, mark, tag, time } from './dom';
import { at, clean, count, ms, num, reasonName, steps, whole } from './format';
import { rate, runNote, waste } from './runs';
import { nameOf, tagsOf } from './run_edit';
import { alarm, incidentRow, isCalm } from './view';

export function drawTop(top: HTMLElement, r: RunPage): void {
  const worst = r.worst;
  top.replaceChildren(
    h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Runs'), h('span', {}, '/'), h('span', { class: 'clip' }, clean(r.run, 120)), h('span', { class: 'grow' }), h('a', { class: 'btn hide-s', href: compareAddress(r.run) }, 'Compare with…'), h('button', { class: 'hide-s', onclick: () => void copy(location.href) }, 'Copy link')),
    h('div', { class: 'sumline runhead' }, h('h1', { title: clean(r.run, 2000) }, ...breaking(nameOf(r), 200)), tag(r.state, r.word), ...tagsOf(r), h('span', { class: 'sub' }, 'step ', h('b', {}, whole(r.newest_step)), ', ', time(r.last_seen)),
      rate(r) ? h('span', { class: 'sub' }, rate(r)) : null, h('span', { class: 'sub' }, count(r.world, 'rank')), h('span', { class: 'sub hide-s', title: at(ms(r.first_seen)) }, `attempt\u00a0${whole(r.attempt)}, first seen `, time(r.first_seen))),
    ...(r.labels.deleted ? [h('div', { class: 'banner note' }, mark('note'), h('div', { class: 'grow' }, h('b', {}, 'This run is deleted. '), `By ${clean(r.labels.who, 80)}. Its data stay until the server's retention removes them: plumb run-edit RUN --undo restores it.`))] : []),
    ...(r.labels.note ? [h('p', { class: 'sub wrapany runnote' }, clean(r.labels.note, 4096))] : []),
    ...(r.quarantined ? [h('div', { class: 'banner err' }, mark('error'), h('div', { class: 'grow' }, h('b', {}, 'This run is in quarantine: it could not be judged. '), clean(r.quarantined, 400), h('div', { class: 'small sub' }, 'Its evidence is stored. plumb runs --retry judges it again.')))] : []),
    ...(worst && !isCalm(worst) ? [alarm(worst, { run: r.run, runNote: runNote(r), waste: waste(r) }, { heading: 'h2', link: true })] : []));
}

const percent = (n: number, of: number): string => `${num(Number(((100 * n) / Math.max(1, of)).toPrecision(2)))}\u00a0%`;
// Describes the losses, and remedies for their causes.
function lossWords(c: Coverage, total: number): string[] {
  const unreachable = ['queue-full', 'spool-full'].some((cause) => c.lost_by_cause[cause] || c.lost_by_cause['sample-' + cause]);
  return [
    c.lost ? `${percent(c.lost, total)} of the evidence is lost.` + (unreachable ? ' With a spool, an agent loses no evidence while the server is not reachable.' : '') : '',
    c.late ? `${percent(c.late, c.evidence)} of the evidence came after its step had been judged without its rank. It is stored and shown; rules that compare ranks did not use it.` : '',
  ].filter(Boolean);
}

// Returns the reason why there is no open incident. Rules pass series only when the run ends, so a run in progress may
// have no verdict, although it is watched.
function nothingOpen(r: RunPage, c: Coverage | null): string {
  if (r.judged > 0) return 'None: every verdict passed or is inconclusive with its reason.';
  if (!r.over && r.samples > 0) return `No finding so far: the rules look at ${c ? count(c.series, 'series', 'series') : 'its series'}, last look step\u00a0${whole(r.closed_step)}.`;
  return 'None; nothing has been judged yet.';
}

const bar = (label: string, words_: string, value: number, max: number): HTMLElement =>
  h('div', {}, h('div', { class: 'between small' }, h('span', {}, label), h('span', { class: 'sub nowrap' }, words_)), h('progress', { value, max: Math.max(max, 1), 'aria-label': label }));

export function drawRail(rail: HTMLElement, r: RunPage, coverage: Coverage | null): void {
  const incidents = r.incidents.filter((one) => !isCalm(one));
  const aside = r.incidents.filter((one) => isCalm(one) && one.state !== 'resolved');
  const more = (n: number): HTMLElement | string => (n > 20 ? h('p', { class: 'bd small muted' }, `and ${whole(n - 20)} more`) : '');
  const parts: HTMLElement[] = [h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Open incidents'), h('span', { class: 'muted small' }, whole(incidents.length))),
    ...(incidents.length ? incidents.slice(0, 20).map((row) => incidentRow(row, false)) : [h('p', { class: 'bd small muted' }, aside.length ? 'None, except acknowledged and silenced ones.' : nothingOpen(r, coverage))]),
    more(incidents.length))];
  if (aside.length) parts.push(h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Put aside'), h('span', { class: 'muted small' }, whole(aside.length))), ...aside.slice(0, 20).map((row) => incidentRow(row, false)), more(aside.length)));
  const over = r.incidents.filter((one) => one.state === 'resolved');
  if (over.length) parts.push(h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, 'Resolved'), h('span', { class: 'muted small' }, whole(over.length))), ...over.slice(0, 20).map((row) => incidentRow(row, false)), more(over.length)));
  if (coverage) {
    const c = coverage;
    const total = c.evidence + c.lost;
    const reasons = new Map<string, number>();
    for (const one of c.reasons) {
      const id = reasonName(one.reason);
      reasons.set(id, (reasons.get(id) ?? 0) + one.sites);
    }
    // The server's own findings (a hang, a process that died) are in the list by rule alone.
    const reached = Math.max(c.judged, c.rules.reduce((sum, one) => sum + one.pass + one.finding, 0));
    const probes = c.reasons.filter((one) => one.rule === 'meta/probe-coverage').slice(0, 3);
    parts.push(card('Coverage', null, h('div', { class: 'bd stack gap12' },
      bar('Verdicts reached', `${whole(reached)} of ${whole(reached + c.inconclusive)}`, reached, reached + c.inconclusive),
      bar('Evidence kept', `${whole(c.evidence)} of ${whole(total)}${c.late ? `, ${whole(c.late)} late` : ''}`, c.evidence, total),
      bar('Ranks that report', `${whole(r.seen)} of ${whole(r.world)}`, r.seen, r.world),
      r.seen < r.world ? h('p', { class: 'small withmark' }, mark('warning', 's'), h('span', {}, `${count(r.world - r.seen, 'rank')} of ${whole(r.world)} never reported.`)) : null,
      ...probes.map((one) => h('p', { class: 'small sub' }, clean(one.reason, 200))),
      reasons.size ? h('p', { class: 'small sub' }, `${whole(c.inconclusive)} inconclusive: `, h('span', { class: 'muted' }, [...reasons].slice(0, 5).map(([id, n]) => `${clean(id, 40)} (${count(n, 'site')})`).join(', '))) : null,
      h('details', {}, h('summary', {}, h('span', { class: 'tri' }, mark('tri', 's')), h('span', { class: 'small sub' }, `By rule: ${count(c.rules.length, 'rule')} gave verdicts`)), h('table', {}, h('thead', {}, h('tr', {}, ...['Rule', 'Passed', 'Found', 'Open'].map((t, i) => h('th', { class: i ? 'num' : '' }, t === 'Open' ? 'Inconclusive' : t)))),
        h('tbody', {}, ...c.rules.map((one) => h('tr', {}, h('td', { class: 'small' }, clean(one.rule, 60)), h('td', { class: 'num' }, whole(one.pass)), h('td', { class: 'num' }, whole(one.finding)), h('td', { class: 'num' }, whole(one.inconclusive))))))))));
    const losses = [...Object.entries(c.lost_by_cause).map(([cause, n]) => [cause, n, 'lost'] as const), ...Object.entries(c.late_by_cause).map(([cause, n]) => [cause, n, 'late'] as const)];
    parts.push(card('Data loss', null, h('div', { class: 'bd' }, c.lost + c.late === 0 ? h('div', { class: 'tag ok' }, mark('ok', 's'), 'No evidence was dropped or late') : [
      h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'Cause'), h('th', { class: 'num' }, 'Items'))), h('tbody', {}, ...losses.map(([cause, n, what]) => h('tr', {}, h('td', {}, `${clean(cause, 60)} `, h('span', { class: 'muted small' }, what)), h('td', { class: 'num' }, whole(n)))))),
      ...c.gaps.slice(0, 6).map((gap) => h('p', { class: 'small sub mt4' }, `${steps(gap.step_first, gap.step_last)}: `, h('span', { class: 'muted' }, clean(gap.reason, 200)))),
      ...lossWords(c, total).map((text) => h('p', { class: 'small sub mt8' }, text))])));
  }
  const states = Object.entries(r.liveness);
  parts.push(card('Processes', null, h('div', { class: 'bd small' }, states.length ? states.map(([state, n]) => h('div', { class: 'between' }, h('span', { class: 'tag ' + (state === 'running' ? 'ok' : 'none') }, mark(state === 'running' ? 'ok' : state === 'late' ? 'note' : 'warning', 's'), state), h('span', {}, whole(n))))
    : h('div', { class: 'tag none' }, mark('done', 's'), r.over ? 'All ranks have ended' : 'No rank is connected'))));
  rail.replaceChildren(...parts);
}
