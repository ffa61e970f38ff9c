// Draws curves of one or several runs over steps with uPlot, with the findings of the run.
import type uPlot from 'uplot';
import type { IncidentRow, Points } from './api';
import { aligned, calmExtent, smoothed, type Curve, type Extent } from './curve_math';
import { h } from './dom';
import { num, whole } from './format';
import { GUTTER, RIGHT, badStretches, css } from './plots';
import type { Range } from './run_axis';

// The library of curves is loaded after the first facts, like the curves.
let Library: typeof uPlot | null = null;
const library = async (): Promise<void> => { Library ??= (await import('uplot')).default; };

// The choices for the drawing of curves.
export interface Look {
  log: boolean;
  smooth: number;  // weight of the moving average; 0 for none
  clip: boolean;   // the axis leaves out the most extreme values
  x: ((step: number) => number) | null;  // the axis, if it is not steps
}
export const PLAIN: Look = { log: false, smooth: 0, clip: false, x: null };

export interface Plot {
  element: HTMLElement;
  ready(): Promise<void>;  // resolves when it can draw; loads the library of curves once
  // `shown`: the steps of the axis. If absent, uses the steps of the curves.
  update(curves: Curve[], marks: IncidentRow[], shown?: Range): void;
  look(look: Look): void;
  zoomY(by: number): void;  // 0 returns to the whole range
  notes(): string[];  // returns notes on values that are not drawn
  png(): Promise<Blob | null>;
  resize(): void;
  destroy(): void;
}

// Colours repeat after four curves; further lines are dashed.
export const colourOf = (i: number): string => `var(--s${(i % 4) + 1})`;
export const dashOf = (i: number): number[] => (i < 4 ? [] : [6, 3]);

function hatchFill(context: CanvasRenderingContext2D, x: number, y: number, w: number, height: number): void {
  context.save();
  context.beginPath();
  context.rect(x, y, w, height);
  context.clip();
  context.fillStyle = css('--error-bg');
  context.fillRect(x, y, w, height);
  context.strokeStyle = css('--hatch');
  context.globalAlpha = 0.5;
  context.lineWidth = 1.5 * devicePixelRatio;
  context.beginPath();
  const gap = 8 * devicePixelRatio;
  for (let d = x - height; d < x + w; d += gap) {
    context.moveTo(d, y + height);
    context.lineTo(d + height, y);
  }
  context.stroke();
  context.restore();
}

