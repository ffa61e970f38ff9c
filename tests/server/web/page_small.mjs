// What is small and was wrong once: rings of the focus, labels that were covered or cut, counts next to lists, witnesses
// that were only tables.
import assert from 'node:assert/strict';
import { json, open, patient } from './page_support.mjs';

const RUN = 'dense-13b-fp16-lr3';
const plain = (words) => words.replaceAll('\u00a0', ' ');
const altered = (page, address, change) => page.route(address, async (route) => {
  const answer = await route.fetch();
  const value = await answer.json();
  await route.fulfill({ response: answer, json: change(value) ?? value });
});
const again = async (page, server, address) => {
  await page.goto('about:blank');
  await open(page, server, address);
};

// Returns what is wrong with the ring of the element that has the focus; null if the focus left the page.
const ring = () => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one);
  const box = one.getBoundingClientRect();
  const reach = style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineOffset) + parseFloat(style.outlineWidth);
  const name = one.outerHTML.slice(0, 90);
  const out = [];
  if (reach === 0 && parseFloat(style.outlineOffset) === 0) out.push('no ring: ' + name);
  for (let over = one.parentElement; over && over !== document.body; over = over.parentElement) {
    const { overflowX, overflowY } = getComputedStyle(over);
    if ((overflowX === 'visible' && overflowY === 'visible') || over.tagName === 'DIALOG') continue;
    const frame = over.getBoundingClientRect();
    if (reach > 0 && (box.left - reach < frame.left - 0.5 || box.right + reach > frame.right + 0.5 || box.top - reach < frame.top - 0.5 || box.bottom + reach > frame.bottom + 0.5)) out.push(`cut by ${over.className || over.tagName}: ${name}`);
  }
  return out;
};

async function rings(page, server, fingerprint) {
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 900 });
    for (const address of ['/', '/incident/' + fingerprint, '/run/' + RUN, '/incidents']) {
      await again(page, server, address);
      await page.keyboard.press('Tab');
      await page.keyboard.press('Enter');
      // The link to the content moves the focus, and draws no line around the whole page.
      assert.deepEqual(await page.evaluate(() => [document.activeElement.id, getComputedStyle(document.activeElement).outlineStyle]), ['main', 'none']);
      for (let i = 0; i < 60; i++) {
        await page.keyboard.press('Tab');
        assert.deepEqual((await page.evaluate(ring)) ?? [], [], `${address} at ${width} px`);
      }
    }
    // Each choice of a group is inside the window.
    await again(page, server, '/incidents');
    for (const button of await page.locator('.seg button').all()) {
      const box = await button.boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= width, `${await button.innerText()} ${JSON.stringify(box)}`);
    }
  }
}

// The ring of a field covers no part of its label.
async function labels(page, server) {
  // Of an open incident: only such a one can be acknowledged.
  const { fingerprint } = (await json(server, 'incidents?state=open')).value.incidents[0];
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 900 });
    await again(page, server, '/incident/' + fingerprint);
    for (const key of ['a', 's']) {
      await page.locator('main h1').first().waitFor();
      await page.keyboard.press(key);
      await page.waitForSelector('dialog[open]');
      for (const field of await page.locator('dialog textarea, dialog input:not([hidden]), dialog select').all()) {
        await field.focus();
        const gap = await field.evaluate((one) => {
          const words = one.closest('label').querySelector('.k');
          const range = document.createRange();
          range.selectNodeContents(words);
          const style = getComputedStyle(one);
          return one.getBoundingClientRect().top - parseFloat(style.outlineOffset) - parseFloat(style.outlineWidth) - range.getBoundingClientRect().bottom;
        });
        assert.ok(gap >= 0, `${key} at ${width} px: the label is covered by ${-gap} px`);
      }
      await page.keyboard.press('Escape');
      await page.waitForFunction(() => !document.querySelector('dialog[open]'));
      await page.waitForTimeout(100);
    }
  }
}

async function counts(page, server, fingerprint) {
  await page.setViewportSize({ width: 1280, height: 900 });
  // The server's own findings are verdicts, too. Hours are those of ranks that reported.
  await altered(page, '**/coverage', (value) => { Object.assign(value, { judged: 0, inconclusive: 5, rules: [{ rule: 'health/run-died', pass: 0, finding: 1, inconclusive: 0 }, { rule: 'meta/probe-coverage', pass: 0, finding: 1, inconclusive: 0 }, { rule: 'health/loss-spike', pass: 0, finding: 0, inconclusive: 5 }] }); });
  await altered(page, '**/api/v1/runs/' + RUN, (value) => {
    Object.assign(value, { world: 4096, seen: 512, over: false });
    Object.assign(value.worst, { where: 'blocks.1.perceptron.0.weight parameter, rank 0', opened: String(BigInt(Date.now() - 2 * 3600000) * 1000000n) });
  });
  await again(page, server, '/run/' + RUN);
  assert.match(plain(await page.locator('aside').innerText()), /Verdicts reached\s+2 of 7/);
  assert.match(plain(await page.locator('.facts').innerText()), /1,02\d rank h since/);
  // A place breaks where a name ends, not within it.
  assert.equal(await page.locator('.facts dd b wbr').count(), 4);
  // The words are in the line of their mark.
  const row = page.locator('aside .withmark');
  const [icon, words] = [await row.locator('svg').boundingBox(), await row.locator('span').boundingBox()];
  assert.ok(icon.y >= words.y - 2 && icon.y < words.y + words.height && icon.x < words.x, JSON.stringify([icon, words]));
  await page.unroute('**/coverage');
  await page.unroute('**/api/v1/runs/' + RUN);
  // A text that is copied has the time that its rule measured.
  await altered(page, '**/api/v1/incidents/*', (value) => { value.finding.lost = { rank_seconds: 5400, on_gpus: true, text: '1.5 GPU hours' }; });
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await again(page, server, '/incident/' + fingerprint);
  await page.keyboard.press('c');
  await page.waitForFunction(() => document.querySelector('.toast.on'));
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /\n {2}lost {7}1\.5 GPU hours\n/);
  await page.unroute('**/api/v1/incidents/*');
}

