// Ranks by host, series by group, and what people add to runs.
import assert from 'node:assert/strict';
import { json, open, patient } from './page_support.mjs';

const RUN = 'dense-13b-fp16-lr3';
const card = 'section[aria-label="Ranks by host"]';
const plain = (words) => words.replaceAll('\u00a0', ' ');

// 512 of 4,096 ranks on 64 hosts: one is slow, one is not connected, one has a hostile name.
export function manyRanks() {
  const all = Array.from({ length: 512 }, (_, i) => i);
  return {
    world: 4096, seen: 512, missing: 3584, missing_ranges: [[512, 4095]], left_out: 0,
    hosts: Array.from({ length: 64 }, (_, i) => (i === 7 ? '<img src=x onerror=window.hacked=1>' : 'node' + i)),
    rank: all, host: all.map((i) => i >> 3), through: all.map(() => 899), state: all.map((i) => (i >> 3 === 40 ? 'away' : 'connected')),
    value: all.map((i) => (i >> 3 === 12 ? 3.8 : i === 9 ? null : 2.9)),
  };
}

async function ranksByHost(page, server) {
  await page.route('**/ranks?*', (route) => route.fulfill({ json: manyRanks() }));
  for (const [scheme, width] of [['light', 1280], ['dark', 400]]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto('about:blank');
    await open(page, server, '/run/' + RUN);
    await page.waitForSelector(card + ' canvas');
    const words = plain(await page.locator(card).innerText());
    assert.match(words, /3,584 ranks of 4,096 never reported: 512–4095/);
    assert.match(words, /8 ranks on 1 host not connected: node40/);
    assert.match(words, /1 host above the median: node12 \+31 %/);
    const box = await page.locator(card + ' canvas').boundingBox();
    assert.ok(box.width <= width && box.height < 700, JSON.stringify(box));
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  // By keyboard, each rank is read; the last cells are missing ranks.
  const readout = page.locator(card + ' .readout');
  await page.locator(card + ' canvas').focus();
  await page.keyboard.press('ArrowRight');
  assert.match(await readout.innerText(), /node0, rank 1: step_seconds 2.9, complete through step 899, connected/);
  for (let i = 0; i < 7; i++) await page.keyboard.press('ArrowDown');
  assert.match(await readout.innerText(), /^<img src=x onerror=window.hacked=1>, rank 57/);
  for (let i = 0; i < 200; i++) await page.keyboard.press('ArrowDown');
  assert.match(await readout.innerText(), /ranks 4088–4095: never reported/);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  // The chosen series is in the address.
  await page.getByLabel('Series by rank').selectOption('loss');
  await page.waitForFunction(() => location.hash.includes('ranks=loss'));
  await page.unroute('**/ranks?*');
  // A run of one rank has no such card.
  await page.goto('about:blank');
  await open(page, server, '/run/vlm-3b-sft-2');
  const { value } = await json(server, 'runs/vlm-3b-sft-2');
  assert.equal(await page.locator(card).isVisible(), value.world > 1);
}

async function seriesInGroups(page, server) {
  await open(page, server, '/run/' + RUN);
  await page.waitForSelector('section[aria-label="Series"] .srow button');
  const groups = await page.locator('section[aria-label="Series"] details b').allInnerTexts();
  assert.deepEqual(groups.slice(0, 3), ['Loss and schedule', 'Time and memory', 'layers.15']);
  const first = await page.locator('section[aria-label="Series"] details').first().locator('.nm.linkish').allInnerTexts();
  assert.deepEqual(first, ['loss', 'lr', 'grad_norm']);
}

async function edits(page, server) {
  const row = (run) => page.locator(`[data-key="${run}"]`);
  const gone = (run) => page.waitForFunction((one) => !document.querySelector(`[data-key="${one}"]`), run);
  const select = async (run) => page.locator('.rwrap', { has: row(run) }).locator('input').check();
  const button = (name) => page.locator('.selection').getByRole('button', { name }).click();
  await page.goto('about:blank');
  await open(page, server, '/');
  await select('vlm-3b-sft-2');
  await button('Tag…');
  await page.locator('dialog input').fill('#good <b>x</b>');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => [...document.querySelectorAll('.runtag')].map((one) => one.textContent).join(' ') === '#<b>x</b> #good');
  await button('Note…');
  await page.locator('dialog textarea').fill('the lr was too high');
  await page.locator('dialog').getByRole('button', { name: 'Save' }).click();
  await page.waitForFunction(() => !document.querySelector('dialog[open]'));
  await button('Rename…');
  await page.locator('dialog input').fill('baseline <i>2</i>');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('[data-key="vlm-3b-sft-2"] .n').textContent === 'baseline <i>2</i>');
  // A filter finds the tag, the name and the note.
  for (const word of ['#good', 'baseline <i>', 'lr was']) {
    await page.fill('.listbar input', word);
    await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 1);
  }
  await page.fill('.listbar input', '');
  await open(page, server, '/run/vlm-3b-sft-2');
  assert.match(await page.locator('main').innerText(), /baseline <i>2<\/i>[\s\S]*#good[\s\S]*the lr was too high/);
  // Archived runs are in their own list, and come back.
  await open(page, server, '/');
  await select('vlm-3b-sft-2');
  await button('Archive');
  await gone('vlm-3b-sft-2');
  await page.getByLabel('State').selectOption('archived');
  await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 1);
  await button('Undo');
  await page.getByLabel('State').selectOption('');
  await row('vlm-3b-sft-2').waitFor();
  // A run with connected ranks is not deleted, and the reason is shown.
  await button('Delete…');
  await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.waitForFunction(() => /ranks of it are connected/.test(document.querySelector('dialog .dlgerr')?.textContent ?? ''));
  await page.keyboard.press('Escape');
  for (let i = 0; i < 3; i++) {
    await button('Undo');
    await page.waitForTimeout(100);
  }
  await page.waitForFunction(() => document.querySelectorAll('.runtag').length === 0);
}

export async function runTests(test, browser, server) {
  const page = patient(await browser.newPage({ viewport: { width: 1280, height: 900 } }));
  await test('ranks by host: slow, missing and unconnected ones, by keyboard, in both widths', () => ranksByHost(page, server));
  await test('series are grouped, loss, rate and gradient norm first', () => seriesInGroups(page, server));
  await test('runs: tag, note, rename, archive, delete, undo', () => edits(page, server));
  await page.close();
}
