// What users of experiment trackers expect of plots, comparisons and lists, in a real browser.
import assert from 'node:assert/strict';
import { open, patient } from './page_support.mjs';

const RUN = 'dense-13b-fp16-lr3';
const plain = (words) => words.replaceAll('\u00a0', ' ');
const picture = (page) => page.evaluate(() => document.querySelector('.plotpad .uplot canvas').toDataURL());

// Answers a request of the page with the server's answer, changed.
const altered = (page, address, change) => page.route(address, async (route) => {
  const answer = await route.fetch();
  const value = await answer.json();
  await route.fulfill({ response: answer, json: change(value) ?? value });
});
const each = (value, change) => {
  for (const group of value.groups ?? []) for (const one of group.series ?? []) change(one);
  for (const one of value.series ?? []) change(one);
};

async function axesAndValues(page, server) {
  // The gradient norm stands for a count of tokens.
  await altered(page, '**/series?*', (value) => each(value, (one) => { if (one.series === 'grad_norm') one.is = 'tokens'; }));
  await altered(page, '**/series', (value) => each(value, (one) => { if (one.series === 'grad_norm') one.is = 'tokens'; }));
  await altered(page, '**/points?series=lr&px=120*', (value) => { value.mean = value.mean.map(() => 417847000000); });
  await page.goto('about:blank');
  await open(page, server, '/run/' + RUN);
  await page.waitForSelector('.plotpad .uplot canvas');
  await page.waitForFunction(() => document.querySelector('section[aria-label="Series"]').innerText.includes('418\u00a0G'));
  const hover = async () => {
    await page.locator('.plotpad .u-over').hover({ position: { x: 200, y: 100 } });
    await page.waitForFunction(() => /step/.test(document.querySelector('.readout').innerText));
    return page.evaluate(() => document.querySelector('.readout').innerText.replaceAll('\u00a0', ' '));
  };
  assert.match(await hover(), /steps? [\d–,]+: loss [\d.]+, [\d.]+ to [\d.]+/);
  const options = await page.getByLabel('Axis', { exact: true }).locator('option').allInnerTexts();
  assert.deepEqual(options.slice(0, 3), ['step', 'tokens: grad_norm', 'time: step_seconds']);
  for (const axis of ['step_seconds', 'grad_norm']) {
    const before = await picture(page);
    await page.getByLabel('Axis', { exact: true }).selectOption(axis);
    await page.waitForFunction((name) => location.hash.includes('x=' + name), axis);
    await page.waitForFunction((old) => document.querySelector('.plotpad .uplot canvas').toDataURL() !== old, before);
    assert.match(await hover(), /loss [\d.]+/);
  }
  await page.getByLabel('Axis', { exact: true }).selectOption('step');
  await page.unroute('**/series?*');
  await page.unroute('**/series');
  await page.unroute('**/points?series=lr&px=120*');
}

async function zoomByHand(page, server) {
  await page.goto('about:blank');
  await open(page, server, '/run/' + RUN);
  await page.waitForSelector('.plotpad .uplot canvas');
  // A finding is marked where it begins: the plot has the colour of errors there.
  const marks = await page.evaluate(() => {
    const canvas = document.querySelector('.plotpad .uplot canvas');
    const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    Object.assign(probe.canvas, { width: canvas.width, height: 40 });
    probe.drawImage(canvas, 0, 0);
    const wanted = getComputedStyle(document.documentElement).getPropertyValue('--error').trim();
    probe.fillStyle = wanted;
    probe.fillRect(0, 0, 1, 1);
    const data = probe.getImageData(0, 0, canvas.width, 40).data;
    let found = 0;
    for (let i = 4; i < data.length; i += 4) if ([0, 1, 2].every((k) => data[i + k] === data[k])) found++;
    return found;
  });
  assert.ok(marks > 10, String(marks));
  const area = page.locator('.plotpad .u-over');
  await area.scrollIntoViewIfNeeded();
  const box = await area.boundingBox();
  const drag = async (from, to) => {
    await page.mouse.move(box.x + from[0], box.y + from[1]);
    await page.mouse.down();
    await page.mouse.move(box.x + to[0], box.y + to[1], { steps: 5 });
    await page.mouse.up();
  };
  const before = await picture(page);
  await drag([300, 60], [304, 200]);  // along the values
  await page.waitForFunction((old) => document.querySelector('.plotpad .uplot canvas').toDataURL() !== old, before);
  assert.ok(!(await page.evaluate(() => location.hash)).includes('from='));
  await page.getByLabel('All values').click();
  await drag([100, 120], [400, 124]);  // along the steps
  await page.waitForFunction(() => /from=\d+/.test(location.hash));
  await page.keyboard.press('0');
}

async function eightRuns(page, server, hostile) {
  const names = ['vlm-3b-sft-2', 'dense-1b-baseline-12', 'tokenizer-sweep-03', RUN, 'demo-score-drop', 'moe-48b-pretrain-7', 'live', hostile];
  for (const width of [400, 1280]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto('about:blank');
    await open(page, server, '/compare/' + [...names, 'ninth'].map(encodeURIComponent).join('/') + '?log=1&smooth=0.6');
    await page.waitForSelector('figure .uplot canvas');
    const words = plain(await page.locator('main').innerText());
    assert.match(words, /Compare 8 runs/);
    for (const name of names.slice(0, 7)) assert.ok(words.includes(name), name);
    assert.ok(words.includes('<img src=x onerror=window.hacked=1>'));
    assert.ok(!words.includes('ninth'));
    assert.equal(await page.getByRole('button', { name: 'Log' }).first().getAttribute('aria-pressed'), 'true');
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }
  await page.waitForFunction(() => document.querySelector('figcaption').innerText.length > 20);
  await page.locator('figure .u-over').first().hover({ position: { x: 150, y: 60 } });
  await page.waitForFunction(() => (document.querySelector('.readout').innerText.match(/[A-H] /g) ?? []).length >= 5);
  // What differs between the runs is a table; another series of all runs is chosen.
  await open(page, server, '/compare/' + names.slice(0, 3).join('/'));
  await page.waitForSelector('figure .uplot canvas');
  assert.match(plain(await page.locator('main').innerText()), /State[\s\S]*Steps[\s\S]*Ranks/);
  const series = page.getByLabel('Series', { exact: true });
  await series.selectOption('lr');
  await page.waitForFunction(() => location.hash.includes('series=lr'));
}

