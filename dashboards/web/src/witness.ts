// Draws a finding's witness if its form is known, and lists its fields otherwise.
import type { Finding, IncidentPage, Value } from './api';
import { get, path, type Points } from './api';
import { clean, count, num, steps, whole } from './format';
import { h, s } from './dom';
import { curvePlot } from './curves';
import { line, picture, scale, words } from './plots';
import { bitsWitness } from './witness_bits';
import { chainWitness } from './witness_chain';
import { lanesWitness } from './witness_lanes';
import { drawQueue, type Token } from './witness_queue';
import { fieldsTable, fitted, isFields, isNumber, textOf, valueText, type Drawn } from './witness_parts';
import { scatterWitness } from './witness_scatter';
import { waitWitness } from './witness_waits';

// ---- a token that lost its place to a later one ----

function tokenOf(value: Value | undefined): Token | null {
  if (!isFields(value)) return null;
  const { row, sequence, position, score } = value;
  return isNumber(row) && isNumber(sequence) && isNumber(position) && isNumber(score) ? { row, sequence, position, score } : null;
}

function drawPair(width: number, refused: Token, admitted: Token): SVGElement {
  const narrow = width < 560;
  const left = narrow ? 48 : 74;
  const right = width - 12;
  const top = 48;
  const bottom = top + 170;
  const same = refused.sequence === admitted.sequence;
  const a = same ? refused.position : refused.row;
  const b = same ? admitted.position : admitted.row;
  const pad = Math.max(2, Math.abs(b - a) * 0.6);
  const X = scale(Math.min(a, b) - pad, Math.max(a, b) + pad, left, right);
  const gap = Math.abs(admitted.score - refused.score) || Math.abs(admitted.score) * 0.1 || 1;
  const Y = scale(Math.min(refused.score, admitted.score) - gap * 1.2, Math.max(refused.score, admitted.score) + gap * 0.9, bottom, top);
  const cut = Y((refused.score + admitted.score) / 2);
  const ra = [X(a), Y(refused.score)];
  const rb = [X(b), Y(admitted.score)];
  const parts: (SVGElement | SVGElement[])[] = [
    s('rect', { x: left, y: cut, width: right - left, height: bottom - cut, fill: 'var(--error)', opacity: 0.05 }),
    line(left, cut, right, cut, 'axis', { 'stroke-dasharray': '5 4' }),
    line(left, bottom, right, bottom),
    words(right, bottom - 8, narrow ? 'below: refused' : 'below the line: refused, because the expert was full', 't1', 'end'),
    words(left - 8, ra[1] + 4, num(Number(refused.score.toPrecision(4))), 't3', 'end'),
    words(left - 8, rb[1] + 4, num(Number(admitted.score.toPrecision(4))), 't3', 'end'),
    words(0, 12, narrow ? '' : 'score', 't3'),
    line(ra[0], 6, ra[0], bottom, 'pl'), line(rb[0], 6, rb[0], bottom, 'pl'),
    s('path', { d: `M${rb[0]} ${rb[1]}Q${(ra[0] + rb[0]) / 2} ${Math.min(ra[1], rb[1]) - 34} ${ra[0]} ${ra[1] - 11}`, fill: 'none', stroke: 'var(--error)', 'stroke-width': 2 }),
    s('path', { d: `M${ra[0] - 5} ${ra[1] - 19}l5 8 5-8`, fill: 'none', stroke: 'var(--error)', 'stroke-width': 2 }),
    s('circle', { cx: ra[0], cy: ra[1], r: 9, fill: 'var(--surface)', stroke: 'var(--error)', 'stroke-width': 2 }),
    s('path', { d: `M${ra[0] - 4} ${ra[1] - 4}l8 8m0-8l-8 8`, stroke: 'var(--error)', 'stroke-width': 2.2 }),
    s('circle', { cx: rb[0], cy: rb[1], r: 9, fill: 'var(--surface)', stroke: 'var(--error)', 'stroke-width': 2 }),
    s('circle', { cx: rb[0], cy: rb[1], r: 5, fill: 'var(--s1)' }),
  ];
  const label = (x: number, head: string, below: string, anchor: string): void => {
    parts.push(words(x, 16, head, 'b e', anchor), words(x, 32, below, 't1', anchor));
  };
  const aLeft = ra[0] <= rb[0];
  label(ra[0] + (aLeft ? -7 : 7), `Token ${whole(refused.row)}`, narrow ? 'refused' : `refused with ${num(refused.score)}`, aLeft ? 'end' : 'start');
  label(rb[0] + (aLeft ? 7 : -7), `Token ${whole(admitted.row)}`, narrow ? 'admitted' : `admitted with ${num(admitted.score)}`, aLeft ? 'start' : 'end');
  for (const [x, value] of [[ra[0], a], [rb[0], b]]) {
    parts.push(s('rect', { x: x - 22, y: bottom + 4, width: 44, height: 18, rx: 3, fill: 'var(--error)' }),
      s('text', { x, y: bottom + 17, 'text-anchor': 'middle', class: 'onerr b' }, whole(value)));
  }
  parts.push(words(left, bottom + 40, same ? `position in sequence ${whole(refused.sequence)} →` : 'row of the pool →', 't3'));
  return picture(width, bottom + 46, `Token ${refused.row} with score ${refused.score} was refused, token ${admitted.row} with score ${admitted.score} was admitted`, ...parts);
}

