// Functions for all pictures of witnesses: they read a witness's fields, make a table of them, and fit a picture in its
// container.
import type { Value } from './api';
import { clean, num } from './format';
import { h, scrolls } from './dom';

export type Fields = { [key: string]: Value };
export const isFields = (value: Value | undefined): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);
export const isNumber = (value: Value | undefined): value is number => typeof value === 'number';
export const textOf = (value: Value | undefined): string => (typeof value === 'string' ? value : '');

// Returns the numbers of an array that is drawn. Non-finite values are text in JSON and become NaN.
export const numbersOf = (value: Value | undefined): number[] => (Array.isArray(value) ? value.map((one) => (isNumber(one) ? one : NaN)) : []);
// Fields with arrays that are drawn instead of listed in the table.
export const PICTURES = ['queue', 'scatter', 'lanes', 'waits'];

export interface Drawn { title: string; element: HTMLElement }

export function valueText(value: Value): string {
  if (value === null) return 'none';
  if (typeof value === 'number') return num(value);
  if (typeof value === 'boolean') return value ? 'yes' : 'no';
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.slice(0, 64).map(valueText).join(', ') + (value.length > 64 ? `, and ${value.length - 64} more` : '');
  return Object.entries(value).map(([key, one]) => key.replaceAll('_', ' ') + ' ' + valueText(one)).join(', ');
}

export function fieldsTable(fields: Fields, caption: string): HTMLElement {
  return scrolls(h('div', { class: 'scrollx' }, h('table', { class: 'witness-table' }, h('caption', { class: 'sr' }, caption),
    // Names of fields with times end with their unit.
    h('tbody', {}, ...Object.entries(fields).filter(([key]) => key !== 'text' && !PICTURES.includes(key)).map(([key, value]) =>
      h('tr', {}, h('td', {}, clean(key.replace(/_ms$/, '').replaceAll('_', ' '))), h('td', {}, clean(valueText(value), 4000) + (key.endsWith('_ms') ? '\u00a0ms' : ''))))))), caption);
}

// Draws a picture again when its width changes.
export function fitted(draw: (width: number) => SVGElement): HTMLElement {
  const box = h('div', { class: 'plot' });
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.floor(box.clientWidth);
    if (now === width || now === 0) return;
    width = now;
    box.replaceChildren(draw(now));
  }).observe(box);
  return box;
}
