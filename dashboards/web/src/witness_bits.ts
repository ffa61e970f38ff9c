// Draws the bits of one element of a gradient, at the end of a step and at the beginning of the next one: a gradient that
// is not cleared has the same ones.
import type { Finding } from './api';
import { clean, num, whole } from './format';
import { h, s } from './dom';
import { picture, words } from './plots';
import { fieldsTable, fitted, isNumber, type Drawn } from './witness_parts';

const BITS = 32;
// The first bits of the parts of a 32-bit float that follow its sign, and the parts' names.
const PARTS: [number, string][] = [[1, 'exponent'], [9, 'mantissa']];

// Returns the bits of a 32-bit float, the sign first. Returns null if the value needs more bits.
function bitsOf(value: number): string | null {
  if (Math.fround(value) !== value) return null;
  const view = new DataView(new ArrayBuffer(4));
  view.setFloat32(0, value);
  return view.getUint32(0).toString(2).padStart(BITS, '0');
}

function drawBits(width: number, bits: string, rows: string[], about: string): SVGElement {
  const gap = 6;  // between two parts
  const cell = Math.min(18, Math.floor((width - 2 * gap) / BITS));
  const X = (bit: number): number => bit * cell + gap * PARTS.filter(([first]) => bit >= first).length;
  const parts: (SVGElement | SVGElement[])[] = [];
  rows.forEach((label, row) => {
    const y = 16 + row * (cell + 30);
    parts.push(words(0, y, label, 't1'));
    for (let bit = 0; bit < BITS; bit++)
      parts.push(s('rect', { x: X(bit) + 1, y: y + 8, width: cell - 2, height: cell - 2, rx: 2, fill: bits[bit] === '1' ? 'var(--error)' : 'var(--surface)', stroke: 'var(--error)' }));
  });
  const below = 16 + rows.length * (cell + 30);
  for (const [bit, name] of PARTS) parts.push(words(X(bit), below, name, 't3'));
  return picture(width, below + 8, about, ...parts);
}

export function bitsWitness(finding: Finding): Drawn | null {
  const { value, step, element } = finding.witness;
  if (!finding.rule.endsWith('stale-gradient') || !isNumber(value) || !isNumber(step)) return null;
  const bits = bitsOf(value);
  if (bits === null) return null;
  const rows = [`after the update of step ${whole(step - 1)}`, `before the backward pass of step ${whole(step)}`];
  const where = isNumber(element) ? `element ${whole(element)} of ` : '';
  const about = `The 32 bits of ${where}the gradient, ${num(value)}, are the same ${rows[0]} and ${rows[1]}: ${bits}`;
  return {
    title: 'Witness: the gradient of the previous step, bit by bit',
    element: h('figure', { class: 'bd' }, h('div', { class: 'legend' }, h('span', { class: 'muted' }, clean(`${where}${finding.site.layer}, ${num(value)}; filled: 1`, 300))),
      fitted((width) => drawBits(width, bits, rows, about)),
      h('figcaption', {}, 'A cleared gradient is 0, or begins with other bits. ', h('b', {}, `All 32 bits are equal${finding.sample_size > 1 ? `, as in all ${whole(finding.sample_size)} non-zero elements that were compared` : ''}.`)),
      fieldsTable(finding.witness, 'Witness')),
  };
}
