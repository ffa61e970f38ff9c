// Lists all runs, the worst first.
import type { Points, RunRow } from './api';
import { get, isNew, path } from './api';
import { compareAddress, MOST_RUNS } from './compare';
import { announce, breaking, command, h, mark, tag, time } from './dom';
import { clean, count, seconds, sentence, span, whole, now, ms } from './format';
import type { LiveEvent } from './live';
import { spark } from './plots';
import { chosenOf, chosenRuns, isQuiet, listBar, moreButton, offerOwners } from './runs_list';
import { editButtons, nameOf, tagsOf } from './run_edit';
import { alarm, incidentAddress, isCalm, runAddress, type Shell, type View } from './view';

interface Answer { now: string; runs: RunRow[] }

function quietWords(run: RunRow): [string, string] {
  if (run.quarantined) return ['In quarantine: it could not be judged', clean(run.quarantined, 200)];
  const verdicts = run.judged;
  if (run.word === 'Watched') return ['No findings so far', `${count(run.samples, 'value')}, last look step\u00a0${whole(run.closed_step)}; rules pass series only when the run ends`];
  if (run.state === 'none') {
    return run.inconclusive === 0 ? ['No rule has given a verdict yet', 'A hook may be in code that never runs: use plumb doctor']
      : ['Every verdict was inconclusive', `${count(run.inconclusive, 'verdict')}: the page of the run lists the reasons`];
  }
  const aside = run.put_aside ? `, ${whole(run.put_aside)} put aside` : '';
  return [`${count(verdicts, 'verdict')} reached, nothing open${aside}`, run.inconclusive ? `${whole(run.inconclusive)} inconclusive` : run.over ? `ended normally at step ${whole(run.newest_step)}` : 'no verdict was inconclusive'];
}

export function runNote(run: RunRow): string {
  const ranks = count(run.world, 'rank');
  return run.over ? `${ranks}, ended at step\u00a0${whole(run.newest_step)}` : `${ranks}, now at step\u00a0${whole(run.newest_step)}`;
}

// Returns the cost of a fault: rank hours since the finding, of ranks that continue or are blocked. Ranks that never
// reported are not counted, because they may not exist.
export function waste(run: RunRow): string | undefined {
  const since = run.worst && !run.over ? now() - ms(run.worst.opened) : 0;
  const hours = (since / 3600000) * run.seen;
  return run.worst?.level === 'error' && hours >= 1 ? `${whole(hours)}\u00a0rank\u00a0h since` : undefined;
}

const lastSeen = (run: RunRow): HTMLElement => h('span', { class: 'l2' }, run.newest_step < 0 ? 'no step yet, ' : `step\u00a0${whole(run.newest_step)}, `, time(run.last_seen));

// `choose` adds the run to the selection or removes it.
function row(run: RunRow, chosen: boolean, choose: (on: boolean) => void): HTMLElement {
  const box = h('input', { type: 'checkbox', 'aria-label': `Select ${clean(run.run, 100)}`, checked: chosen, onchange: () => choose(box.checked) });
  return h('div', { class: 'rwrap' }, h('label', { class: 'pick' }, box), link(run));
}

