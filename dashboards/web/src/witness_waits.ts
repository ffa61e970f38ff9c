// Draws the waits between ranks. Ranks in the same state are a box, and arrows go from waiting ranks to the ranks that
// they wait for.
import type { Finding, Value } from './api';
import { clean, whole } from './format';
import { picture, words } from './plots';
import { h, markAt, s } from './dom';
import { fieldsTable, fitted, isFields, isNumber, numbersOf, textOf, type Drawn } from './witness_parts';

interface Node { ranks: number[]; count: number; at: string; culprit: boolean }
interface Graph { nodes: Node[]; edges: [number, number][] }

const ranksOf = (value: Value | undefined): number[] => numbersOf(value).filter(Number.isFinite);

function rankWords(ranks: number[], count: number): string {
  const out: string[] = [];
  for (let i = 0; i < ranks.length;) {
    let last = i;
    while (last + 1 < ranks.length && ranks[last + 1] === ranks[last] + 1) last++;
    out.push(last > i ? `${ranks[i]}–${ranks[last]}` : String(ranks[i]));
    i = last + 1;
  }
  const named = out.length > 6 || count > ranks.length ? out.slice(0, 6).join(', ') + ', …' : out.join(', ');
  return count === 1 ? `rank ${named}` : `${whole(count)} ranks: ${named}`;
}

function graphOf(finding: Finding): Graph | null {
  const { waits } = finding.witness;
  if (isFields(waits) && Array.isArray(waits.nodes)) {
    const nodes = waits.nodes.filter(isFields).map((node) => ({ ranks: ranksOf(node.ranks), count: isNumber(node.count) ? node.count : 0, at: textOf(node.at), culprit: node.culprit === true }));
    const [from, to] = [numbersOf(waits.from), numbersOf(waits.to)];
    const edges = from.map((one, i): [number, number] => [one, to[i]]).filter(([a, b]) => nodes[a] && nodes[b]);
    if (nodes.length > 0) return { nodes, edges };
  }
  // Fields that every finding of this kind has.
  const [culprits, waiting] = [ranksOf(finding.details.ranks), ranksOf(finding.details.waiting)];
  if (culprits.length === 0 || waiting.length === 0) return null;
  const kind = textOf(finding.details.kind).replaceAll('-', ' ');
  return { nodes: [{ ranks: waiting, count: waiting.length, at: 'wait, directly or through a group', culprit: false }, { ranks: culprits, count: culprits.length, at: kind || 'stand', culprit: true }], edges: [[0, 1]] };
}

const HEIGHT = 64;
const GAP = 18;

function draw(width: number, graph: Graph): SVGElement {
  const narrow = width < 620;
  const culprits = graph.nodes.map((node, i) => ({ node, i })).filter((one) => one.node.culprit);
  const others = graph.nodes.map((node, i) => ({ node, i })).filter((one) => !one.node.culprit);
  const boxWidth = narrow ? width - 22 : culprits.length ? width * 0.42 : Math.min(width - 40, 560);
  const at = new Map<number, { x: number; y: number }>();
  const step = HEIGHT + GAP;
  const column = Math.max(others.length, 1) * step;
  // The ranks that the finding names are on the right, in the middle of the column. On a small screen they are on top.
  culprits.forEach((one, i) => at.set(one.i, narrow ? { x: 20, y: 6 + i * step } : { x: width - boxWidth - 1, y: Math.max(6, 6 + (column - culprits.length * step) / 2 + i * step) }));
  others.forEach((one, i) => at.set(one.i, { x: narrow ? 20 : 19, y: 6 + (narrow ? culprits.length * step + i * step : i * step) }));
  const parts: SVGElement[] = [];
  const arrow = (x: number, y: number, way: string): SVGElement => s('path', { d: way === 'right' ? `M${x - 10} ${y - 5}l10 5-10 5z` : `M${x - 10} ${y - 5}l10 5-10 5z`, class: 'bob' });
  graph.edges.forEach(([from, to], n) => {
    const a = at.get(from)!;
    const b = at.get(to)!;
    const [ya, yb] = [a.y + HEIGHT / 2, b.y + HEIGHT / 2];
    if (!narrow && graph.nodes[to].culprit && !graph.nodes[from].culprit) {
      const x1 = a.x + boxWidth;
      const middle = (x1 + b.x) / 2;
      parts.push(s('path', { d: `M${x1} ${ya}C${middle} ${ya} ${middle} ${yb} ${b.x - 8} ${yb}`, class: 'pl', fill: 'none' }), arrow(b.x - 1, yb, 'right'));
    } else {
      // Draws the arrow around the left side of the column.
      const x = Math.max(3, a.x - 8 - (n % 3) * 4);
      const [y1, y2] = [ya + (to > from ? 9 : -9), yb + (to > from ? -9 : 9)];
      parts.push(s('path', { d: `M${a.x} ${y1}H${x}V${y2}H${b.x - 6}`, class: 'pl', fill: 'none' }), arrow(b.x, y2, 'right'));
    }
  });
  graph.nodes.forEach((node, i) => {
    const { x, y } = at.get(i)!;
    const letters = Math.floor((boxWidth - 28) / 6.3);
    parts.push(s('rect', { x: x + 1, y, width: boxWidth - 2, height: HEIGHT, rx: 6, fill: node.culprit ? 'var(--error-bg)' : 'var(--surface)', stroke: node.culprit ? 'var(--error)' : 'var(--line-strong)', 'stroke-width': node.culprit ? 2.5 : 1.2 }),
      ...(node.culprit ? [markAt('error', x + 22, y + 21, 20)] : []), words(x + (node.culprit ? 40 : 14), y + 26, clean(rankWords(node.ranks, node.count), letters), node.culprit ? 'b e' : 'b t1'),
      words(x + 14, y + 48, clean(node.at, letters), 't1'));
  });
  const height = Math.max(...[...at.values()].map((one) => one.y)) + HEIGHT + 8;
  const named = culprits.map((one) => rankWords(one.node.ranks, one.node.count)).join('; ');
  return picture(width, height, named ? `${others.map((one) => rankWords(one.node.ranks, one.node.count)).join('; ')} wait for ${named}` : 'Which ranks wait for which', ...parts);
}

export function waitWitness(finding: Finding): Drawn | null {
  const graph = graphOf(finding);
  if (!graph) return null;
  const named = graph.nodes.some((node) => node.culprit);
  return {
    title: 'Witness: which ranks wait for which',
    element: h('figure', { class: 'bd' }, fitted((width) => draw(width, graph)),
      h('figcaption', {}, textOf(finding.witness.text) || (named ? 'An arrow points from a waiting rank to the rank that it waits for. All arrows end at the marked ranks, which wait for no rank.' : 'No rank is named: all are in the same state.')),
      Object.keys(finding.witness).some((key) => key !== 'waits' && key !== 'text') ? fieldsTable(finding.witness, 'Witness') : null),
  };
}
