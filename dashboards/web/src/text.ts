// Returns an incident as text: the lines of `plumb watch -v`.
import type { Finding, IncidentPage, Value } from './api';
import { clean } from './format';

import { PICTURES } from './witness_parts';

const WIDTH = 100;
const LABEL = 11;

// Formats numbers like the command line: six significant digits.
function short(value: number | string): string {
  if (typeof value === 'string') return value;
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) {
    const [digits, power] = value.toExponential(5).split('e');
    const sign = power[0] === '-' ? '-' : '+';
    return digits.replace(/\.?0+$/, '') + 'e' + sign + power.slice(1).padStart(2, '0');
  }
  return String(Number(value.toPrecision(6)));
}

function valueText(value: Value): string {
  if (value === null) return 'none';
  if (typeof value === 'number') return short(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return '[' + value.map(valueText).join(', ') + ']';
  return '(' + fieldsText(value) + ')';
}
const fieldsText = (fields: { [key: string]: Value }): string =>
  Object.entries(fields).filter(([key]) => !PICTURES.includes(key)).map(([key, value]) => key.replaceAll('_', ' ') + ' ' + valueText(value)).join(', ');
const sentence = (fields: { [key: string]: Value }, key: string): string =>
  (typeof fields[key] === 'string' ? (fields[key] as string) : fieldsText(fields));

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else {
      line = line ? line + ' ' + word : word;
    }
  }
  return [...lines, line];
}

function siteText(site: Finding['site']): string {
  const parts: string[] = [];
  const place = [site.layer, site.op].filter(Boolean).join(' ');
  if (place) parts.push(place);
  if (site.step_last > site.step_first) parts.push(`steps ${site.step_first}-${site.step_last}`);
  else if (place || site.step_first > 0) parts.push(`step ${site.step_first}`);
  if (site.rank_count > 0) parts.push((site.rank_count === 1 ? 'rank ' : 'ranks ') + site.ranks.replaceAll('–', '-'));
  if (site.run) parts.push('run ' + site.run);
  return parts.join(', ');
}

function measuredText(f: Finding): string {
  const parts: string[] = [];
  const unit = (u: string): string => (u ? ' ' + u : '');
  if (f.measured) parts.push((f.measured.name ? f.measured.name + ' ' : '') + short(f.measured.value) + unit(f.measured.unit));
  if (f.threshold) parts.push('threshold ' + short(f.threshold.value) + (f.threshold.source ? ` (${f.threshold.source})` : ''));
  if (f.sample_size > 0) parts.push('sample size ' + f.sample_size);
  return parts.join('; ');
}

export function incidentText(page: IncidentPage): string {
  const f = page.finding;
  const lines: [string, string][] = [
    ['do first', f.fix ? f.act : ''], ['command', f.commands[0]?.command ?? ''], ['with', f.commands[0]?.fill ?? ''], ['why', f.explanation], ['witness', sentence(f.witness, 'text')],
    ['cause', f.cause.id && f.cause.id !== 'unknown' ? `${f.cause.id} (confidence ${short(f.cause.confidence)})` : ''], ['measured', measuredText(f)],
    ['bias', f.bias ? `${short(f.bias.mean)}${f.bias.unit ? ' ' + f.bias.unit : ''}, interval ${short(f.bias.low)} to ${short(f.bias.high)}` : ''],
    ['forecast', f.forecast ? sentence(f.forecast, 'words') : ''], ['lost', f.lost?.text ?? ''], ['how sure', f.how_sure], ['assumed', f.assumptions.join('; ')], ['fix', f.fix === f.act ? '' : f.fix], ['finding', f.fingerprint],
  ];
  if (page.sites > 1) {
    const named = page.site_rows.slice(0, 16).map((site) =>
      siteText({ ...site, run: '', ranks: '', rank_count: 0 }));
    lines.push(['sites', `${page.sites}: ` + named.join('; ') + (named.length < page.sites ? `; and ${page.sites - named.length} more` : '')], ['incident', page.fingerprint]);
  }
  const out = [`${f.level}  ${clean(f.rule, 1e6)}  ${clean(siteText(f.site), 1e6)}${f.suppressed ? '  (suppressed)' : ''}`];
  for (const line of wrap(clean(f.title, 1e6), WIDTH - 2)) out.push('  ' + line);
  for (const [label, text] of lines) {
    if (!text) continue;
    wrap(clean(text, 1e6), WIDTH - 2 - LABEL).forEach((line, i) => out.push('  ' + (i === 0 ? label : '').padEnd(LABEL) + line));
  }
  return out.join('\n') + '\n';
}
