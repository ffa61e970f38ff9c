// Shows one incident: the fault, the witness, the confidence, the fix. Acknowledges and silences it.
import type { IncidentPage, ServerInfo } from './api';
import { ApiError, capsuleAddress, get, path, setState, Unanswered } from './api';
import { card, command, copy, h, mark, time, toast } from './dom';
import { at, bytes, clean, count, ms, now, sentence, steps, whole } from './format';
import { fixes, howSure, sites, symptoms, why } from './incident_parts';
import { incidentText } from './text';
import { alarm, gone, incidentAddress, lostText, runAddress, type Shell, type View } from './view';
import { drawWitness } from './witness';

function banner(page: IncidentPage, reopen: () => void): HTMLElement | null {
  if (page.state !== 'acknowledged' && page.state !== 'silenced') return null;
  const until = [page.until_time ? at(ms(page.until_time)) : '', page.until_step !== undefined ? `step ${whole(page.until_step)}` : ''].filter(Boolean).join(', or ');
  return h('div', { class: 'banner' }, mark(page.state === 'silenced' ? 'mute' : 'ack'),
    h('div', { class: 'grow' }, h('b', {}, page.state === 'silenced' ? 'Silenced' + (until ? ` until ${until}` : '') : 'Acknowledged'), ` by ${clean(page.who, 80)}: “${clean(page.reason, 400)}”`,
      h('div', { class: 'small sub' }, page.state === 'silenced' ? 'No alerts are sent. The run is still judged. The incident reopens when the silence ends, or if its level rises.' : 'Alerts have stopped. If its level or strength rises, the incident reopens.')),
    page.may_change ? h('button', { onclick: reopen }, 'Open again') : null);
}

function history(page: IncidentPage): HTMLElement {
  const rows = page.history.slice(-30).reverse();
  return card('History', null, h('div', { class: 'bd' }, rows.length ? h('ol', { class: 'hist' }, ...rows.map((one) =>
    h('li', {}, mark(one.level === 'alert' ? 'done' : one.state === 'acknowledged' ? 'ack' : one.state === 'silenced' ? 'mute' : one.state === 'resolved' ? 'ok' : one.level),
      h('div', { class: 'wrapany' }, one.change[0].toUpperCase() + clean(one.change, 120).slice(1) + (one.who ? ` by ${clean(one.who, 80)}` : ''), one.reason ? `: ${clean(one.reason, 300)}` : '',
        h('div', { class: 'muted small' }, time(one.time), one.step !== null ? `, step\u00a0${whole(one.step)}` : ''))))) : h('p', { class: 'small muted' }, 'Opened; no change since.')));
}

// Returns the options with which the command line reaches this server, as far as a browser knows them. If the server
// listens on all addresses, uses the host of this page.
function reach(server: ServerInfo | null): string[] {
  const grpc = (server?.grpc ?? '').replace(/^(0\.0\.0\.0|\[::\]|\*)(?=:)/, location.hostname);
  return [grpc ? `--server ${grpc}` : '', location.protocol === 'https:' ? '--tls-ca CA_FILE' : '', server?.guarded ? '--token-file TOKEN_FILE' : ''].filter(Boolean);
}

// Quotes a word for a shell. Writes hidden characters as their bytes.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const byteText = (c: string): string => [...new TextEncoder().encode(c)].map((one) => '\\x' + one.toString(16).padStart(2, '0')).join('');
function shellWord(word: string): string {
  if (/^[\w\-+=./:,@%]+$/.test(word)) return word;
  return word.search(HIDDEN) < 0 ? `'${word.replaceAll("'", "'\\''")}'` : `$'${word.replace(/[\\']/g, '\\$&').replace(HIDDEN, byteText)}'`;
}

