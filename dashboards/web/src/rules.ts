// Shows the list of rules, and the page of one.
import type { IncidentRow, RulePage } from './api';
import { get, path } from './api';
import { card, command, h, mark, tag, type Child } from './dom';
import { clean, count, sentence, whole } from './format';
import { incidentRow, ruleAddress, type View } from './view';

// Converts a rule's page, text with a few marks (`code`, *words*, lists), to elements, never to
// markup.
function inline(text: string): Child[] {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/).filter(Boolean).map((part) => {
    if (part.length > 2 && part.startsWith('`') && part.endsWith('`')) return h('code', {}, part.slice(1, -1));
    if (part.length > 4 && part.startsWith('**') && part.endsWith('**')) return h('b', {}, part.slice(2, -2));
    if (part.length > 2 && part.startsWith('*') && part.endsWith('*')) return h('em', {}, part.slice(1, -1));
    return part;
  });
}

export function prose(text: string): HTMLElement[] {
  const out: HTMLElement[] = [];
  let words: string[] = [];
  let items: string[][] = [];
  let code: string[] | null = null;
  const flush = (): void => {
    if (words.length) out.push(h('p', {}, ...inline(words.join(' '))));
    if (items.length) out.push(h('ul', {}, ...items.map((item) => h('li', {}, ...inline(item.join(' '))))));
    words = [];
    items = [];
  };
  for (const line of text.split('\n')) {
    if (line.startsWith('```')) {
      if (code) out.push(h('pre', { tabindex: '0' }, h('code', {}, code.join('\n'))));
      else flush();
      code = code ? null : [];
    } else if (code) {
      code.push(line);
    } else if (line.trim() === '') {
      flush();
    } else if (/^[-*] /.test(line)) {
      if (words.length) flush();
      items.push([line.slice(2)]);
    } else if (items.length) {
      items[items.length - 1].push(line.trim());
    } else {
      words.push(line.trim());
    }
  }
  if (code) out.push(h('pre', { tabindex: '0' }, h('code', {}, code.join('\n'))));
  flush();
  return out;
}

export function rulesView(): View {
  return {
    title: 'Rules',
    nav: 'rules',
    async show(main) {
      const data = await get<{ rules: { rule: string; title: string; level: string; open: number }[] }>('rules');
      main.replaceChildren(h('div', { class: 'sumline' }, h('h1', {}, 'Rules'), h('span', { class: 'sub' }, `${count(data.rules.length, 'rule')} in this version; rules with open incidents first`)),
        h('section', { class: 'card', 'aria-label': 'Rules' }, ...data.rules.map((one) =>
          h('a', { class: 'incrow', href: ruleAddress(one.rule), 'data-row': true, 'data-key': one.rule }, mark(one.open ? one.level : 'none'),
            h('span', { class: 'incgrid' }, h('b', {}, one.rule), h('span', { class: 'small sub nowrap num' }, one.open ? `${whole(one.open)} open` : ''), h('span', { class: 'small muted' }, sentence(one.title)), h('span', { class: 'small muted nowrap num' }, `at most ${one.level}`))))));
    },
  };
}

export function ruleView(id: string): View {
  return {
    title: clean(id, 60),
    nav: 'rules',
    async show(main) {
      const rule = await get<RulePage>(path('rules', ...id.split('/')));
      const lead = rule.sections.find((one) => !one.title);
      const rest = rule.sections.filter((one) => one.title);
      const here = (rows: IncidentRow[]): Child => (rows.length ? rows.map((row) => incidentRow(row, true)) : h('p', { class: 'bd small muted' }, 'This rule has no incident.'));
      main.replaceChildren(
        h('div', { class: 'crumbs' }, h('a', { href: '#/rules' }, 'Rules'), h('span', {}, '/'), h('span', {}, rule.rule)),
        h('div', { class: 'cols' }, h('article', { class: 'card' }, h('div', { class: 'bd prose page' },
          h('div', {}, h('h1', {}, rule.rule), h('p', { class: 'lede mt4' }, sentence(rule.title.endsWith('.') ? rule.title : rule.title + '.'))),
          ...(lead && lead.text.trim() !== rule.title + '.' ? prose(lead.text) : []),
          ...rest.flatMap((one) => [h('h2', {}, one.title), ...prose(one.text)]),
          ...(rule.options.length ? [h('h2', {}, 'Options'), h('div', { class: 'scrollx', tabindex: '0', role: 'group', 'aria-label': 'Options, scrolls sideways' }, h('table', {},
            h('thead', {}, h('tr', {}, ...['Option', 'Default', 'Reason of the default'].map((t) => h('th', {}, t)))),
            h('tbody', {}, ...rule.options.map((one) => h('tr', {}, h('td', { class: 'mono nowrap' }, one.name), h('td', { class: 'nowrap' }, `${one.default}${one.unit ? '\u00a0' + one.unit : ''}`), h('td', {}, one.reason))))))] : []))),
          h('aside', { class: 'stack rail', 'aria-label': 'This rule' },
            h('section', { class: 'card' }, h('div', { class: 'bd' }, h('dl', {}, h('div', {}, h('dt', { class: 'k' }, 'Level'), h('dd', {}, tag(rule.level, `at most ${rule.level}`))), h('div', {}, h('dt', { class: 'k' }, 'Since'), h('dd', {}, `version ${rule.since}`))))),
            card('Here, now', null, here(rule.incidents)),
            h('section', { class: 'card' }, h('div', { class: 'bd' }, h('div', { class: 'k' }, 'On the command line'), command(`plumb explain ${rule.rule}`, true))))));
    },
  };
}