async function manyRuns(page, server) {
  await altered(page, '**/api/v1/runs', (value) => {
    const healthy = value.runs.find((one) => one.state === 'ok' || one.state === 'done');
    for (let i = 0; i < 40; i++) value.runs.push({ ...healthy, judged: 11080, put_aside: 3, run: `sweep/lr_${i}.x`, owner: i % 2 ? 'ann' : '<img src=x onerror=window.hacked=1>' });
  });
  for (const [scheme, width] of [['light', 1280], ['dark', 400]]) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme: scheme });
    await page.goto('about:blank');
    await open(page, server, '/');
    // Healthy and finished runs are folded, with their number.
    const fold = page.locator('details.quietruns');
    assert.equal(await fold.evaluate((one) => one.open), false);
    assert.match(await fold.locator('summary').innerText(), /4\d healthy or finished/);
    await fold.locator('summary').click();
    const row = page.locator('[data-key="sweep/lr_7.x"]');
    if (width > 1080) assert.ok((await row.boundingBox()).height <= 46);
    assert.equal(await row.locator('.n wbr').count(), 3);
    assert.match(await row.innerText(), /ann/);
    assert.ok(!/Owner: *$/.test(plain(await page.locator('[data-key="vlm-3b-sft-2"]').innerText())));
    assert.equal(await page.locator('.unowned:visible').count() > 0, width > 1080);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    await page.getByLabel('Owner').selectOption('ann');
    await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 20 && location.hash.includes('owner=ann'));
    await page.fill('.listbar input', 'owner:<img');
    await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 0);
    await page.getByLabel('Owner').selectOption('');
    await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 20);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
  }
  await page.setViewportSize({ width: 1280, height: 900 });
  // The address has the owner.
  await page.goto('about:blank');
  await open(page, server, '/?owner=ann');
  assert.equal(await page.locator('.rrow').count(), 20);
  await page.unroute('**/api/v1/runs');
}

async function linesAndLostTime(page, server, fingerprint) {
  const file = '/home/<b>me</b>/' + 'x'.repeat(200) + '/train.py';
  await altered(page, '**/api/v1/incidents/*', (value) => {
    Object.assign(value.site_rows[0], { file, line: 57 });
    value.lost = { rank_seconds: 44640, on_gpus: true, of: '8 ranks made no step for 5580 s' };
  });
  for (const width of [1280, 400]) {
    await page.setViewportSize({ width, height: 900 });
    await page.goto('about:blank');
    await open(page, server, '/incident/' + fingerprint);
    const words = plain(await page.locator('main').innerText());
    assert.ok(words.includes(file + ':57'), words);
    assert.match(words, /12\.4 GPU h lost: 8 ranks made no step for 5580 s/);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    assert.equal(await page.locator('main b', { hasText: /^me$/ }).count(), 0);
  }
  await page.unroute('**/api/v1/incidents/*');
  // If it was not measured, nothing is stated.
  await altered(page, '**/api/v1/incidents/*', (value) => { value.lost = null; });
  await page.goto('about:blank');
  await open(page, server, '/incident/' + fingerprint);
  assert.ok(!/lost/.test(plain(await page.locator('.facts').first().innerText())));
  await page.unroute('**/api/v1/incidents/*');
  await page.setViewportSize({ width: 1280, height: 900 });
}

async function smallOnes(page, server, fingerprint) {
  await page.setViewportSize({ width: 400, height: 800 });
  await open(page, server, '/');
  await page.keyboard.press('/');
  await page.waitForSelector('dialog[open]');
  const dialog = await page.locator('dialog[open]').boundingBox();
  assert.ok(dialog.x >= 0 && dialog.x + dialog.width <= 400, JSON.stringify(dialog));
  await page.keyboard.press('Escape');
  await page.setViewportSize({ width: 1280, height: 900 });
  // Printed, an incident has its witness and its text.
  await page.emulateMedia({ media: 'print' });
  await open(page, server, '/incident/' + fingerprint);
  for (const part of ['.alarm', 'figure svg', 'section.card']) {
    const box = await page.locator('main ' + part).first().boundingBox();
    assert.ok(box && box.width > 100 && box.height > 40, part);
  }
  assert.ok(plain(await page.locator('main').innerText()).includes('Complete fix'));
  await page.emulateMedia({ media: 'screen' });
}

export async function plotTests(test, browser, server, { leak, hostile }) {
  const page = patient(await browser.newPage({ viewport: { width: 1280, height: 900 } }));
  await test('a plot over tokens and over time, with mean, min and max at the cursor', () => axesAndValues(page, server));
  await test('a plot is zoomed by hand on both axes, and marks findings', () => zoomByHand(page, server));
  await test('up to eight runs are compared, in both widths', () => eightRuns(page, server, hostile));
  await test('many healthy runs are folded; runs of one owner are chosen', () => manyRuns(page, server));
  await test('an incident names the trainer\'s line and the time that was lost', () => linesAndLostTime(page, server, leak));
  await test('find at 400 px, and an incident in print', () => smallOnes(page, server, leak));
  await page.close();
}