// The share of the choices that each policy gives as recorded: only one gives all.
function policiesTable(policies: Value | undefined): HTMLElement | null {
  const rows = (Array.isArray(policies) ? policies : []).flatMap((one) => {
    if (!isFields(one) || !isNumber(one.share)) return [];
    return [{ name: textOf(one.policy), share: one.share, exact: one.exact === true }];
  });
  if (rows.length < 2) return null;
  rows.sort((a, b) => Number(b.exact) - Number(a.exact) || b.share - a.share);
  return h('div', { class: 'scrollx mt12' }, h('table', { class: 'padrow' }, h('caption', { class: 'sr' }, 'The policies'),
    h('thead', {}, h('tr', {}, h('th', {}, 'Policy'), h('th', { class: 'num' }, 'Choices as recorded'), h('th', { class: 'hide-s' }, h('span', { class: 'sr' }, 'share')))),
    h('tbody', {}, ...rows.map((one) => h('tr', { class: one.exact ? 'hit' : '' }, h('td', {}, one.exact ? h('b', {}, clean(one.name)) : clean(one.name)),
      h('td', { class: 'num' }, one.exact ? 'all' : `${num(Number(Math.min(99.9, 100 * one.share).toPrecision(3)))} %`),
      h('td', { class: 'hide-s third' }, h('progress', { class: one.exact ? 'ink' : 'grey', max: 1, value: one.share, 'aria-label': one.exact ? 'all' : `${num(Number((100 * one.share).toPrecision(3)))} %` })))))));
}

function pairWitness(finding: Finding): Drawn | null {
  const refused = tokenOf(finding.witness.refused);
  const admitted = tokenOf(finding.witness.admitted);
  if (!refused || !admitted) return null;
  const expert = finding.witness.expert;
  const later = refused.sequence === admitted.sequence && admitted.position > refused.position;
  const row = (token: Token, what: string): HTMLElement => h('tr', {}, h('td', {}, h('b', {}, whole(token.row))), h('td', { class: 'hide-s' }, whole(token.sequence)), h('td', {}, whole(token.position)),
    h('td', {}, num(token.score)), h('td', {}, isNumber(expert) ? whole(expert) : '–'), h('td', {}, h('b', {}, what)));
  return {
    title: later ? 'Witness: a later token took the place of an earlier token' : 'Witness: another token took the place',
    element: h('figure', { class: 'bd' },
      h('div', { class: 'legend' }, h('span', { class: 'muted' }, [isNumber(expert) ? `expert ${whole(expert)}` : '', finding.site.layer, steps(finding.site.step_first, finding.site.step_first),
        isNumber(finding.witness.capacity) ? `capacity ${whole(finding.witness.capacity)}` : ''].filter(Boolean).join(' · '))),
      fitted((width) => drawQueue(width, finding.witness.queue, refused, admitted) ?? drawPair(width, refused, admitted)),
      h('figcaption', {}, h('b', {}, `Token ${whole(refused.row)}`), ` (score ${num(refused.score)}) was refused` + (isNumber(expert) ? ` by expert ${whole(expert)}. ` : '. '),
        h('b', {}, `Token ${whole(admitted.row)}`), later ? `, ${count(admitted.position - refused.position, 'place')} later in the same sequence and not yet seen by the model,` : `, of sequence ${whole(admitted.sequence)},`,
        ` chose the same expert with ${num(admitted.score)} and got the place.`),
      h('div', { class: 'scrollx mt12' }, h('table', {}, h('caption', { class: 'sr' }, 'The pair'),
        h('thead', {}, h('tr', {}, ...['Token', 'Sequence', 'Position', 'Score', 'Expert', 'Outcome'].map((t, i) => h('th', { class: i === 1 ? 'hide-s' : '' }, t)))),
        h('tbody', {}, row(refused, 'refused'), row(admitted, 'admitted')))),
      policiesTable(finding.witness.policies)),
  };
}