function judgeYourself(page: IncidentPage, server: ServerInfo | null): HTMLElement {
  const capsule = page.capsule;
  const asks = !page.run_over && (page.run_connected ?? 0) > 0;
  const held = capsule.state === 'complete' || capsule.state === 'partial';
  const words = held ? `This server has a capsule: ${bytes(capsule.bytes ?? 0)} of ${count(capsule.ranks ?? 0, 'rank')}, step ${whole(capsule.step ?? 0)}` + (capsule.state === 'partial' ? ' (some ranks are missing).' : '.')
    : capsule.state === 'taking' || capsule.state === 'waiting' ? 'A capsule is being taken from the ranks.' : `No capsule: ${clean(capsule.why, 300)}`;
  const { step_first: first, step_last: last } = page.finding.site;
  const [name, folder] = [page.fingerprint.slice(0, 12), 'capsule-' + page.fingerprint.slice(0, 12)];
  const options = reach(server);
  const fill = [options.some((one) => one.endsWith('TOKEN_FILE')) ? 'TOKEN_FILE: a file with your token, mode 0600' : '', options.some((one) => one.endsWith('CA_FILE')) ? 'CA_FILE: the authority of this server, or system' : ''].filter(Boolean).join('; ');
  const note = (text: string): HTMLElement => h('p', { class: 'small muted' }, text);
  const less = ` A capsule is one call, and proves less than the finding, which covers ${steps(first, last)}` + (page.sites > 1 ? ` at ${count(page.sites, 'site')}` : '') + '. If the capsule passes, the finding is still valid.';
  const whole_ = server?.keeps ? [note('Judge all data of this run on this server, by this rule:'), command(['plumb audit', ...options, '--run', shellWord(page.run), '--rules', page.rule].join(' '), true)]
    : [note('This server has no journal, so no data can be fetched: start plumbd with --data.')];
  const taken = held ? [note(words + less), h('p', {}, h('a', { class: 'btn', href: capsuleAddress(page.fingerprint), download: true }, 'Download the capsule')), command(`tar -xf ${folder}.tar && plumb audit ${folder}`, true)]
    : server?.keeps && capsule.state === 'none' && !asks ? [note('No capsule of one call, either: ' + (page.run_over ? 'the run is over' : 'no process of the run is connected') + ', so no process can send its inputs.')]
    : server?.keeps && capsule.state === 'none' ? [note('The inputs of one call, from the running ranks.' + less), command(['plumb capsule', name, ...options, '--output', folder, '&& plumb audit', folder].join(' '), true)]
      : [note(words)];
  return h('section', { class: 'card' }, h('div', { class: 'bd' }, h('dl', {},
    h('div', {}, h('dt', { class: 'k' }, 'Finding'), h('dd', { class: 'mono wrapany' }, page.finding.fingerprint)),
    h('div', {}, h('dt', { class: 'k' }, 'Judge it yourself'), h('dd', { class: 'judge' }, ...whole_, ...taken, fill ? note(fill + '.') : null)),
    page.also.length ? h('div', {}, h('dt', { class: 'k' }, 'Also of this run'), h('dd', {}, ...page.also.flatMap((one, i) =>
      [i ? h('br') : '', h('a', { href: incidentAddress(one.fingerprint), title: clean(one.rule) }, sentence(clean(one.title_short, 80)))]))) : null)));
}

function inHours(hours: number): number {
  return now() + hours * 3600000;
}
// Returns the next 08:00 UTC.
function morning(): number {
  const d = new Date(now());
  const today = Date.UTC(d.getUTCFullYear(), d.getUTCMonth(), d.getUTCDate(), 8);
  return today > now() ? today : today + 86400000;
}

