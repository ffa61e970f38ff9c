// Creates elements without a framework. Inserts text only as text, so that no data of a trainer becomes markup.
import { ago, at, clean, ms } from './format';

export type Child = Node | string | number | null | undefined | false | Child[];
type Props = Record<string, unknown>;

function append(to: Element, children: Child[]): void {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(to, child);
    else to.append(child instanceof Node ? child : String(child));
  }
}

// Props: `on…` are listeners; `value`, `checked`, `open` are properties; all others are attributes, which are left out
// if false.
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value as EventListener);
    else if (name === 'value' || name === 'checked' || name === 'open') (element as unknown as Props)[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  append(element, children);
  return element;
}

const SVG = 'http://www.w3.org/2000/svg';
export function s(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS(SVG, tag) as SVGElement;
  for (const [name, value] of Object.entries(props)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

// ---- marks: every state has a shape of its own ----

type Part = [string, Props];
const dot = (cy: number, r: number, fill: string): Part => ['circle', { cx: 8, cy, r, fill }];
const line = (d: string, stroke: string, width: number, more: Props = {}): Part =>
  ['path', { d, fill: 'none', stroke, 'stroke-width': width, ...more }];
const ring = (stroke: string, more: Props = {}): Part =>
  ['circle', { cx: 8, cy: 8, r: 6.4, fill: 'none', stroke, 'stroke-width': 1.6, ...more }];

const MARKS: Record<string, Part[]> = {
  error: [['path', { d: 'M5.1 1h5.8L15 5.1v5.8L10.9 15H5.1L1 10.9V5.1z', fill: 'var(--error)' }], line('M8 4v5', 'var(--on-error)', 1.9), dot(11.6, 1.15, 'var(--on-error)')],
  warning: [['path', { d: 'M8 1.4 15.4 14.4H.6z', fill: 'var(--warn-fill)' }], line('M8 5.6v4.4', 'var(--on-warn)', 1.8), dot(12.2, 1.05, 'var(--on-warn)')],
  note: [ring('var(--note)'), line('M8 7.2v4.2', 'var(--note)', 1.7), dot(4.9, 1.05, 'var(--note)')],
  ok: [line('M2.5 8.6 6.2 12.2 13.5 4', 'var(--ok)', 2.1)],
  none: [ring('var(--line-strong)', { 'stroke-dasharray': '2.4 2' }), line('M5.4 8h5.2', 'var(--line-strong)', 1.6)],
  done: [['rect', { x: 3, y: 3, width: 10, height: 10, rx: 1, fill: 'none', stroke: 'var(--line-strong)', 'stroke-width': 1.6 }]],
  gone: [['circle', { cx: 8, cy: 8, r: 5.6, fill: 'var(--surface)', stroke: 'var(--line-strong)', 'stroke-width': 1.8 }]],
  ack: [ring('var(--ink-2)', { 'stroke-width': 1.5 }), line('M4.9 8.3 7.2 10.5 11.2 5.7', 'var(--ink-2)', 1.6)],
  mute: [line('M8 2.2a4 4 0 0 0-4 4v3l-1.3 2.3h10.6L12 9.2v-3a4 4 0 0 0-4-4zM6.6 13.2a1.5 1.5 0 0 0 2.8 0', 'var(--ink-2)', 1.4), line('M2 1.5 14 14.5', 'var(--ink-2)', 1.5)],
  live: [['circle', { cx: 8, cy: 8, r: 4, fill: 'var(--ok)' }], ring('var(--ok)', { 'stroke-opacity': 0.45, 'stroke-width': 1.3 })],
  off: [ring('var(--error)', { r: 5.5, 'stroke-width': 1.8 }), line('M4 12 12 4', 'var(--error)', 1.8)],
  tri: [['path', { d: 'M6 4l4.5 4L6 12z', fill: 'currentColor' }]],
  theme: [['circle', { cx: 8, cy: 8, r: 6, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.4 }], ['path', { d: 'M8 2a6 6 0 0 1 0 12z', fill: 'currentColor' }]],
};

export function mark(name: string, size = '', box: Props = {}): SVGElement {
  const parts = (MARKS[name] ?? MARKS.none).map(([tag, props]) => s(tag, props));
  return s('svg', { class: 'g ' + size, viewBox: '0 0 16 16', 'aria-hidden': 'true', ...box }, ...parts);
}
// Returns a mark inside another picture, with its centre at (x, y).
export const markAt = (name: string, x: number, y: number, size = 16): SVGElement =>
  mark(name, '', { x: x - size / 2, y: y - size / 2, width: size, height: size, class: '' });

export const WORD: Record<string, string> = { error: 'Error', warning: 'Warning', note: 'Note', ok: 'Healthy', none: 'Not judged', done: 'Finished' };

export function tag(level: string, text = WORD[level]): HTMLElement {
  return h('span', { class: 'tag ' + level }, mark(level), text);
}

// ---- pieces ----

// Returns a name in which lines may break after ".", "/" and "_".
export function breaking(text: string, most = 120): (string | HTMLElement)[] {
  return clean(text, most).split(/(?<=[./_])/).flatMap((part, i) => (i ? [h('wbr'), part] : [part]));
}

export function card(title: string, sub: Child, ...body: Child[]): HTMLElement {
  return h('section', { class: 'card' }, h('div', { class: 'hd' }, h('h2', {}, title), sub && h('span', { class: 'muted small' }, sub)), ...body);
}

// Makes an element focusable if it is wider than its container, so that it can be scrolled by keyboard.
export function scrolls<E extends HTMLElement>(element: E, label: string): E {
  requestAnimationFrame(() => {
    if (element.scrollWidth <= element.clientWidth + 1) return;
    element.tabIndex = 0;
    element.setAttribute('role', 'group');
    element.setAttribute('aria-label', label + ', scrolls sideways');
  });
  return element;
}

export function command(text: string, flat = false): HTMLElement {
  return h('div', { class: flat ? 'cmd flat' : 'cmd' }, scrolls(h('code', {}, clean(text, 2000)), 'Command'),
    h('button', { onclick: () => copy(text), 'aria-label': 'Copy ' + clean(text, 80) }, 'Copy'));
}

// Returns an element with a text such as "14 min ago", which is updated, and the time in a tooltip.
export function time(ns: string, what: 'ago' | 'span' = 'ago'): HTMLElement {
  const t = ms(ns);
  const element = h('time', { datetime: new Date(t).toISOString(), title: at(t) }, '');
  const show = (): void => {
    const text = what === 'ago' ? ago(t) : ago(t).replace(/ ago$/, '');
    if (element.textContent !== text) element.textContent = text;
  };
  show();
  ticking.add([element, show]);
  return element;
}
const ticking = new Set<[HTMLElement, () => void]>();
setInterval(() => {
  for (const one of ticking) {
    if (one[0].isConnected) one[1]();
    else ticking.delete(one);
  }
}, 1000);

let toastTimer = 0;
export function toast(text: string): void {
  const element = document.querySelector('.toast')!;
  element.textContent = text;
  element.classList.add('on');
  clearTimeout(toastTimer);
  toastTimer = window.setTimeout(() => element.classList.remove('on'), 2000);
}

// Announces a text to screen readers.
export function announce(text: string): void {
  document.querySelector('#announced')!.textContent = text;
}

export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Over plain HTTP from another host the clipboard is not available, so uses the old method.
    const area = h('textarea', { class: 'sr' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  toast('Copied');
}

export function message(title: string, ...words: Child[]): HTMLElement {
  return h('div', { class: 'center' }, h('div', {}, h('h1', {}, title), ...words.map((w) => h('p', { class: 'lede sub mt8' }, w))));
}