function link(run: RunRow): HTMLElement {
  const worst = run.worst;
  const [first, second] = quietWords(run);
  const quiet = !worst && run.state !== 'none' && run.state !== 'error';
  const counts = (['error', 'warning', 'note'] as const).filter((level) => run.open[level] > 0);
  const dash = h('span', { class: 'muted hide-s' }, '–');
  return h('a', { class: 'rrow ' + (isQuiet(run) ? 'quiet compact' : quiet ? 'quiet' : ''), href: worst ? incidentAddress(worst.fingerprint) : runAddress(run.run), 'data-row': true, 'data-key': run.run },
    h('span', { class: 'st' }, tag(run.state, run.word)),
    h('span', { class: 'nn' }, h('span', { class: 'n', title: clean(run.run + (run.labels.note ? ': ' + run.labels.note : ''), 2000) }, ...breaking(nameOf(run))), lastSeen(run), ...tagsOf(run)),
    h('span', { class: 'w' }, worst ? [h('b', { title: clean(worst.title, 2000) }, sentence(clean(worst.title_short.endsWith('…') ? worst.title : worst.title_short, 140))), h('span', { class: 'small sub' }, h('span', { class: 'arrow' }, '→'), sentence(clean(worst.act, 160)))]
      : [h('b', { class: 'weight450' }, first), h('span', { class: 'small muted' }, second)]),
    h('span', { class: 'since' }, worst ? [time(worst.opened, 'span'), h('span', { class: 'l2' }, `step\u00a0${whole(worst.step_first)}`)] : dash.cloneNode(true)),
    h('span', { class: 'own small' + (run.owner ? '' : ' unowned'), title: clean(run.owner, 200) }, run.owner ? clean(run.owner, 40) : dash.cloneNode(true)),
    h('span', { class: 'where small' }, worst ? breaking(worst.where, 80) : dash),
    h('span', { class: 'sp plot' }),
    h('span', { class: 'cnt' }, counts.length ? counts.map((level) => h('span', {}, mark(level, 's'), h('span', { class: 'sr' }, level + ' '), whole(run.open[level]))) : h('span', { class: 'muted' }, '0')));
}

export function emptyPage(shell: Shell): HTMLElement {
  const grpc = shell.server?.grpc ?? '127.0.0.1:7433';
  const code = `import plumbline
run = plumbline.init(run="exp1", server="${grpc}")
run.watch(model, optimizer)  # PyTorch; else run.step and run.scalar`;
  const step = (title: string, ...body: HTMLElement[]): HTMLElement => h('li', {}, h('div', {}, h('b', {}, title), ...body));
  return h('div', { class: 'center' },
    h('div', {}, h('h1', {}, 'No run has sent evidence yet'), h('p', { class: 'lede sub mt8' }, `This server listens on ${grpc}. After three steps, your first run appears here while it trains.`)),
    h('section', { class: 'card' }, h('div', { class: 'bd' }, h('ol', { class: 'steps' },
      step('Put two lines into your trainer, before its loop', h('pre', { class: 'mt8', tabindex: '0' }, code)),
      step('Check the connection', command(`plumb doctor --server ${grpc}`), h('p', { class: 'small sub mt8' }, 'It sends one test finding, which appears here and disappears again.')),
      step('Or look at a faulty demo run', command('tools/demo'), h('p', { class: 'small sub mt8' }, 'In a built clone of the repository, this takes one minute: a router that uses later tokens, found live.'))))),
    shell.server && !shell.server.keeps ? h('p', { class: 'small muted' }, 'Without ', h('code', {}, '--data'), ' this server loses all data when it ends.') : null);
}

