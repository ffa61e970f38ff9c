// The page: addresses, keys, the stream of events, and the parts above every view.
import { partsOf } from './address';
import { ApiError, dropEarly, get, path, signIn, signOut, whenAnswered, type IncidentRow, type RunRow, type SeriesList, type ServerInfo } from './api';
import { compareView } from './compare';
import { copy, h, mark, message } from './dom';
import { clean, clock, count, now, setServerTime, span, whole } from './format';
import { incidentView } from './incident';
import { incidentsView } from './incidents';
import { Live, type LiveEvent } from './live';
import { ruleView, rulesView } from './rules';
import { runView } from './run';
import { runsView } from './runs';
import { nextTheme, setTheme, startTheme } from './theme';
import { failure, incidentAddress, ruleAddress, runAddress, UNANSWERED, type Shell, type View } from './view';

const main = document.querySelector<HTMLElement>('#main')!;
const dialogBox = document.querySelector<HTMLDialogElement>('#dlg')!;
const banner = document.querySelector<HTMLElement>('#banner')!;
let view: View | null = null;
let shown = '';
let turn = 0;

const shell: Shell = {
  server: null,
  loaded: Promise.resolve(),
  go: (address) => { location.hash = address; },
  dialog(content) {
    const heading = content.querySelector('h2')?.textContent;
    dialogBox.setAttribute('aria-label', heading ?? 'Dialog');
    dialogBox.replaceChildren(content);
    if (!dialogBox.open) dialogBox.showModal();
    return dialogBox;
  },
  refresh: () => void route(true),
};

// ---- addresses ----

function viewOf(parts: string[], params: URLSearchParams): View {
  const [what, ...rest] = parts;
  if (!what || what === 'runs') return runsView(shell, params);
  if (what === 'run' && rest.length) return runView(rest.join('/'), params);
  if (what === 'incidents') return incidentsView(params);
  if (what === 'incident' && rest.length === 1) return incidentView(rest[0], shell);
  if (what === 'rules') return rulesView();
  if (what === 'rule' && rest.length === 2) return ruleView(rest.join('/'));
  if (what === 'compare') return compareView(rest, params);
  if (what === 'signin') return signInView();
  return {
    title: 'Not found', nav: 'runs',
    async show(to) {
      to.replaceChildren(message('Page not found', `No view has the address ${clean(location.hash, 200)}`, h('a', { href: '#/' }, 'All runs of this server')));
    },
  };
}

function setTitle(): void {
  document.title = (view?.title ?? '') + ' – Plumbline';
}

