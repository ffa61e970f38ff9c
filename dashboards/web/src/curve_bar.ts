// The controls of a plot of curves: axis, smoothing, outliers, zoom, and downloads of the curves.
import { csvOf, type Curve } from './curve_math';
import type { Look, Plot } from './curves';
import { h, toast } from './dom';

export interface BarOf {
  plot: Plot;
  curves(): Curve[];
  file(): string;  // the name of a downloaded file, without its ending
  axes(): [string, string][];  // value and text of the axes in addition to "step"
  changed(): void;  // called if choices have changed; updates the address and the data of the axis
  zoomed?(): void;  // called if the zoom has changed, so that other values are outside of the axis
}

// The choices, in the form in which the address has them.
export interface Choices { log: boolean; smooth: number; clip: boolean; x: string }
export const choicesOf = (params: URLSearchParams): Choices => ({
  log: params.get('log') === '1', clip: params.get('clip') !== '0', x: params.get('x') ?? 'step',
  smooth: Math.min(0.999, Math.max(0, Number(params.get('smooth') ?? 0) || 0)),
});
export function putChoices(of: Choices, to: URLSearchParams): void {
  if (of.log) to.set('log', '1');
  if (!of.clip) to.set('clip', '0');
  if (of.smooth) to.set('smooth', String(of.smooth));
  if (of.x !== 'step') to.set('x', of.x);
}
export const lookOf = (of: Choices, x: Look['x']): Look => ({ log: of.log, smooth: of.smooth, clip: of.clip, x });

function save(file: string, blob: Blob): void {
  const link = h('a', { href: URL.createObjectURL(blob), download: file.replace(/[^\w.-]+/g, '_').slice(0, 80) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

export function curveBar(choices: Choices, of: BarOf): { element: HTMLElement; draw(): void } {
  const element = h('div', { class: 'curvebar', role: 'group', 'aria-label': 'Plot' });
  const toggle = (text: string, key: 'log' | 'clip', title: string): HTMLElement => {
    const button = h('button', { class: 'small', title, 'aria-pressed': String(choices[key]), onclick: () => {
      choices[key] = !choices[key];
      button.setAttribute('aria-pressed', String(choices[key]));
      of.changed();
    } }, text);
    return button;
  };
  const shown = h('span', { class: 'num', 'aria-hidden': 'true' });
  const slider = h('input', { type: 'range', min: 0, max: 0.99, step: 0.01, value: String(choices.smooth), 'aria-label': 'Smoothing: weight of the moving average', oninput: () => {
    choices.smooth = Number(slider.value);
    words();
    of.changed();
  } });
  const words = (): void => { shown.textContent = choices.smooth ? choices.smooth.toFixed(2) : 'off'; };
  const axis = h('select', { 'aria-label': 'Axis', onchange: () => {
    choices.x = axis.value;
    of.changed();
  } });
  const y = (text: string, label: string, by: number): HTMLElement => h('button', { class: 'small', 'aria-label': label, title: label, onclick: () => {
    of.plot.zoomY(by);
    of.zoomed?.();
  } }, text);
  const draw = (): void => {
    const all: [string, string][] = [['step', 'step'], ...of.axes()];
    axis.replaceChildren(...all.map(([value, label]) => h('option', { value }, label)));
    axis.value = all.some(([value]) => value === choices.x) ? choices.x : 'step';
    axis.closest('label')!.hidden = all.length < 2;
  };
  element.append(
    h('span', { class: 'seg' }, toggle('Log', 'log', 'Logarithmic axis'), toggle('Clip', 'clip', 'Leave out what is beyond 1 to 99 % of the values after the first tenth')),
    h('label', {}, 'Smooth ', slider, shown), h('label', {}, 'over ', axis),
    h('span', { class: 'seg' }, y('y\u00a0+', 'Zoom in on values', 0.5), y('y\u00a0−', 'Zoom out on values', 2), y('y\u00a00', 'All values', 0)),
    h('span', { class: 'seg' }, h('button', { class: 'small', title: 'Download the picture', onclick: () => void of.plot.png().then((blob) => (blob ? save(of.file() + '.png', blob) : toast('Nothing is drawn yet'))) }, 'PNG'),
      h('button', { class: 'small', title: 'Download the values that are drawn', onclick: () => save(of.file() + '.csv', new Blob([csvOf(of.curves())], { type: 'text/csv' })) }, 'CSV')));
  words();
  draw();
  return { element, draw };
}