export function runsView(shell: Shell, params: URLSearchParams): View {
  let data: Answer | null = null;
  const chosen = chosenOf(params);
  const selected = new Set<string>();
  let folded: boolean | null = null;  // true if healthy and finished runs are folded; null if their number decides
  const controls = listBar(chosen, () => draw());
  const selection = h('span', { class: 'selection' });
  let main: HTMLElement | null = null;
  const sparks = new Map<string, { at: number; step: number; points: Points }>();
  let seen: IntersectionObserver | null = null;
  let timer = 0;

  async function drawSpark(run: RunRow, box: HTMLElement): Promise<void> {
    const known = sparks.get(run.run);
    const onset = run.worst ? { level: run.worst.level, step: run.worst.step_first } : null;
    const draw = (points: Points | null): void => box.replaceChildren(spark(Math.max(80, Math.floor(box.clientWidth || 104)), points, onset));
    if (known) draw(known.points);
    if (known && (known.step === run.newest_step || Date.now() - known.at < 5000)) return;
    try {
      const points = await get<Points>(path('runs', run.run, 'spark'));
      const whole = points.step ? points : { step: [] };
      sparks.set(run.run, { at: Date.now(), step: run.newest_step, points: whole });
      draw(whole);
    } catch {
      if (!known) draw(null);
    }
  }

  function draw(): void {
    if (!main || !data) return;
    if (data.runs.length === 0) {
      main.replaceChildren(emptyPage(shell));
      return;
    }
    const focus = (document.activeElement as HTMLElement | null)?.dataset.key;
    const sick = data.runs.filter((run) => run.state === 'error').length;
    const by = (state: string): number => data!.runs.filter((run) => run.state === state).length;
    const rest = [by('warning') && `${whole(by('warning'))} with a warning`, by('none') && `${whole(by('none'))} without a verdict`,
      by('ok') + by('done') && `${whole(by('ok') + by('done'))} healthy or finished`].filter(Boolean).join(', ');
    const head = sick === 0 ? (by('warning') ? 'No run has errors' : by('ok') + by('done') ? 'All quiet' : 'No run is judged') : `${whole(sick)} of ${count(data.runs.length, 'run')} ${sick === 1 ? 'has' : 'have'} errors`;
    const worst = data.runs.find((run) => run.worst && !isCalm(run.worst) && run.worst.level !== 'note');
    const open = data.runs.reduce((sum, run) => sum + run.open.error + run.open.warning + run.open.note, 0);
    offerOwners(controls, data.runs, chosen);
    const runs = chosenRuns(data.runs, chosen);
    const shown = runs.slice(0, chosen.most);
    const rows = shown.map((run) => row(run, selected.has(run.run), (on) => select(run.run, on)));
    const quiet = rows.filter((_, i) => !chosen.sort && isQuiet(shown[i]));
    const typing = document.activeElement === controls.querySelector('input');
    main.replaceChildren(
      h('div', { class: 'sumline' }, h('h1', {}, head), h('span', { class: 'sub' }, rest), h('span', { class: 'spacer' }), selection),
      ...(worst?.worst ? [alarm(worst.worst, { run: worst.run, runNote: runNote(worst), waste: waste(worst) },
        { heading: 'h2', link: true, lead: worst.word === 'Hung' ? 'Error: the run is blocked' : undefined })] : []),
      h('section', { class: 'card runs' + (data.runs.some((run) => run.owner) ? ' owned' : ''), 'aria-label': 'Runs' },
        controls, h('div', { class: 'rhead', 'aria-hidden': 'true' }, ...['State', 'Run', 'Fault, and what to do', 'Since', 'Owner', 'Where', 'Loss', 'Open'].map((t) => h('span', t === 'Owner' ? { class: 'own' } : {}, t))), ...rows.filter((one) => !quiet.includes(one)),
        quiet.length ? fold(quiet, runs.filter(isQuiet).length) : '', rows.length === 0 ? h('p', { class: 'bd sub' }, 'No run matches.') : '', runs.length > shown.length ? moreButton(runs.length - shown.length, chosen, draw) : ''),
      h('p', { class: 'small muted mt12' }, 'Healthy means that rules gave verdicts and all passed. A run without verdicts is ', h('b', {}, 'not judged'), `, never healthy. ${count(open, 'incident')} open.`));
    if (typing) controls.querySelector('input')!.focus();
    drawSelection();
    seen?.disconnect();
    seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen?.unobserve(entry.target);
        const run = data?.runs.find((one) => one.run === (entry.target as HTMLElement).dataset.key);
        const box = entry.target.querySelector<HTMLElement>('.sp');
        if (run && box) void drawSpark(run, box);
      }
    });
    for (const element of rows) seen.observe(element.querySelector('.rrow')!);
    if (focus) main.querySelector<HTMLElement>(`[data-row][data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  }

  // Draws the healthy and finished runs, with their number. Folds them if they are many.
  function fold(rows: HTMLElement[], count_: number): HTMLElement {
    const details = h('details', { class: 'quietruns' }, h('summary', {}, h('span', { class: 'tri' }, mark('tri', 's')), h('b', {}, `${whole(count_)} healthy or finished`)), ...rows);
    details.open = !(folded ?? (rows.length > 12 && !chosen.text && !chosen.state && !chosen.owner));
    details.addEventListener('toggle', () => { folded = !details.open; });
    return details;
  }
  function select(run: string, on: boolean): void {
    if (on) selected.add(run);
    else selected.delete(run);
    drawSelection();
  }
  function drawSelection(): void {
    const names = [...selected].filter((name) => data?.runs.some((one) => one.run === name));
    const fits = names.length >= 2 && names.length <= MOST_RUNS;
    selection.replaceChildren(...(names.length === 0 ? [(data?.runs.length ?? 0) > 1 ? h('a', { class: 'small', href: '#/compare' }, 'Compare runs') : '']
      : [h('span', { class: 'small sub' }, `${names.length} selected `), fits ? h('a', { class: 'btn', href: compareAddress(...names) }, 'Compare') : h('span', { class: 'small muted' }, names.length < 2 ? 'select another one to compare ' : `at most ${MOST_RUNS} can be compared `),
        ...editButtons(shell, data!.runs.filter((run) => names.includes(run.run)), () => void reload().catch(() => undefined)),
        h('button', { class: 'quiet small', onclick: () => {
          selected.clear();
          draw();
        } }, 'Clear')]));
  }

  async function reload(): Promise<void> {
    data = await get<Answer>('runs');
    draw();
  }
  async function load(): Promise<void> {
    data = await get<Answer>('runs');
    // Delays updates while the pointer is over a row, so that the row stays in place.
    if (!main?.querySelector('.runs a:hover') || data.runs.length === 0) draw();
    else bar();
  }
  function bar(): void {
    const card = main?.querySelector('.runs');
    if (!card || card.querySelector('.newbar')) return;
    card.prepend(h('div', { class: 'newbar' }, h('button', { onclick: draw }, 'Show what changed')));
    main?.querySelector('.runs')?.addEventListener('mouseleave', draw, { once: true });
  }
  let due = 0;
  function soon(wait: number): void {
    if (timer && due <= Date.now() + wait) return;
    clearTimeout(timer);
    due = Date.now() + wait;
    timer = window.setTimeout(() => {
      timer = 0;
      if (!document.hidden) load().catch(() => undefined);
    }, wait);
  }

  return {
    get title() {
      const sick = data?.runs.reduce((sum, run) => sum + run.open.error, 0) ?? 0;
      return (sick ? `(${sick}) ` : '') + 'Runs';
    },
    nav: 'runs',
    async show(to) {
      main = to;
      data = await get<Answer>('runs');
      if (data.runs.length === 0) await shell.loaded;
      draw();
    },
    onEvent(event: LiveEvent) {
      if (event.kind === 'again') soon(0);
      if (event.kind === 'incident') {
        if (event.row.state === 'open' && isNew(event.row)) announce(`New ${event.row.level} in ${clean(event.row.run, 60)}: ${clean(event.row.title, 120)}`);
        soon(150);
      }
      if (event.kind !== 'runs' || !data) return;
      for (const step of event.runs) {
        const run = data.runs.find((one) => one.run === step.run);
        if (!run) {
          soon(150);
          continue;
        }
        const ended = step.connected !== run.connected || step.finished !== run.finished;
        Object.assign(run, { newest_step: step.newest_step, connected: step.connected, finished: step.finished, last_seen: step.last_seen, lost: step.lost });
        const element = main?.querySelector(`[data-row][data-key="${CSS.escape(step.run)}"]`);
        element?.querySelector('.nn .l2')?.replaceWith(lastSeen(run));
        const box = element?.querySelector<HTMLElement>('.sp');
        if (box && !document.hidden) void drawSpark(run, box);
        if (ended) soon(300);
      }
      soon(5000);
    },
    onKey(key) {
      const run = (document.activeElement as HTMLElement | null)?.closest<HTMLElement>('.rrow')?.dataset.key;
      if (key !== 'x' || !run) return false;
      select(run, !selected.has(run));
      const box = document.activeElement!.closest('.rwrap')!.querySelector('input')!;
      box.checked = selected.has(run);
      return true;
    },
    onTheme: draw,
    leave() {
      seen?.disconnect();
      clearTimeout(timer);
      main = null;
    },
  };
}

export const rate = (run: RunRow): string => seconds(run.step_seconds);
export const aged = (ns: string): string => span(now() - ms(ns));