async function route(again = false): Promise<void> {
  const address = location.hash.slice(1) || '/';
  if (address === shown && !again) return;
  const mine = ++turn;
  shown = address;
  view?.leave?.();
  if (dialogBox.open) dialogBox.close();
  const [place, query = ''] = address.split('?');
  const params = new URLSearchParams(query);
  const wanted = params.get('theme');
  if (wanted) setTheme(wanted);
  view = viewOf(partsOf(address), params);
  const next = view;
  for (const link of document.querySelectorAll<HTMLElement>('.nav a')) {
    if (link.dataset.k === next.nav) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  try {
    if (!shell.server && place !== '/signin') shell.loaded = loadServer();
    await Promise.all([place === '/signin' ? null : shell.loaded, next.show(main)]);
  } catch (error) {
    if (mine !== turn) return;
    if (error instanceof ApiError && error.status === 401 && place !== '/signin') {
      askToken();
      return;
    }
    main.replaceChildren(failure(error));
    // If there was no answer, the request is repeated when the stream reconnects.
    if (!(error instanceof ApiError)) setTimeout(() => { if (mine === turn) void route(true); }, 2000);
  }
  if (mine !== turn) return;
  dropEarly();
  if (!again) scrollTo(0, 0);
  setTitle();
  // Connects after the user has signed in.
  if (shell.server && place !== '/signin' && live.state.state === 'connecting') live.connect();
  document.documentElement.dataset.ready = address;
  document.documentElement.dataset.readyAt = String(performance.now());
  await next.whole?.catch(() => undefined);
  if (mine === turn) document.documentElement.dataset.whole = address;
}

let back = '#/';
// Asks the user for a token, because the old one has expired or was revoked.
function askToken(): void {
  live.pause('out');
  shell.server = null;
  openErrors = 0;
  showErrors();
  document.querySelector('footer')!.replaceChildren();
  if (location.hash === '#/signin') return;
  back = location.hash || '#/';
  location.hash = '#/signin';
}
function signInView(): View {
  return {
    title: 'Sign in', nav: 'runs',
    async show(to) {
      const error = h('p', { class: 'dlgerr', role: 'alert' });
      const token = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', class: 'mono', required: true });
      to.replaceChildren(h('div', { class: 'center narrow' }, h('div', {}, h('h1', {}, 'Sign in'), h('p', { class: 'sub mt8' }, 'Type your token once. It is kept as a cookie that scripts cannot read, for 12 hours, and never appears in an address.')),
        h('section', { class: 'card' }, h('form', { class: 'bd stack', onsubmit: async (event: Event) => {
          event.preventDefault();
          try {
            await signIn(token.value.trim());
            token.value = '';
            shell.server = null;
            live.connect();
            location.hash = back === '#/signin' ? '#/' : back;
          } catch (e) {
            error.textContent = e instanceof ApiError ? e.message : 'The server does not answer.';
          }
        } }, h('label', {}, h('span', { class: 'k' }, 'Token'), token), error,
        h('div', { class: 'between' }, h('span', { class: 'small muted' }, 'Read, or read and acknowledge: by scope'), h('button', { class: 'primary' }, 'Sign in'))))));
      token.focus();
    },
  };
}

// ---- what is live ----

let countTimer = 0;
let openErrors = 0;
async function countErrors(): Promise<void> {
  try {
    const { incidents } = await get<{ incidents: IncidentRow[] }>('incidents', { state: 'open' });
    if (live.state.state === 'out') return;
    openErrors = incidents.filter((one) => one.level === 'error' && !one.suppressed).length;
    showErrors();
  } catch {
    // The view shows the error.
  }
}
function showErrors(): void {
  const badge = document.querySelector<HTMLElement>('.nav .count')!;
  badge.hidden = openErrors === 0;
  badge.textContent = whole(openErrors);
  badge.title = `${count(openErrors, 'open error')}; warnings and notes are not counted`;
  badge.setAttribute('aria-label', count(openErrors, 'open error'));
  badge.setAttribute('role', 'img');
}

const live = new Live(onEvent, showLive, setServerTime, askToken);
function onEvent(event: LiveEvent): void {
  if (event.kind === 'again') void countErrors();
  if (event.kind === 'incident') {
    // Requests the counts, because only the server knows whether the incident is a symptom of another one.
    countTimer ||= window.setTimeout(() => {
      countTimer = 0;
      void countErrors();
    }, 500);
  }
  view?.onEvent?.(event);
  setTitle();
}

let answered = true;
whenAnswered((now_) => {
  if (now_ === answered) return;
  answered = now_;
  showLive();
});
function showLive(): void {
  const { lag, since, next } = live.state;
  const state = live.state.state === 'live' && !answered ? 'unanswered' : live.state.state;
  const box = document.querySelector('.link-state')!;
  const words = { connecting: 'connecting', live: 'live', starting: 'starting', offline: 'offline', out: 'not signed in', unanswered: 'not answered' }[state];
  const lagText = state === 'live' ? h('span', { class: 'lg' }, lag >= 100 ? `, ${whole(lag / 100) === '0' ? '0.1' : (lag / 1000).toFixed(1)}\u00a0s late` : '') : '';
  const text = words + (lagText ? lagText.textContent : '');
  if (box.textContent !== text) box.replaceChildren(mark(state === 'offline' ? 'off' : state === 'out' ? 'none' : state === 'live' ? 'live' : 'warning'), h('span', {}, words, lagText));
  document.body.classList.toggle('stale', state === 'offline' || state === 'starting' || state === 'unanswered');
  if (state === 'offline') {
    const wait = Math.max(0, Math.round((next - Date.now()) / 1000));
    banner.replaceChildren(h('div', { class: 'banner err', role: 'alert' }, mark('off'), h('div', { class: 'grow' }, h('b', {}, `No connection to ${location.host} for ${span(Date.now() - since)}`),
      h('div', { class: 'small sub' }, `This page shows the state of ${clock(since)}\u00a0UTC and may be outdated. Next try in ${wait}\u00a0s. If this continues, check that plumbd runs and that the tunnel is open.`)), h('button', { onclick: () => live.connect() }, 'Try now')));
  } else if (state === 'starting') {
    banner.replaceChildren(h('div', { class: 'banner warn', role: 'status' }, mark('warning'), h('div', { class: 'grow' }, h('b', {}, 'The server was restarted and still judges its journal'), h('div', { class: 'small sub' }, 'No acknowledged evidence is lost. Earlier findings may be missing until the server has finished. This page updates by itself.'))));
  } else if (state === 'unanswered') {
    banner.replaceChildren(h('div', { class: 'banner warn', role: 'status' }, mark('warning'), h('div', { class: 'grow' }, h('b', {}, 'This page may be outdated'), h('div', { class: 'small sub' }, UNANSWERED))));
  } else if (banner.childElementCount) {
    banner.replaceChildren();
  }
}
setInterval(() => {
  document.querySelector('.clock')!.textContent = clock(now()) + ' UTC';
  if (live.state.state === 'offline') showLive();
}, 1000);

async function loadServer(): Promise<void> {
  shell.server = await get<ServerInfo>('server');
  setServerTime(shell.server.now);
  const out = shell.server.guarded ? [' Signed in as ' + clean(shell.server.access, 60) + '. ', h('button', { class: 'quiet small', onclick: () => void signOut().then(() => location.reload()) }, 'Sign out')] : [];
  document.querySelector('footer')!.replaceChildren(`plumbd ${shell.server.version} on ${location.host}. Press `, h('kbd', {}, '?'), ' for keys.', ...out,
    ...(shell.server.store_problem ? [h('div', { class: 'tag warning' }, mark('warning'), clean(shell.server.store_problem, 300))] : []));
  void countErrors();
}

// ---- theme ----

function turnTheme(): void {
  nextTheme();
  view?.onTheme?.();
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => view?.onTheme?.());

// ---- find and keys ----

async function find(): Promise<void> {
  const input = h('input', { type: 'text', placeholder: 'A run, an incident, a rule, a series of this run', 'aria-label': 'Find', autocomplete: 'off' });
  const list = h('div', {});
  const dialog = shell.dialog(h('form', { method: 'dialog' }, h('h2', {}, 'Find'), input, list));
  input.focus();
  const [runs, incidents, rules] = await Promise.all([get<{ runs: RunRow[] }>('runs'), get<{ incidents: IncidentRow[] }>('incidents', { state: 'all' }), get<{ rules: { rule: string; title: string }[] }>('rules')]);
  const all: [string, string, string][] = [
    ...runs.runs.map((one): [string, string, string] => [clean(one.run, 100), 'run, ' + one.word.toLowerCase(), runAddress(one.run)]),
    ...incidents.incidents.map((one): [string, string, string] => [clean(one.title, 120), `${one.rule}, ${clean(one.run, 60)}, ${one.fingerprint.slice(0, 12)}`, incidentAddress(one.fingerprint)]),
    ...rules.rules.map((one): [string, string, string] => [one.rule, one.title, ruleAddress(one.rule)]),
  ];
  // Searches the series of the shown run, on the server.
  const [view_, run] = partsOf(location.hash);
  let series: [string, string, string][] = [];
  let asked = '';
  const findSeries = async (): Promise<void> => {
    const text = input.value.trim();
    if (view_ !== 'run' || !run || text === asked || text.length < 2) return;
    asked = text;
    const list = await get<SeriesList>(path('runs', run, 'series'), { filter: text });
    if (text !== input.value.trim()) return;
    series = list.groups.flatMap((group) => group.series).slice(0, 5).map((one): [string, string, string] => [clean(one.series, 100), 'series of ' + clean(run, 60), runAddress(run) + '?' + new URLSearchParams({ series: one.series }).toString()]);
    draw();
  };
  const draw = (): void => {
    void findSeries().catch(() => undefined);
    const words = input.value.toLowerCase().split(' ').filter(Boolean);
    const hits = [...all, ...series].filter(([title, sub]) => words.every((word) => (title + ' ' + sub).toLowerCase().includes(word))).slice(0, 10);
    list.replaceChildren(...hits.map(([title, sub, address]) => h('a', { class: 'incrow', href: address, onclick: () => dialog.close() }, mark('tri'), h('span', {}, title, h('br'), h('span', { class: 'small muted' }, sub)))),
      hits.length ? '' : h('p', { class: 'small muted' }, 'No name matches.'));
  };
  input.addEventListener('input', draw);
  input.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter') return;
    event.preventDefault();
    list.querySelector<HTMLElement>('a')?.click();
  });
  draw();
}