// Labels of rows and of findings do not cover each other.
async function mapLabels(page, server) {
  const apart = (selector) => page.evaluate((css) => {
    const boxes = [...document.querySelectorAll(css)].map((one) => one.getBoundingClientRect());
    return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1)).length;
  }, selector);
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 900 });
    await altered(page, '**/api/v1/runs/' + RUN, (value) => {
      const one = value.incidents[0];
      value.worst = { ...value.worst, where: 'loss, rank 17' };
      value.incidents = [{ ...one, fingerprint: 'a'.repeat(32), level: 'warning', step_first: 0, step_last: 20, title_short: 'ranks of the job did not report' },
        { ...one, fingerprint: 'b'.repeat(32), step_first: value.newest_step - 2, step_last: value.newest_step, title_short: 'rank 323 ended without a message' }];
    });
    await again(page, server, '/run/' + RUN);
    await page.waitForSelector('canvas.heat');
    await page.waitForSelector('.heatwrap .labels .e');
    assert.equal(await apart('.heatwrap .labels span'), 0, `rows at ${width} px`);
    const names = page.locator('svg[aria-label*=" findings, "] text.e, svg[aria-label*=" findings, "] text.w');
    if (width > 1080) assert.match((await names.allTextContents()).join('|'), /Rank 323 ended without a message/);
    assert.equal(await apart('svg[aria-label*=" findings, "] text'), 0, `findings at ${width} px`);
    await page.unroute('**/api/v1/runs/' + RUN);
  }
}

async function drawnWitnesses(page, server, fingerprint) {
  const show = async (change) => {
    await altered(page, '**/api/v1/incidents/*', change);
    await again(page, server, '/incident/' + fingerprint);
    await page.waitForSelector('figure svg[role=img]');
    const label = await page.locator('figure svg[role=img]').first().getAttribute('aria-label');
    const words = plain(await page.locator('figure').first().innerText()) + plain(await page.locator('figure svg').first().textContent());
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    await page.unroute('**/api/v1/incidents/*');
    return [label, words];
  };
  const nan = (details, symptoms = []) => (value) => {
    Object.assign(value.finding, { rule: 'precision/non-finite', witness: { order: 23, rank: 0, values: '1 NaN' }, details });
    Object.assign(value.finding.site, { layer: '<b>blocks</b>.1', op: 'weight', step_first: 30, step_last: 30 });
    value.symptoms = symptoms.map((one) => ({ ...value, symptoms: [], title: 'the loss is NaN', where: one, step_first: 31, step_last: 99, fingerprint: 'c'.repeat(32) }));
  };
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 900 });
    let [label, words] = await show(nan({ clean_step: 16 }, ['<img src=x>loss, rank 0']));
    assert.equal(label, 'first bad <b>blocks</b>.1/weight in step 30, finite in step 16');
    assert.match(words, /It was finite in step 16, and no longer in step 30\./);
    assert.match(words, /<img src=x>loss, rank 0[\s\S]*the loss is NaN/i);
    // Three steps, three states: finite, not observed, not finite.
    assert.equal(await page.locator('figure svg rect[stroke="var(--error)"]').count(), 3);
    assert.equal(await page.locator('figure svg rect[stroke="var(--ok)"]').count(), 1);
    assert.equal(await page.locator('figure svg rect[stroke="var(--line)"]').count(), 2);
    [label, words] = await show(nan({ before: 'layers.16/mlp', before_amax: 60000, clean_step: 29 }));
    assert.equal(label, 'last clean layers.16/mlp, first bad <b>blocks</b>.1/weight in step 30, finite in step 29');
    assert.match(words, /The operation between the first two tensors/);
    // 2.5 in 32 bits: sign 0, exponent 10000000, mantissa 01 and zeros.
    const stale = (witness) => (value) => { Object.assign(value.finding, { rule: 'precision/stale-gradient', witness, details: {}, sample_size: 127 }); };
    [label, words] = await show(stale({ element: 3, rank: 0, step: 3, value: 2.5 }));
    assert.match(label, /01000000001000000000000000000000$/);
    assert.equal(await page.locator('figure svg rect[fill="var(--error)"]').count(), 2 * 2);
    assert.equal(await page.locator('figure svg rect').count(), 2 * 32);
    assert.match(words, /All 32 bits are equal, as in all 127 non-zero elements/);
  }
  // A value of more bits than 32 is not drawn.
  await altered(page, '**/api/v1/incidents/*', (value) => { Object.assign(value.finding, { rule: 'precision/stale-gradient', witness: { step: 3, value: 0.1 }, details: {} }); });
  await again(page, server, '/incident/' + fingerprint);
  assert.equal(await page.locator('figure svg[role=img]').count(), 0);
  await page.unroute('**/api/v1/incidents/*');
}

export async function smallTests(test, browser, server, { leak }) {
  const page = patient(await browser.newPage({ viewport: { width: 1280, height: 900 } }));
  await test('the ring of the focus is whole, and none is around the page', () => rings(page, server, leak));
  await test('the ring of a field does not cover its label', () => labels(page, server));
  await test('verdicts, hours and places are stated as they are', () => counts(page, server, leak));
  await test('labels of ranks and of findings do not cover each other', () => mapLabels(page, server));
  await test('how NaN spread and the bits of a stale gradient are drawn', () => drawnWitnesses(page, server, leak));
  await page.close();
}
