// The page in a real, headless Chromium with a real plumbd and runs from agents: every view, names
// with markup, the content policy, permissions, accessibility in both themes, and live updates.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { execFileSync, spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { createServer } from 'node:http';
import { join } from 'node:path';
import assert from 'node:assert/strict';
import { axeSource, bin, endAll, eventually, feed, json, open, patient, settled, startBrowser, startServer } from './page_support.mjs';
import { lifeTests } from './page_life.mjs';
import { plotTests } from './page_plots.mjs';
import { runTests } from './page_runs.mjs';
import { smallTests } from './page_small.mjs';

const shots = process.env.PLUMB_PAGE_SHOTS ?? '';
if (shots) mkdirSync(shots, { recursive: true });
let passed = 0;
const failures = [];
async function test(name, what) {
  if (process.argv[2] && !name.includes(process.argv[2])) return;
  const began = Date.now();
  try {
    await what();
    passed++;
    console.log(`ok      ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failures.push(name);
    console.log('FAILED  ' + name + '\n' + (error.stack ?? error));
  }
}

// In every test: no foreign script runs, nothing violates the policy, and no error is uncaught.
function watchOver(page) {
  const wrong = [];
  page.on('pageerror', (error) => wrong.push('error: ' + error.message));
  page.on('console', (line) => { if (line.type() === 'error' && !/40[13489]|503|ERR_CONNECTION|Failed to load resource/.test(line.text())) wrong.push('console: ' + line.text()); });
  page.on('dialog', (dialog) => { wrong.push('dialog: ' + dialog.message()); void dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith('http://127.0.0.1:') && !request.url().startsWith('data:')) wrong.push('asks elsewhere: ' + request.url()); });
  return wrong;
}
const text = (page, selector = 'main') => page.locator(selector).first().innerText();
// Returns what makes the page scroll sideways, if anything does.
const tooWide = () => (document.documentElement.scrollWidth <= innerWidth ? []
  : [...document.querySelectorAll('main *, header *, footer *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scrollx, pre, code, svg'))
    .slice(-3).map((one) => one.outerHTML.slice(0, 100)));
const plain = (words) => words.replaceAll('\u00a0', ' ');

let kept = '';  // folder of the server's data
async function main() {
  kept = mkdtempSync(join(tmpdir(), 'plumb-kept-'));
  const server = await startServer('[liveness]\nhang_seconds = 0.3\n', ['--data', kept]);
  const browser = await startBrowser();
  const feeder = await feed(server);
  // A hang takes about ten seconds, so tests without one run first.
  await settled(server, { hang: false });
  const of = async (rule, run = '') => (await json(server, 'incidents?state=all')).value.incidents.find((one) => one.rule === rule && one.run.includes(run));
  const { fingerprint: leak } = await of('causality/moe-future-leak', 'demo');
  const evil = await of('causality/moe-future-leak', 'evil');
  const views = {
    runs: '/', run: '/run/dense-13b-fp16-lr3', incidents: '/incidents', 'incident-leak': '/incident/' + leak, 'incident-nan': '/incident/' + (await of('health/loss-non-finite')).fingerprint,
    hostile: '/incident/' + evil.fingerprint, 'hostile-run': '/run/' + encodeURIComponent(evil.run), rule: '/rule/causality/moe-future-leak', rules: '/rules', compare: '/compare?a=vlm-3b-sft-2&b=dense-1b-baseline-12',
  };
  const page = patient(await browser.newPage({ viewport: { width: 1280, height: 900 } }));
  const wrong = watchOver(page);

  await test('axe-core finds nothing, and no view scrolls sideways, in both themes at 1280 and 400 px', async () => {
    const axe = axeSource();
    const long = process.env.PLUMB_LONG === '1' || shots;
    for (const width of [1280, 400]) {
      const context = patient(await browser.newContext({ viewport: { width, height: 900 }, bypassCSP: true }));
      const narrow = await context.newPage();
      for (const theme of long ? ['light', 'dark'] : width === 1280 ? ['light'] : ['dark']) {
        await narrow.emulateMedia({ colorScheme: theme });
        for (const [name, address] of Object.entries(views)) {
          await open(narrow, server, address);
          await narrow.waitForTimeout(100);
          if (shots) await narrow.screenshot({ path: join(shots, `${name}-${theme}-${width}.png`), fullPage: true });
          assert.deepEqual(await narrow.evaluate(tooWide), [], `${name} scrolls sideways at ${width} px`);
          if (!long && !['runs', 'run', 'incident-leak', 'rule'].includes(name)) continue;
          if (!(await narrow.evaluate(() => 'axe' in window))) await narrow.evaluate(axe);
          const { violations } = await narrow.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
          assert.deepEqual(violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(' | ')}`), [], `${name}, ${theme}, ${width}`);
        }
      }
      await context.close();
    }
  });

  await settled(server);
  views['incident-hang'] = '/incident/' + (await of('performance/hang')).fingerprint;

  await test('runs: which is sick, since when, where, what to do', async () => {
    await open(page, server, '/');
    const words = plain(await text(page));
    assert.match(words, /4 of 9 runs have errors/);
    assert.match(words, /Rank 7 hangs in step 13/);
    assert.match(words, /Look at the stacks of the named ranks/);
    assert.match(words, /py-spy dump --pid PID[\s\S]*PID: the process of a named rank/);
    assert.equal(await page.locator('.rrow').count(), 9);
    assert.match(await page.locator('.rrow').first().innerText(), /Hung/);
    assert.match(await page.title(), /^\(\d\) Runs/);
    await page.waitForFunction(() => document.querySelectorAll('.rrow .sp svg').length >= 8);
  });

  await test('a run: timeline, series, ranks by steps, coverage, loss', async () => {
    await open(page, server, views.run);
    const words = plain(await text(page));
    for (const one of ['The loss is NaN', 'Timeline', 'Ranks × steps', 'layers.17', 'queue-full', '248', 'Verdicts reached', '32 ranks']) assert.ok(words.includes(one), one);
    await page.waitForSelector('canvas.heat');
    await page.waitForSelector('.uplot canvas');
    // The selection is in the address, and is restored from it.
    await page.keyboard.press('+');
    await page.waitForFunction(() => location.hash.includes('from='));
    const address = await page.evaluate(() => location.hash.slice(1));
    await page.goto('about:blank');
    await open(page, server, address);
    assert.equal(await page.evaluate(() => location.hash.slice(1)), address);
    await page.keyboard.press('0');
    await page.waitForFunction(() => !location.hash.includes('from='));
    await page.fill('.filter', 'mlp.up');
    await page.waitForFunction(() => document.querySelectorAll('.grp').length === 4);
    await page.locator('.linkish').first().click();
    await page.waitForFunction(() => location.hash.includes('series=layers.15'));
  });

  // Answers a request of the page with the server's answer, changed.
  const altered = (address, change) => page.route(address, async (route) => {
    const answer = await route.fetch();
    const value = await answer.json();
    await route.fulfill({ response: answer, json: change(value) ?? value });
  });

  await test('verdicts that were reached and inconclusive ones add up to all', async () => {
    await altered('**/coverage', (value) => { Object.assign(value, { judged: 90, inconclusive: 315 }); });
    await altered('**/api/v1/runs', (value) => { Object.assign(value.runs.find((one) => one.run === 'dense-1b-baseline-12'), { judged: 90, inconclusive: 315, state: 'ok', word: 'Healthy' }); });
    await page.goto('about:blank');
    await open(page, server, '/run/dense-1b-baseline-12');
    assert.match(plain(await text(page)), /Verdicts reached\s+90 of 405/);
    assert.equal(await page.locator('progress[aria-label="Verdicts reached"]').evaluate((one) => one.value / one.max), 90 / 405);
    await open(page, server, '/');
    assert.match(plain(await page.locator('.rrow[data-key="dense-1b-baseline-12"]').innerText()), /90 verdicts reached, nothing open[\s\S]*315 inconclusive/);
    await page.unroute('**/coverage');
    await page.unroute('**/api/v1/runs');
  });

  await test('an incident: the witness drawn, how sure, all that can be done', async () => {
    await open(page, server, views['incident-leak']);
    const words = plain(await text(page));
    assert.match(await page.locator('figure svg[role=img]').first().getAttribute('aria-label'), /\d+ tokens that chose the expert/);
    for (const one of ['a later token took the place of an earlier token', 'proved', 'Drop by position instead of by score, or route without capacity.', 'drop_tokens=False',
      'none by chance', 'layers.1 / routing', 'Opened', 'plumb audit --server']) assert.ok(words.includes(one), one);
    await open(page, server, views['incident-hang']);
    await page.waitForSelector('figure svg[role=img]');
    assert.match(plain(await page.locator('figure svg').first().textContent()), /7 ranks: 0–6[\s\S]*rank 7/);
    await open(page, server, views['incident-nan']);
    await page.waitForSelector('figure .uplot canvas');
  });

  // Run unchanged in a shell whose PATH has plumb.
  await test('what is shown to judge it again is a line that works, for a name that wants to be a command, too', async () => {
    for (const fingerprint of [leak, evil.fingerprint, (await of('health/loss-non-finite')).fingerprint]) {
      await open(page, server, '/incident/' + fingerprint);
      const line = await page.locator('.judge code').first().innerText();
      assert.match(line, /^plumb audit --server 127\.0\.0\.1:\d+ --run \S/);
      const done = spawnSync('bash', ['-c', line + ' --format json --quiet'], { encoding: 'utf8', cwd: kept, env: { ...process.env, PATH: bin + ':' + process.env.PATH } });
      assert.equal(done.status, 1, line + '\n' + done.stderr);
      assert.ok(done.stdout.includes((await json(server, 'incidents/' + fingerprint)).value.finding.fingerprint), line);
    }
    // A capsule that was not requested; a stored one is downloaded, and must unpack.
    let capsule = { state: 'none', why: 'no capsule was requested' };
    await page.route('**/api/v1/incidents/' + leak + '*', async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: { ...(await answer.json()), capsule } });
    });
    await page.goto('about:blank');
    await open(page, server, '/incident/' + leak);
    assert.ok(plain(await text(page)).includes('proves less than the finding'));
    assert.match(await page.locator('.judge code').nth(1).innerText(), /^plumb capsule [0-9a-f]{12} --server 127\.0\.0\.1:\d+ --output (capsule-\S+) && plumb audit \1$/);
    capsule = { state: 'complete', why: '', bytes: 4096, step: 9, ranks: 2 };
    await page.goto('about:blank');
    await open(page, server, '/incident/' + leak);
    const unpack = await page.locator('.judge code').nth(1).innerText();
    const made = mkdtempSync(join(kept, 'tar-'));
    const folder = unpack.match(/^tar -xf (capsule-[0-9a-f]{12})\.tar && plumb audit \1$/)?.[1];
    assert.ok(folder, unpack);
    assert.ok(plain(await text(page)).includes('proves less than the finding'));
    const env = { ...process.env, PATH: bin + ':' + process.env.PATH };
    execFileSync('plumb', ['capsule', leak, '--judged', '--server', server.grpc, '--output', join(made, folder)], { env });
    execFileSync('tar', ['-cf', folder + '.tar', folder], { cwd: made });
    rmSync(join(made, folder), { recursive: true });
    assert.equal(spawnSync('bash', ['-c', unpack], { cwd: made, env }).status, 1);
    await page.unroute('**/api/v1/incidents/' + leak + '*');
  });

  await test('a value that is not finite is hatched at its place, and not after it', async () => {
    await page.route('**/spark', (route) => route.fulfill({ json: { series: 'loss', bucket_steps: 1, step: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], mean: [9, 8, 7, null, null, 6, 5, 4, null, 3], min: [9, 8, 7, null, null, 6, 5, 4, null, 3], max: [9, 8, 7, null, null, 6, 5, 4, null, 3], bad: [3, 4, 8] } }));
    await page.goto('about:blank');
    await open(page, server, '/');
    await page.waitForSelector('.rrow .notfinite');
    const [first, second, ...more] = await page.locator('.rrow').first().locator('.notfinite').evaluateAll((all) => all.map((one) => ({ x: one.x.baseVal.value, width: one.width.baseVal.value })));
    assert.deepEqual(more, []);
    // Steps 3 to 4 and step 8: one has twice the other's width, and begins five steps before it.
    assert.ok(Math.abs(first.width / second.width - 2) < 0.1 && Math.abs((second.x - first.x) / second.width - 5) < 0.1, JSON.stringify([first, second]));
    await open(page, server, views.run);
    await page.waitForFunction(() => document.querySelectorAll('.plotpad .notfinite').length === 2);
    await page.unroute('**/spark');
  });

  await test('a rule’s page, the list of rules, what is not there', async () => {
    await open(page, server, views.rule);
    const words = plain(await text(page));
    for (const one of ['What it checks', 'How to fix it', 'proof-bits', 'demo-score-drop']) assert.ok(words.includes(one), one);
    await open(page, server, '/rules');
    assert.ok(await page.locator('.incrow').count() > 30);
    const asked = [];
    page.on('request', (request) => asked.push(request.url()));
    for (const nothing of ['/incident/ffffffffffff', '/run/none', '/rule/a/b', '/run/..']) {
      await open(page, server, nothing);
      assert.match(plain(await text(page)), /Not found/, nothing);
    }
    // A browser would remove the name of such a run from the address.
    assert.ok(asked.some((url) => url.endsWith('/api/v1/runs/%3D..')), asked.join(' '));
  });

  await test('runs side by side: curves, first difference, findings of one side', async () => {
    for (const address of ['/compare?a=vlm-3b-sft-2&b=dense-1b-baseline-12', '/compare/vlm-3b-sft-2/dense-1b-baseline-12']) {
      await open(page, server, address);
      const words = plain(await text(page));
      for (const one of ['Only in A 1 finding', 'The loss jumped', 'Only in B none', 'In both none']) assert.ok(words.includes(one), one + ' in ' + words);
      await page.waitForFunction(() => /First difference at step \d+.*B is [\d.]+ below A on average/.test(document.querySelector('figcaption').innerText.replaceAll('\u00a0', ' ')));
    }
    await page.waitForFunction(() => document.querySelectorAll('figure .uplot canvas').length === 2);
    await page.locator('figure .u-over').first().hover({ position: { x: 200, y: 60 } });
    await page.waitForFunction(() => /step.*A vlm-3b-sft-2 [\d.]+.*B dense-1b-baseline-12 [\d.]+/.test(document.querySelector('.readout').innerText));
    await page.getByRole('button', { name: 'Swap' }).click();
    await page.waitForFunction(() => document.querySelector('main').innerText.includes('Only in B 1'));
    await page.getByLabel('Add a run').selectOption('tokenizer-sweep-03');
    await page.waitForFunction(() => document.querySelector('h1')?.innerText === 'Compare 3 runs' && location.hash.includes('/tokenizer-sweep-03'));
    await page.getByLabel('Remove run B').click();
    await page.waitForFunction(() => document.querySelector('h1')?.innerText === 'Compare two runs');
  });

  await test('a plot: log, smoothing, several series, zoom on values, a picture and a table of what is drawn', async () => {
    await open(page, server, '/run/dense-13b-fp16-lr3');
    await page.waitForSelector('.plotpad .uplot canvas');
    assert.ok(await page.locator('.plotpad .uplot').evaluate((one) => one.clientHeight) >= 320);
    // Its axis has the steps of the overview.
    await page.getByRole('button', { name: 'Log' }).click();
    await page.locator('input[type=range]').fill('0.9');
    await page.getByLabel('Add a series').selectOption('grad_norm');
    await page.waitForFunction(() => ['log=1', 'smooth=0.9', 'also=grad_norm'].every((one) => location.hash.includes(one)));
    await page.waitForFunction(() => document.querySelectorAll('.curvekeys .key').length >= 2 && document.querySelector('.curvekeys').innerText.includes('grad_norm'));
    const address = await page.evaluate(() => location.hash.slice(1));
    await page.goto('about:blank');
    await open(page, server, address);
    assert.equal(await page.getByRole('button', { name: 'Log' }).getAttribute('aria-pressed'), 'true');
    await page.locator('.plotpad .u-over').hover({ position: { x: 100, y: 100 } });
    await page.waitForFunction(() => /loss [\d.]+.*grad_norm [\d.]+/.test(document.querySelector('.readout').innerText));
    const read = async (name) => {
      const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name }).click()]);
      return [download.suggestedFilename(), readFileSync(await download.path())];
    };
    const [csvName, csv] = await read('CSV');
    assert.equal(csvName, 'dense-13b-fp16-lr3-loss.csv');
    const lines = csv.toString().trim().split('\n');
    assert.equal(lines[0], 'curve,step,steps,mean,min,max,not_finite');
    assert.ok(lines.some((line) => line.startsWith('"loss",0,')) && lines.some((line) => line.startsWith('"grad_norm",0,')));
    const [pngName, png] = await read('PNG');
    assert.equal(pngName, 'dense-13b-fp16-lr3-loss.png');
    assert.ok(png.subarray(1, 4).toString() === 'PNG' && png.length > 3000);
    await page.getByLabel('Zoom in on values').click();
    await page.getByLabel('Remove grad_norm').click();
    await page.waitForFunction(() => !location.hash.includes('also='));
    // Values beyond the axis are counted and marked, and can be shown.
    await page.getByLabel('All values').click();
    await page.waitForFunction(() => /outside the axis/.test(document.querySelector('.curvekeys').innerText));
    await page.getByRole('button', { name: 'Clip' }).click();
    await page.waitForFunction(() => !/outside the axis/.test(document.querySelector('.curvekeys').innerText));
  });

  await test('the list of runs: filter, order, selection for a comparison, by keyboard too', async () => {
    await open(page, server, '/');
    await page.fill('.listbar input', 'dense');
    await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 2 && location.hash.includes('q=dense'));
    await page.fill('.listbar input', '');
    await page.getByLabel('State').selectOption('done');
    await page.waitForFunction(() => document.querySelectorAll('.rrow').length === 1);
    assert.ok(await page.locator('.rrow').evaluate((one) => one.getBoundingClientRect().height) <= 46);
    await page.goto('about:blank');
    await open(page, server, '/?state=done');
    assert.equal(await page.locator('.rrow').count(), 1);
    await page.getByLabel('State').selectOption('');
    await page.getByLabel('Sort').selectOption('name');
    await page.waitForFunction(() => document.querySelector('.rrow').dataset.key.startsWith('<img') || document.querySelector('.rrow').dataset.key.startsWith('demo') || document.querySelector('.rrow').dataset.key.startsWith('dense'));
    await page.locator('.rwrap', { has: page.locator('[data-key="vlm-3b-sft-2"]') }).locator('input').check();
    await page.locator('[data-key="dense-1b-baseline-12"]').focus();
    await page.keyboard.press('x');
    await page.waitForFunction(() => document.querySelector('.selection').innerText.includes('2 selected'));
    await page.locator('.selection a').click();
    await page.waitForFunction(() => location.hash.startsWith('#/compare/vlm-3b-sft-2/dense-1b-baseline-12'));
  });

  await test('one cause is one incident: symptoms are lines in it', async () => {
    const nan = await of('health/loss-non-finite', 'dense');
    const row = { ...nan, fingerprint: 'f'.repeat(32), title: 'the <b>symptom</b>', rule: 'health/loss-spike' };
    await altered('**/api/v1/incidents?state=open', (value) => { value.incidents.find((one) => one.fingerprint === nan.fingerprint).symptoms = [row]; });
    await altered('**/api/v1/incidents/*', (value) => { value.symptoms = [row]; });
    await page.goto('about:blank');
    await open(page, server, '/incidents');
    assert.match(plain(await text(page)), /also: The <b>symptom<\/b> · health\/loss-spike, step 700/);
    await open(page, server, '/incident/' + nan.fingerprint);
    assert.match(plain(await text(page)), /Symptoms[\s\S]*The <b>symptom<\/b>/);
    await page.unroute('**/api/v1/incidents?state=open');
    await page.unroute('**/api/v1/incidents/*');
  });

  await test('a resolved incident stays visible: on its run, and in a tab', async () => {
    const nan = await of('health/loss-non-finite', 'dense');
    await altered('**/api/v1/runs/dense-1b-baseline-12', (value) => { Object.assign(value, { judged: 0, over: false, samples: 28800, closed_step: 599, incidents: [{ ...nan, run: value.run, state: 'resolved', step_first: 300, step_last: 310 }] }); });
    await page.goto('about:blank');
    await open(page, server, '/run/dense-1b-baseline-12');
    await page.waitForFunction(() => [...document.querySelectorAll('svg[role=img]')].some((one) => one.getAttribute('aria-label').startsWith('0 findings, 1 resolved')));
    assert.match(plain(await text(page, 'aside')), /Resolved\s*1[\s\S]*The loss is NaN/);
    // A run in progress that rules watch is not called unjudged.
    assert.match(plain(await text(page, 'aside')), /No finding so far: the rules look at 3 series, last look step 599/);
    await page.unroute('**/api/v1/runs/dense-1b-baseline-12');
    await open(page, server, '/incidents?state=resolved');
    assert.match(plain(await text(page)), /Resolved \d/);
  });

  await test('late evidence is not called lost, and ranks that never came are named', async () => {
    await altered('**/coverage', (value) => { Object.assign(value, { evidence: 60692, lost: 0, late: 29573, lost_by_cause: {}, late_by_cause: { 'late-grace': 29573 } }); });
    await altered('**/api/v1/runs/dense-1b-baseline-12', (value) => { Object.assign(value, { world: 4096, seen: 512 }); });
    await page.goto('about:blank');
    await open(page, server, '/run/dense-1b-baseline-12');
    const words = plain(await text(page, 'aside'));
    assert.match(words, /60,692 of 60,692, 29,573 late/);
    assert.match(words, /49 % of the evidence came after its step had been judged/);
    assert.match(words, /3,584 ranks of 4,096 never reported/);
    assert.ok(!/0 % of|spool/.test(words), words);
    await page.unroute('**/coverage');
    await page.unroute('**/api/v1/runs/dense-1b-baseline-12');
  });

  await test('copied as text it is what plumb watch -v prints', async () => {
    await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    for (const { fingerprint, run } of [await of('causality/moe-future-leak', 'demo'), await of('health/loss-non-finite'), await of('performance/hang')]) {
      await open(page, server, '/incident/' + fingerprint);
      await page.keyboard.press('c');
      await page.waitForFunction(() => document.querySelector('.toast.on'));
      const copied = await page.evaluate(() => navigator.clipboard.readText());
      const printed = execFileSync(join(bin, 'plumb'), ['watch', run, '-v', '--server', server.grpc, '--once'], { encoding: 'utf8' });
      assert.ok(printed.includes(copied.trimEnd()), 'copied:\n' + copied + '\nprinted:\n' + printed);
    }
  });

  await test('names that want to be markup stay names', async () => {
    for (const name of ['runs', 'incidents', 'hostile', 'hostile-run']) {
      await open(page, server, views[name]);
      assert.ok((await text(page)).includes('<img src=x onerror=window.hacked=1>'), name);
      assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main script').length), 0);
      assert.equal(await page.evaluate(() => window.hacked), undefined);
      assert.ok(!(await text(page)).includes('\u202e'), 'the direction is turned: ' + name);
    }
    // Longer than any server accepts: the layout stays intact.
    const long = '<b>' + 'W'.repeat(100000) + '\u202e';
    await page.route('**/api/v1/incidents/' + leak, async (route) => {
      const answer = await route.fetch();
      const value = await answer.json();
      Object.assign(value, { title: long, where: long, act: long, command: long, run: long, reason: long, who: long, state: 'acknowledged' });
      Object.assign(value.finding, { title: long, explanation: long, fix: long, witness: { [long]: long, text: long }, details: { [long]: [long, { [long]: null }] }, assumptions: [long], commands: [{ where: long, command: long }] });
      value.site_rows[0].layer = long;
      await route.fulfill({ response: answer, json: value });
    });
    await page.goto('about:blank');
    await open(page, server, '/incident/' + leak);
    assert.ok((await text(page)).includes('WWW'));
    const wide = await page.evaluate(tooWide);
    await page.unroute('**/api/v1/incidents/' + leak);
    assert.deepEqual(wide, []);
  });

  await test('live: a finding is there without a reload, and a step moves the plot', async () => {
    await open(page, server, '/');
    await feeder.sendAndWait('steps 5');
    await page.waitForFunction(() => [...document.querySelectorAll('.rrow')].some((row) => row.dataset.key === 'live' && row.innerText.includes('204')));
    const begun = Date.now();
    await feeder.sendAndWait('find');
    await page.waitForFunction(() => [...document.querySelectorAll('.rrow')].some((row) => row.dataset.key === 'live' && row.innerText.includes('The loss is NaN')));
    console.log(`        a finding showed ${((Date.now() - begun) / 1000).toFixed(2)} s after its step was sent`);
    assert.match(await page.locator('.sr[role=log]').innerText(), /New error in live/);
  });

  await test('acknowledge needs a reason, is kept, and can be taken back; silence has an end', async () => {
    await open(page, server, views['incident-leak']);
    await page.keyboard.press('a');
    await page.locator('dialog button[type=submit]').click();
    assert.match(await text(page, 'dialog .dlgerr'), /Enter a reason/);
    await page.fill('dialog textarea', 'known <b>since</b> "yesterday" ä');
    await page.fill('dialog input[type=text]', 'oncall-b');
    await page.locator('dialog button[type=submit]').click();
    await page.waitForSelector('.banner');
    assert.match(plain(await text(page, '.banner')), /Acknowledged by oncall-b: “known <b>since<\/b> "yesterday" ä”/);
    assert.equal((await json(server, 'incidents/' + leak)).value.state, 'acknowledged');
    // Another tab was faster: this one shows it.
    await page.keyboard.press('o');
    await page.fill('dialog textarea', 'looked again');
    await fetch(`${server.http}/api/v1/incidents/${leak}/state`, { method: 'POST', headers: { 'Plumbline-Update': encodeURIComponent(JSON.stringify({ state: 'open', reason: 'me first', who: 'other' })), 'Sec-Fetch-Site': 'same-origin', Origin: server.http } });
    await page.locator('dialog button[type=submit]').click();
    await page.waitForFunction(() => document.querySelector('dialog .dlgerr')?.textContent.includes('reload it'));
    await page.keyboard.press('Escape');
    await page.goto('about:blank');
    await open(page, server, views['incident-leak']);
    await page.keyboard.press('s');
    await page.fill('dialog textarea', 'until the restart');
    await page.locator('dialog button[type=submit]').click();
    await page.waitForFunction(() => document.querySelector('.banner')?.textContent.includes('Silenced until'));
    await open(page, server, '/incidents?state=silenced');
    assert.equal(await page.locator('.incrow').count(), 1);
  });

  await test('another site can neither read nor change anything', async () => {
    const other = createServer((request, response) => response.end('<!doctype html><title>evil</title>'));
    await new Promise((done) => other.listen(0, '127.0.0.1', done));
    const foreign = patient(await browser.newPage());
    await foreign.goto(`http://127.0.0.1:${other.address().port}/`);
    const tried = await foreign.evaluate(async ([http, fingerprint]) => {
      const out = {};
      const attempt = async (name, what) => { try { out[name] = (await what()).status; } catch { out[name] = 'blocked'; } };
      await attempt('read', () => fetch(http + '/api/v1/runs'));
      await attempt('change', () => fetch(`${http}/api/v1/incidents/${fingerprint}/state`, { method: 'POST', headers: { 'Plumbline-Update': encodeURIComponent('{"state":"open","reason":"x"}') } }));
      await attempt('plain', () => fetch(`${http}/api/v1/incidents/${fingerprint}/state`, { method: 'POST', mode: 'no-cors' }).then(() => ({ status: 'sent, not read' })));
      return out;
    }, [server.http, leak]);
    assert.deepEqual(tried, { read: 'blocked', change: 'blocked', plain: 'blocked' });
    const frame = await foreign.evaluate((http) => new Promise((done) => {
      const element = document.createElement('iframe');
      element.src = http;
      element.onload = () => { try { done(element.contentDocument ? 'empty' : 'refused or foreign'); } catch { done('refused or foreign'); } };
      document.body.append(element);
    }), server.http);
    assert.equal(frame, 'refused or foreign');
    assert.equal((await json(server, 'incidents/' + leak)).value.state, 'silenced');
    await foreign.close();
    other.close();
  });

  await test('no inline script, and the policy stops one that is put there', async () => {
    await open(page, server, '/');
    const stopped = await page.evaluate(() => new Promise((done) => {
      addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective), { once: true });
      const script = document.createElement('script');
      script.textContent = 'window.hacked = 2';
      document.body.append(script);
      setTimeout(() => done('nothing'), 5000);
    }));
    assert.match(stopped, /script-src/);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    wrong.splice(0, wrong.length, ...wrong.filter((one) => !one.includes('Content Security Policy')));
    const html = await (await fetch(server.http + '/')).text();
    assert.ok(!/<script(?![^>]*src=)/.test(html) && !/ on\w+=|style="/.test(html));
  });

  await test('by keyboard: rows, find, keys, theme', async () => {
    await open(page, server, '/');
    await page.keyboard.press('j');
    await page.keyboard.press('j');
    assert.equal(await page.evaluate(() => document.activeElement?.matches('.rrow:nth-of-type(2)') || document.activeElement?.matches('.rrow')), true);
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => location.hash.startsWith('#/incident/'));
    await page.keyboard.press('g');
    await page.keyboard.press('i');
    // A new view closes a dialog, so it must be complete before one is opened.
    await page.waitForFunction(() => document.querySelector('main h1')?.textContent === 'Incidents');
    await page.keyboard.press('/');
    await page.waitForFunction(() => document.querySelectorAll('dialog[open] .incrow').length > 0);
    await page.fill('dialog input', 'tokenizer');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('main .runhead h1')?.textContent === 'tokenizer-sweep-03');
    await page.keyboard.press('?');
    await page.waitForSelector('dialog .keys');
    await page.keyboard.press('Escape');
    const before = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    await page.keyboard.press('t');
    await page.keyboard.press('t');
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), before);
    await page.keyboard.press('t');
  });

  await test('the first view is at most 200 KB', async () => {
    const fresh = patient(await browser.newContext());
    const first = await fresh.newPage();
    const client = await fresh.newCDPSession(first);
    await client.send('Network.enable');
    let received = 0;
    client.on('Network.loadingFinished', (event) => { received += event.encodedDataLength; });
    await open(first, server, '/');
    await first.waitForTimeout(500);
    console.log(`        ${(received / 1000).toFixed(1)} KB`);
    assert.ok(received < 200000 && received > 10000, String(received));
    await fresh.close();
  });

  await runTests(test, browser, server);
  await plotTests(test, browser, server, { leak, hostile: evil.run });
  await smallTests(test, browser, server, { leak });
  await lifeTests(test, browser, server, { leak, run: 'dense-1b-baseline-12' });

  await test('a server that is gone and comes back', async () => {
    await open(page, server, '/');
    server.child.kill('SIGSTOP');
    await page.waitForFunction(() => document.querySelector('#banner')?.textContent.includes('No connection'), null, { timeout: 60000 });
    assert.match(await text(page, '.link-state'), /offline/);
    assert.ok(await page.locator('.rrow').count() > 5, 'nothing is cleared');
    server.child.kill('SIGCONT');
    await page.waitForFunction(() => document.querySelector('.link-state')?.textContent.includes('live') && !document.querySelector('#banner')?.textContent, null, { timeout: 60000 });
  });

  await test('nothing went wrong meanwhile', () => assert.deepEqual(wrong, []));

  // ---- a server that requires tokens ----
  await test('a token is requested once, is in no address, and decides the permitted actions', async () => {
    const folder = server.folder;
    const tokens = {};
    for (const name of ['admin', 'reader']) {
      const line = execFileSync(join(bin, 'plumbd'), ['--new-token', join(folder, name + '.token')], { encoding: 'utf8' });
      writeFileSync(join(folder, name + '.tokens'), line.split('\n').filter((one) => one.startsWith('sha256:')).join('\n') + '\n', { mode: 0o600 });
      tokens[name] = readFileSync(join(folder, name + '.token'), 'utf8').trim();
    }
    const entry = (name, scopes, runs) => `[[access]]\nname = '${name}'\ntoken_file = '${join(folder, name + '.tokens')}'\nscopes = ${scopes}\nruns = ${runs}\n`;
    const guarded = await startServer(entry('admin', "['read', 'admin', 'write']", "['*']") + entry('reader', "['read']", "['demo-*']"));
    const context = patient(await browser.newContext());
    const signing = await context.newPage();
    const seen = [];
    signing.on('request', (request) => seen.push(request.url()));
    await open(signing, guarded, '/incidents');
    await signing.waitForFunction(() => location.hash === '#/signin');
    await signing.fill('input[type=password]', 'wrong-token-wrong-token-wrong-token');
    await signing.keyboard.press('Enter');
    await signing.waitForFunction(() => document.querySelector('.dlgerr')?.textContent.length > 5);
    await signing.fill('input[type=password]', tokens.reader);
    await signing.keyboard.press('Enter');
    await signing.waitForFunction(() => location.hash === '#/incidents');
    await eventually('the page is live', () => signing.evaluate(() => document.querySelector('.link-state').textContent.includes('live')));
    assert.ok(!seen.some((url) => url.includes(tokens.reader)), 'the token is in an address');
    const [cookie] = await context.cookies();
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict');
    assert.equal(await signing.evaluate(() => document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)).then((all) => all.includes(tokens.reader)), false);
    await signing.locator('footer button').click();
    await signing.waitForFunction(() => location.hash === '#/signin');
    await context.close();
  });
}

const begun = Date.now();
try {
  await main();
} catch (error) {
  failures.push('set-up');
  console.log(error.stack ?? error);
} finally {
  await endAll();
  if (kept) rmSync(kept, { recursive: true, force: true });
}
console.log(`${passed} passed, ${failures.length} failed, in ${((Date.now() - begun) / 1000).toFixed(1)} s`);
process.exit(failures.length === 0 && passed > 0 ? 0 : 1);