function showKeys(): void {
  const row = (keys: string[], what: string): Node[] => [h('span', {}, ...keys.flatMap((k) => [h('kbd', {}, k), ' '])), h('span', {}, what)];
  shell.dialog(h('form', { method: 'dialog' }, h('h2', {}, 'Keys'), h('div', { class: 'keys' }, ...row(['j', 'k'], 'next, previous row or incident'), ...row(['Enter'], 'open'), ...row(['[', ']'], 'previous, next finding on the step axis'),
    ...row(['+', '−', '0'], 'zoom in, out, whole run'), ...row(['/'], 'find a run, incident or rule'), ...row(['a', 's', 'o'], 'acknowledge, silence, reopen'), ...row(['c'], 'copy the finding as text'), ...row(['x'], 'select a run, to compare'),
    ...row(['g r', 'g i', 'g u'], 'runs, incidents, rules'), ...row(['t'], 'theme: as the system, light, dark'), ...row(['?'], 'this list')), h('div', { class: 'acts' }, h('button', { class: 'primary' }, 'Close'))));
}

let waiting = 0;
document.addEventListener('keydown', (event) => {
  const target = event.target as HTMLElement;
  if (target.matches('input,textarea,select') || event.metaKey || event.ctrlKey || event.altKey || dialogBox.open) return;
  const { key } = event;
  if (waiting && Date.now() - waiting < 900) {
    waiting = 0;
    const to = { r: '#/', i: '#/incidents', u: '#/rules' }[key];
    if (to) {
      location.hash = to;
      return;
    }
  }
  const rows = [...main.querySelectorAll<HTMLElement>('[data-row]')].filter((row) => row.checkVisibility());
  if (key === 'g') waiting = Date.now();
  else if (key === '?') showKeys();
  else if (key === 't') turnTheme();
  else if (key === '/') {
    event.preventDefault();
    void find();
  } else if (view?.onKey?.(key)) {
    event.preventDefault();
  } else if ((key === 'j' || key === 'k') && rows.length) {
    const place = rows.indexOf(document.activeElement as HTMLElement);
    rows[Math.max(0, Math.min(rows.length - 1, place + (key === 'j' ? 1 : -1)))].focus();
  } else if (key === 'c') {
    void copy(location.href);
  }
});
document.querySelector('#find')!.addEventListener('click', () => void find());
document.querySelector('#theme')!.addEventListener('click', turnTheme);
document.querySelector('.skip')!.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
dialogBox.addEventListener('click', (event) => { if (event.target === dialogBox) dialogBox.close(); });
addEventListener('hashchange', () => void route());
// A hidden tab draws nothing, and releases its connection for others.
document.addEventListener('visibilitychange', () => {
  if (live.state.state === 'out' || !shell.server) return;
  if (document.hidden) return live.pause('connecting');
  live.connect();
  onEvent({ kind: 'again' });
});

startTheme();
void route();