// ---- which arithmetic gave the results ----

function modelWitness(finding: Finding): Drawn | null {
  const { matches, samples, runner_up: runnerUp, runner_up_matches: runnerMatches, model } = finding.details;
  if (!isNumber(matches) || !isNumber(samples) || samples <= 0 || model === undefined) return null;
  const name = isFields(model) ? valueText(Object.fromEntries(Object.entries(model).filter(([, v]) => v !== null && v !== ''))) : valueText(model);
  const rows: [string, number, boolean][] = [[name.replace(/^name /, ''), matches, matches === samples]];
  if (runnerUp !== undefined && isNumber(runnerMatches)) rows.push([valueText(runnerUp), runnerMatches, false]);
  return {
    title: `Witness: which arithmetic gives these ${whole(samples)} results`,
    element: h('figure', { class: 'bd' }, h('div', { class: 'scrollx' }, h('table', { class: 'padrow' },
      h('thead', {}, h('tr', {}, h('th', {}, 'Candidate'), h('th', { class: 'num' }, `Bits equal, of ${whole(samples)}`), h('th', { class: 'hide-s' }, h('span', { class: 'sr' }, 'share')))),
      h('tbody', {}, ...rows.map(([label, n, hit]) => h('tr', { class: hit ? 'hit' : '' }, h('td', {}, hit ? h('b', {}, clean(label)) : clean(label), hit ? h('span', { class: 'small muted nowrap' }, ' ✓ matches all') : null),
        h('td', { class: 'num' }, whole(n)), h('td', { class: 'hide-s third' }, h('progress', { class: hit ? 'ink' : 'grey', max: samples, value: n, 'aria-label': `${n} of ${samples}` }))))))),
      h('figcaption', {}, 'The same inputs, computed by each candidate and compared bit by bit with the recorded results. ', rows[0][2] ? h('b', {}, 'One candidate gives every bit.') : null),
      fieldsTable(finding.witness, 'Witness')),
  };
}

// ---- a series around its onset ----

function seriesWitness(page: IncidentPage): Drawn | null {
  const finding = page.finding;
  const name = textOf(finding.details.series) || (finding.site.layer === '' && finding.rule.startsWith('health/') ? finding.site.op : '');
  if (!name) return null;
  const onset = isNumber(finding.details.step) ? finding.details.step : finding.site.step_first;
  const caption = h('figcaption', {}, clean(textOf(finding.witness.text) || finding.explanation, 600));
  const figure = h('figure', { class: 'bd' }, caption);
  const reach = Math.max(60, finding.site.step_last - onset + 30);
  const plot = curvePlot(name, 220, () => undefined, () => undefined);
  // In this picture the onset is the first step of the row.
  const mark = { ...page, step_first: onset };
  void get<Points>(path('runs', page.run, 'points'), { series: name, from: onset - reach, to: onset + reach, px: 1200 }).then((points) => {
    if (points.step.length < 2) return;
    figure.prepend(plot.element);
    plot.update([{ label: name, points }], [mark]);
    new ResizeObserver(() => plot.resize()).observe(plot.element);
  }).catch(() => undefined);
  figure.append(fieldsTable(finding.witness, 'Witness'));
  return { title: `Witness: ${clean(name, 60)} around step ${whole(onset)}`, element: figure };
}

export function drawWitness(page: IncidentPage): Drawn {
  const finding = page.finding;
  const drawn = pairWitness(finding) ?? chainWitness(page) ?? bitsWitness(finding) ?? modelWitness(finding) ?? waitWitness(finding) ?? scatterWitness(finding) ?? lanesWitness(finding) ?? seriesWitness(page);
  if (drawn) return drawn;
  const text = textOf(finding.witness.text);
  const empty = Object.keys(finding.witness).length === 0;
  return {
    title: 'Witness',
    element: h('figure', { class: 'bd' }, text ? h('p', { class: 'lede' }, clean(text, 2000)) : null,
      empty ? h('p', { class: 'sub' }, 'This rule has no single witness. Its measurements are below.') : fieldsTable(finding.witness, 'Witness')),
  };
}