export function incidentView(fingerprint: string, shell: Shell): View {
  let page: IncidentPage | null = null;
  let main: HTMLElement | null = null;
  let timer = 0;
  let order: string[] = [];

  async function change(state: string, fields: Record<string, unknown>): Promise<void> {
    page = await setState(page!.fingerprint, { state, seen: page!.state, revision: page!.revision, ...fields });
    draw();
    toast({ acknowledged: 'Acknowledged', silenced: 'Silenced', open: 'Open again' }[state] ?? 'Done');
  }

  function ask(kind: 'acknowledged' | 'silenced' | 'open'): void {
    if (!page?.may_change) return;
    const error = h('p', { class: 'dlgerr', role: 'alert' });
    const reason = h('textarea', { rows: 3, required: true, 'aria-describedby': 'asused', onkeydown: (event: Event) => {
      const key = event as KeyboardEvent;
      if (key.key !== 'Enter' || key.shiftKey || key.isComposing) return;
      key.preventDefault();
      form.requestSubmit();
    } });
    const who = h('input', { type: 'text', value: localStorage.getItem('who') ?? '', autocomplete: 'name' });
    const until = h('select', {}, h('option', { value: '1' }, `in 1 hour (${at(inHours(1))})`), h('option', { value: '8' }, `in 8 hours (${at(inHours(8))})`), h('option', { value: 'morning' }, `in the morning (${at(morning())})`),
      h('option', { value: '168' }, `in 7 days (${at(inHours(168))})`), h('option', { value: 'step' }, 'at a step'));
    const step = h('input', { type: 'text', inputmode: 'numeric', pattern: '[0-9]+', 'aria-label': 'Step', placeholder: 'step', hidden: true });
    until.addEventListener('change', () => { step.hidden = until.value !== 'step'; });
    const verb = { acknowledged: 'Acknowledge', silenced: 'Silence', open: 'Open again' }[kind];
    const send = h('button', { class: 'primary', type: 'submit' }, verb);
    const form = h('form', { novalidate: true, onsubmit: (event: Event) => {
      event.preventDefault();
      if (!reason.value.trim()) {
        error.textContent = 'Enter a reason for the next reader.';
        reason.focus();
        return;
      }
      const fields: Record<string, unknown> = { reason: reason.value.trim(), who: who.value.trim() };
      if (kind === 'silenced') {
        if (until.value === 'step') {
          if (!/^\d+$/.test(step.value.trim())) {
            error.textContent = 'A step is a whole number.';
            step.focus();
            return;
          }
          fields.until_step = Number(step.value.trim());
        } else {
          fields.until_time = String(BigInt(Math.round(until.value === 'morning' ? morning() : inHours(Number(until.value)))) * 1000000n);
        }
      }
      localStorage.setItem('who', who.value.trim());
      send.disabled = true;
      change(kind, fields).then(() => dialog.close(), (e: unknown) => {
        send.disabled = false;
        error.textContent = e instanceof ApiError ? e.message : e instanceof Unanswered ? 'The server did not answer in time: reload to see whether the change was applied.' : 'The server does not answer. The change was not applied.';
        if (e instanceof ApiError && e.status === 409) void load();
      });
    } },
    h('h2', {}, `${verb}: ${clean(page.rule, 80)}`),
    h('p', { class: 'small sub' }, { acknowledged: 'Alerts stop. The incident reopens if its level or strength rises.', silenced: 'No alerts until then. The incident is still judged and shown. It reopens at the end, or if its level rises.',
      open: 'Alerts are sent again when it changes.' }[kind]),
    kind === 'silenced' ? h('label', {}, h('span', { class: 'k' }, 'Until'), until) : null, kind === 'silenced' ? step : null,
    h('label', {}, h('span', { class: 'k' }, 'Reason, for the next person (required)'), reason),
    h('label', {}, h('span', { class: 'k' }, 'Your name'), who),
    h('p', { class: 'small muted', id: 'asused' }, (page.access ? `By the access entry ${clean(page.access, 80)}. ` : '') + 'Kept in the incident’s history.'), error,
    h('div', { class: 'acts' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), send));
    const dialog = shell.dialog(form);
    reason.focus();
  }

  const asText = (): void => { if (page) void copy(incidentText(page)); };
  function actions(narrow: boolean): HTMLElement {
    const calm = page!.state === 'acknowledged' || page!.state === 'silenced';
    const key = (k: string): HTMLElement | null => (narrow ? null : h('kbd', { 'aria-hidden': 'true' }, k));
    const change = !page!.may_change ? [] : calm ? [h('button', { onclick: () => ask('open') }, 'Open again', key('o'))]
      : [h('button', { class: 'primary', onclick: () => ask('acknowledged') }, 'Acknowledge…', key('a')), h('button', { onclick: () => ask('silenced') }, 'Silence…', key('s'))];
    const text = h('button', { onclick: asText }, narrow ? 'Copy text' : 'Copy as text', key('c'));
    if (narrow) return h('div', { class: 'mobacts' }, ...change, text);
    return h('section', { class: 'card deskacts' }, h('div', { class: 'bd acts' }, ...change, text,
      page!.may_change ? null : h('p', { class: 'small muted' }, 'Your token may read this run. To acknowledge or silence, you need the scope admin.')));
  }

  function step(by: number): void {
    const at = order.findIndex((one) => one === page?.fingerprint);
    if (order.length > 1) location.hash = incidentAddress(order[(at + by + order.length) % order.length]);
  }

  function draw(): void {
    if (!main || !page) return;
    const p = page;
    const place = order.indexOf(p.fingerprint);
    const world = p.run_world ?? 0;
    const note = world ? `${count(world, 'rank')}, last step\u00a0${whole(p.run_step ?? 0)}` : 'this server no longer has the run';
    const open = new Set([...main.querySelectorAll('details[open]')].map((d) => d.querySelector('summary')?.textContent));
    const drawn = drawWitness(p);
    main.replaceChildren(
      h('div', { class: 'crumbs' }, h('a', { href: '#/' }, 'Runs'), h('span', {}, '/'), h('a', { class: 'clip', href: runAddress(p.run) }, clean(p.run, 120)), h('span', {}, '/'), h('span', {}, `incident\u00a0${p.fingerprint.slice(0, 8)}`), h('span', { class: 'grow' }),
        place >= 0 ? h('span', { class: 'steps2' }, h('span', { class: 'hide-s' }, `${place + 1} of ${order.length} open`), h('button', { class: 'tiny', 'aria-label': 'Previous incident (k)', onclick: () => step(-1) }, '‹'), h('button', { class: 'tiny', 'aria-label': 'Next incident (j)', onclick: () => step(1) }, '›')) : null),
      ...[banner(p, () => ask('open'))].filter((b) => b !== null) as HTMLElement[],
      ...(p.merged_into ? [h('div', { class: 'banner note' }, mark('note'), h('div', { class: 'grow' }, 'All its findings now have another cause: ', h('a', { href: incidentAddress(p.merged_into) }, 'see that incident')))] : []),
      ...(p.symptom_of ? [h('div', { class: 'banner note' }, mark('note'), h('div', { class: 'grow' }, 'This is a symptom of another incident: ', h('a', { href: incidentAddress(p.symptom_of.fingerprint) }, sentence(clean(p.symptom_of.title, 200)))))] : []),
      alarm(p, { run: p.run, runNote: note, lost: lostText(p.lost) }, { heading: 'h1' }),
      actions(true),
      h('div', { class: 'cols' }, h('div', { class: 'stack' }, card(drawn.title, null, drawn.element), symptoms(p), why(p), fixes(p), sites(p)),
        h('aside', { class: 'stack rail', 'aria-label': 'State and evidence' }, actions(false), howSure(p), history(p), judgeYourself(p, shell.server))));
    for (const d of main.querySelectorAll('details')) d.open = open.has(d.querySelector('summary')?.textContent);
  }

  async function load(): Promise<void> {
    // Loads the server's data, too, because the commands name this server.
    [page] = await Promise.all([get<IncidentPage>(path('incidents', fingerprint)), shell.loaded]);
    draw();
  }

  return {
    get title() {
      return page ? `${clean(page.run, 40)}: ${clean(page.rule.split('/')[1] ?? page.rule, 40)}` : 'Incident';
    },
    nav: 'incidents',
    async show(to) {
      main = to;
      await load();
      // Its position among other incidents is shown later, when it is known.
      this.whole = get<{ incidents: { fingerprint: string }[] }>('incidents', { state: 'open' }).then((list) => {
        order = list.incidents.map((one) => one.fingerprint);
        draw();
      });
    },
    onEvent(event) {
      const mine = event.kind === 'again' || (event.kind === 'incident' && event.row.fingerprint === page?.fingerprint);
      if (!mine || timer) return;
      // If an incident is found a hundred times per second, draws it only every two seconds. Draws a change of state at
      // once.
      const moved = event.kind === 'incident' && event.row.state !== page?.state;
      timer = window.setTimeout(() => {
        timer = 0;
        if (!document.hidden && !document.querySelector('dialog[open]')) load().catch((error: unknown) => { if (gone(main, error)) page = null; });
      }, moved || event.kind === 'again' ? 100 : 2000);
    },
    onKey(key) {
      const calm = page?.state === 'acknowledged' || page?.state === 'silenced';
      if (key === 'a' && !calm) ask('acknowledged');
      else if (key === 's' && !calm) ask('silenced');
      else if (key === 'o' && calm) ask('open');
      else if (key === 'c') asText();
      else if (key === 'j') step(1);
      else if (key === 'k') step(-1);
      else return false;
      return true;
    },
    onTheme: draw,
    leave() {
      clearTimeout(timer);
      main = null;
    },
  };
}