export function curvePlot(name: string, height: number, onZoom: (from: number, to: number) => void, onCursor: (step: number | null) => void): Plot {
  const element = h('div', { class: 'plot', role: 'img', 'aria-label': `${name} over steps` });
  let plot: uPlot | null = null;
  let curves: Curve[] = [];
  let marks: IncidentRow[] = [];
  let shown: Range | undefined;
  let look = PLAIN;
  let steps: number[] = [];
  let clipped: (Extent & { outside: number }) | null = null;
  let chosenY: Extent | null = null;  // range of the axis chosen by a zoom
  let notDrawn = 0;
  let gone = false;

  const X = (step: number): number => look.x?.(step) ?? step;
  const fits = (v: number): boolean => !look.log || v > 0;

  // ---- what is drawn on uPlot's canvas ----

  const drawBad = (u: uPlot): void => {
    const { ctx, bbox } = u;
    // Hatches all curves together, so that the lines of their hatches are aligned.
    for (const { points } of curves) {
      for (const stretch of badStretches(points)) {
        const left = Math.max(bbox.left, u.valToPos(X(stretch.from), 'x', true) - 0.5);
        const right = Math.min(bbox.left + bbox.width, Math.max(u.valToPos(X(stretch.to + 1), 'x', true), left + 2));
        if (right > left) hatchFill(ctx, left, bbox.top, right - left, bbox.height);
      }
    }
  };
  const within = (u: uPlot, draw: () => void): void => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw();
    ctx.restore();
  };
  // Draws the range of each column as a vertical stroke.
  const drawRange = (u: uPlot, points: Points, colour: string): void => within(u, () => {
    if (!points.min || !points.max) return;
    const { ctx } = u;
    ctx.strokeStyle = colour;
    ctx.globalAlpha = look.smooth ? 0.15 : 0.45;
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    points.step.forEach((step, i) => {
      const [low, high] = [points.min![i], points.max![i]];
      if (low === null || high === null || !fits(low)) return;
      const x = u.valToPos(X(step), 'x', true);
      ctx.moveTo(x, u.valToPos(low, 'y', true));
      ctx.lineTo(x, u.valToPos(high, 'y', true) - 1);
    });
    ctx.stroke();
  });
  // Marks values outside the axis by triangles at its edge, at most one per 14 px.
  const drawOutside = (u: uPlot): void => {
    const { ctx, bbox } = u;
    const { min, max } = u.scales.y;
    if (min === undefined || max === undefined || (!clipped && !chosenY)) return;
    const size = 4 * devicePixelRatio;
    const last = [-1e9, -1e9];
    curves.forEach(({ points }, c) => points.step.forEach((step, i) => {
      const v = points.mean?.[i];
      if (typeof v !== 'number' || !fits(v) || (v >= min! && v <= max!)) return;
      const x = u.valToPos(X(step), 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) return;
      const up = v > max!;
      const apart = 14 * devicePixelRatio;
      if (Math.abs(x - last[up ? 1 : 0]) < apart) return;
      last[up ? 1 : 0] = x;
      const y = up ? bbox.top : bbox.top + bbox.height;
      ctx.fillStyle = css(`--s${(c % 4) + 1}`);
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(x - size, y + (up ? size : -size));
      ctx.lineTo(x + size, y + (up ? size : -size));
      ctx.fill();
    }));
  };
  const drawMarks = (u: uPlot): void => {
    const { ctx, bbox } = u;
    for (const mark of marks) {
      const x = u.valToPos(X(mark.step_first), 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      const first = mark === marks[0];
      ctx.save();
      ctx.strokeStyle = css(first ? '--ink' : '--line-strong');
      ctx.lineWidth = (first ? 1.25 : 1) * devicePixelRatio;
      if (!first) ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.setLineDash([]);
      ctx.fillStyle = css(mark.level === 'error' ? '--error' : mark.level === 'warning' ? '--warn-fill' : '--note');
      ctx.beginPath();
      ctx.arc(x, bbox.top + 5 * devicePixelRatio, 4 * devicePixelRatio, 0, 7);
      ctx.fill();
      ctx.restore();
    }
  };

  // ---- the library ----

  // Returns one line per curve. With smoothing, returns two: the values in a pale colour, and their average.
  function dataOf(): uPlot.AlignedData {
    const all = aligned(curves);
    steps = all.steps;
    notDrawn = 0;
    const values = all.values.map((one) => one.map((v) => {
      if (v === null || fits(v)) return v;
      notDrawn++;
      return null;
    }));
    clipped = look.clip && !chosenY ? calmExtent(curves) : null;
    if (clipped && !fits(clipped.low)) clipped = null;
    return [steps.map(X), ...values.flatMap((one) => (look.smooth ? [one, smoothed(one, look.smooth)] : [one]))] as uPlot.AlignedData;
  }
  function rangeY(low: number | null, high: number | null): [number, number] {
    const extent = chosenY ?? clipped;
    if (extent && (!look.log || extent.low > 0)) return [extent.low, extent.high];
    if (low === null || high === null) return look.log ? [0.1, 1] : [0, 1];
    if (look.log) return low === high ? [low / 2, high * 2] : [low * 0.9, high * 1.1];
    if (low === high) return [low - Math.abs(low || 1) * 0.05, high + Math.abs(high || 1) * 0.05];
    return [low - (high - low) * 0.06, high + (high - low) * 0.06];
  }
  function lines(): uPlot.Series[] {
    return curves.flatMap((one, i): uPlot.Series[] => {
      const stroke = css(`--s${(i % 4) + 1}`);
      const line = { stroke, width: 1.4, dash: dashOf(i), points: { show: one.points.step.length === 1 }, spanGaps: curves.length > 1 };
      return look.smooth ? [{ ...line, alpha: 0.3, width: 1 }, { ...line, width: 2 }] : [line];
    });
  }
  function selected(u: uPlot): void {
    const { left, top, width, height: high } = u.select;
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    const whole_ = u.over.clientHeight;
    if (high > 4 && high < whole_ - 1) {
      chosenY = { low: u.posToVal(top + high, 'y'), high: u.posToVal(top, 'y') };
      redraw();
    }
    if (width < 4 || width > u.over.clientWidth - 1) return;
    const stepAt = (x: number): number => steps[u.valToIdx(u.posToVal(x, 'x'))];
    if (look.x) onZoom(stepAt(left), stepAt(left + width));
    else onZoom(Math.round(u.posToVal(left, 'x')), Math.round(u.posToVal(left + width, 'x')));
  }
  function make(): void {
    if (!Library || gone) return;
    plot?.destroy();
    const data = dataOf();
    const font = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';
    const axis = (side: number, size: number, show: (v: number) => string): uPlot.Axis => ({
      side, size, font, stroke: css('--ink-3'), gap: 6,
      grid: { stroke: css('--grid'), width: 1 }, ticks: { stroke: css('--line-strong'), width: 1, size: 4 },
      values: (_u, splits) => splits.map((v) => (v === null ? '' : show(v))),
    });
    const each = look.smooth ? 2 : 1;
    plot = new Library({
      width: Math.max(120, element.clientWidth || 600), height, padding: [8, RIGHT, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: (_u, low, high) => (shown ? [X(shown.from), Math.max(X(shown.to), X(shown.from) + 1e-9)] : [low, high]) },
        y: { distr: look.log ? 3 : 1, range: (_u, low, high) => rangeY(low, high) },
      },
      cursor: { y: false, drag: { x: true, y: true, uni: 24, setScale: false }, points: { size: 6 } },
      axes: [axis(2, 30, (v) => (look.x ? num(Number(v.toPrecision(4))) : Number.isInteger(v) ? whole(v) : '')), axis(3, GUTTER, (v) => num(Number(v.toPrecision(4))))],
      series: [{}, ...lines()],
      hooks: {
        drawClear: [drawBad],
        // A plot that was replaced may draw once more, so ignores it.
        drawSeries: [(u, i) => {
          const one = (i - 1) % each === 0 && u === plot ? curves[(i - 1) / each] : undefined;
          if (one) drawRange(u, one.points, css(`--s${(((i - 1) / each) % 4) + 1}`));
        }],
        draw: [drawMarks, drawOutside],
        setCursor: [(u) => onCursor(u.cursor.idx === null || u.cursor.idx === undefined ? null : steps[u.cursor.idx])],
        setSelect: [(u) => { if (u.select.width >= 4 || u.select.height > 4) selected(u); }],
      },
    }, data, element);
  }
  let drawn = '';  // the lines that the library knows
  function redraw(): void {
    const now = JSON.stringify([curves.length, look.log, look.smooth > 0, curves[0]?.points.step.length === 1]);
    if (plot && now === drawn) {
      plot.setData(dataOf());
    } else if (Library && curves.some((one) => one.points.step.length)) {
      drawn = now;
      make();
    }
  }
  return {
    element,
    ready: () => library().then(() => { if (!plot) redraw(); }),
    update(now, found, range) {
      curves = now;
      marks = found;
      shown = range;
      if (Library) redraw();
      else void this.ready();
    },
    look(now) {
      if (now.log !== look.log) chosenY = null;
      look = now;
      redraw();
    },
    zoomY(by) {
      const scale = plot?.scales.y;
      if (!by || scale?.min === undefined || scale.max === undefined) {
        chosenY = null;
      } else {
        const [low, high] = look.log ? [Math.log(scale.min!), Math.log(scale.max!)] : [scale.min!, scale.max!];
        const half = ((high - low) / 2) * by;
        const ends = [(low + high) / 2 - half, (low + high) / 2 + half].map((v) => (look.log ? Math.exp(v) : v));
        chosenY = { low: ends[0], high: ends[1] };
      }
      redraw();
    },
    notes: () => [clipped ? `${whole(clipped.outside)} outside the axis (triangles at its edge)` : '', notDrawn ? `${whole(notDrawn)} at most 0, which a log axis cannot show` : ''].filter(Boolean),
    async png() {
      const from = plot?.ctx.canvas;
      if (!from) return null;
      const picture = h('canvas', {});
      [picture.width, picture.height] = [from.width, from.height];
      const context = picture.getContext('2d')!;
      context.fillStyle = css('--surface');
      context.fillRect(0, 0, picture.width, picture.height);
      context.drawImage(from, 0, 0);
      return new Promise((done) => picture.toBlob(done));
    },
    resize: () => { if (steps.length || curves.length) make(); },
    destroy() {
      gone = true;
      plot?.destroy();
    },
  };
}
