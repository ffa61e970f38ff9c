// The report of plumb audit --format html in a real, headless Chromium: the page's views in one
// file, with its own content policy, for six planted faults; its plain form without scripts;
// hostile names; accessibility; nothing is loaded.
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import assert from 'node:assert/strict';
import { axeSource, bin, endAll, patient, startBrowser } from '../server/web/page_support.mjs';
import { writeFaults } from '../server/web/fault_files.mjs';

const shots = process.env.PLUMB_PAGE_SHOTS ?? '';
if (shots) mkdirSync(shots, { recursive: true });
const folder = mkdtempSync(join(tmpdir(), 'plumb-report-'));
const plain = (words) => words.replaceAll('\u00a0', ' ');
const failures = [];
let passed = 0;
async function test(name, what) {
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

function report(name, ...paths) {
  const file = join(folder, name + '.html');
  const done = spawnSync(join(bin, 'plumb'), ['audit', '--quiet', '--format', 'html', '--output', file, ...paths], { encoding: 'utf8' });
  assert.ok(done.status === 0 || done.status === 1, `plumb ended with ${done.status}: ${done.stderr}`);
  return { url: pathToFileURL(file).href, html: readFileSync(file, 'utf8') };
}

// Only the file is requested, without errors and without policy violations.
function watchOver(page, url) {
  const wrong = [];
  page.on('pageerror', (error) => wrong.push('error: ' + error.message));
  page.on('console', (line) => { if (line.type() === 'error') wrong.push('console: ' + line.text()); });
  page.on('request', (request) => { if (request.url().split('#')[0] !== url()) wrong.push('asks for ' + request.url()); });
  return wrong;
}
const tooWide = () => (document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('main *')].filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scrollx, pre, code, svg'))
  .slice(-3).map((one) => one.outerHTML.slice(0, 100)));

async function main() {
  const faults = writeFaults(folder);
  const browser = await startBrowser();
  let url = '';
  const page = patient(await browser.newPage({ viewport: { width: 1280, height: 900 } }));
  const wrong = watchOver(page, () => url);
  const show = async (of, address = '') => {
    url = of.url;
    await page.goto('about:blank');
    await page.goto(of.url + address);
    await page.waitForFunction(() => document.documentElement.dataset.ready !== undefined);
  };
  const text = async () => plain(await page.locator('main').innerText());
  const open = async () => {
    await page.locator('main .alarm h2 a').click();
    await page.waitForSelector('.alarm h1');
  };

  // What a reader checks on the page, and what to do first.
  const expected = {
    leak: ['a later token took the place of an earlier token', 'Drop by position instead of by score', 'drop_tokens=False', 'got a place, same sequence', 'Token '],
    drift: ['difference between trainer and rollout', 'temperature of 0.8', 'fitted: +0.199', 'Each dot is a token'],
    comb: ['the gaps of the GPU, and the host under them', 'idle for', 'under it: enumerate(DataLoader)', 'share of each step in which the GPU is idle'],
    hang: ['which ranks wait for which', 'py-spy dump --pid PID', 'PID: the process of a named rank', '4 ranks: 0–3', '3 ranks: 4, 6–7', 'rank 5'],
    nan: ['The loss is NaN', 'around step 311', 'Go back to the last checkpoint'],
    overflow: ['irst non-finite', '8 +Inf'],
  };
  for (const [name, words] of Object.entries(expected)) {
    await test(`${name}: the facts, the witness drawn, what to do first`, async () => {
      await show(report(name, faults[name]));
      assert.match(await text(), /Run[\s\S]*Since[\s\S]*Where[\s\S]*Do first/);
      if (shots) await page.screenshot({ path: join(shots, `report-${name}-list.png`), fullPage: true });
      await open();
      await page.waitForSelector(name === 'nan' ? 'figure .uplot canvas' : 'figure');
      const drawn = (await text()) + plain(await page.evaluate(() => [...document.querySelectorAll('figure svg text')].map((one) => one.textContent).join('\n')));
      for (const one of words) assert.ok(drawn.includes(one), `${one} in ${drawn}`);
    });
  }

  const all = report('all', folder);
  await test('six faults in one report: worst first, keys, rules, in both themes at 1280 and 400 px', async () => {
    const long = process.env.PLUMB_LONG === '1' || shots;
    for (const width of [1280, 400]) {
      await page.setViewportSize({ width, height: 900 });
      for (const theme of long ? ['light', 'dark'] : width === 1280 ? ['light'] : ['dark']) {
        await page.emulateMedia({ colorScheme: theme });
        await show(all);
        const addresses = ['', ...new Set(await page.$$eval('.incrow', (rows) => rows.map((row) => row.getAttribute('href'))))];
        assert.ok(addresses.length >= 7, String(addresses));
        for (const [i, address] of addresses.entries()) {
          await show(all, address);
          assert.deepEqual(await page.evaluate(tooWide), [], `${address} scrolls sideways at ${width} px`);
          if (shots) {
            await page.waitForTimeout(200);
            await page.screenshot({ path: join(shots, `report-${i}-${theme}-${width}.png`), fullPage: true });
          }
        }
      }
    }
    await page.setViewportSize({ width: 1280, height: 900 });
    await show(all);
    assert.match(await text(), /^\d errors/);
    await page.keyboard.press('j');
    await page.keyboard.press('Enter');
    await page.waitForSelector('.alarm h1');
    const first = await page.evaluate(() => location.hash);
    await page.keyboard.press('j');
    await page.waitForFunction((was) => location.hash !== was, first);
    await page.locator('main .alarm .rule').click();
    await page.waitForFunction(() => document.querySelector('main pre')?.textContent.includes('How to fix'));
  });

  await test('run names without a place to break do not make a window of 400 px scroll sideways', async () => {
    const long = join(folder, 'long');
    for (const [run, bad] of [['W'.repeat(220), 60], ['x_' + 'ab-'.repeat(70), 70]]) {
      mkdirSync(join(long, run), { recursive: true });
      writeFileSync(join(long, run, 'train.csv'), 'step,loss\n' + Array.from({ length: 90 }, (_, i) => `${i},${i < bad ? 3 - i / 200 : 'nan'}`).join('\n') + '\n');
    }
    await page.setViewportSize({ width: 400, height: 900 });
    const made = report('long', ...['W'.repeat(220), 'x_' + 'ab-'.repeat(70)].map((run) => join(long, run)));
    await show(made);
    assert.ok((await text()).includes('run WWWW'));
    for (const address of ['', ...new Set(await page.$$eval('.incrow', (rows) => rows.map((row) => row.getAttribute('href'))))]) {
      await show(made, address);
      assert.deepEqual(await page.evaluate(tooWide), [], `${address} scrolls sideways`);
    }
    await page.setViewportSize({ width: 1280, height: 900 });
  });

  await test('printed, it has the witness, the reason and the fix of each incident, and names the run', async () => {
    await page.emulateMedia({ media: 'print' });
    await show(all);
    await page.waitForSelector('.printed .uplot canvas');
    const words = plain(await page.locator('body').innerText());
    for (const one of ['Witness: a later token took the place of an earlier token', 'Witness: which ranks wait for which', 'Go back to the last checkpoint', 'Complete fix', 'Why']) assert.ok(words.includes(one), one + ' in ' + (words.match(/Witness.*/g) ?? words.slice(0, 400)));
    assert.equal(await page.locator('main').isVisible(), false);
    // The names of rules are not broken into letters.
    const named = await page.locator('.printed td:first-child').evaluateAll((all) => all.filter((one) => /^[a-z]+\/[a-z-]+$/.test(one.textContent)).map((one) => one.getBoundingClientRect().width));
    assert.ok(named.length > 3 && named.every((width) => width >= 110), named.join(' '));
    assert.ok(await page.locator('.printed figure svg').first().evaluate((one) => one.getBoundingClientRect().width > 500));
    assert.ok((await page.pdf()).length > 20000);
    await page.emulateMedia({ media: null });
    const one = report('nan', faults.nan);
    await show(one);
    const { run } = JSON.parse(one.html.match(/id="report">(.*?)<\/script>/s)[1]).incidents[0];
    assert.ok(run && (await page.title()).startsWith(run), await page.title());
  });

  await test('axe-core finds nothing', async () => {
    const context = patient(await browser.newContext({ viewport: { width: 1280, height: 900 }, bypassCSP: true, colorScheme: 'dark' }));
    const looked = await context.newPage();
    await show(all);
    for (const address of ['', await page.locator('.incrow').first().getAttribute('href')]) {
      await looked.goto('about:blank');
      await looked.goto(all.url + address);
      await looked.waitForFunction(() => document.documentElement.dataset.ready !== undefined);
      await looked.evaluate(axeSource());
      const { violations } = await looked.evaluate(() => window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'] }));
      assert.deepEqual(violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => node.html.slice(0, 120)).join(' | ')}`), [], address);
    }
    await context.close();
  });

  await test('names that want to be markup stay names, and the policy stops a script that is put there', async () => {
    const name = '</script><img src=x onerror=window.hacked=1>\u202e.csv';
    const hostile = join(folder, 'hostile');
    mkdirSync(hostile);
    writeFileSync(join(hostile, name.replace('/', '\u2215')), '"step","</script><script>window.hacked=2</script>/loss"\n' + Array.from({ length: 200 }, (_, i) => `${i},${i < 150 ? 2 : 'nan'}`).join('\n') + '\n');
    const made = report('hostile', hostile);
    assert.ok(!/<img|<script>window/.test(made.html));
    await show(made);
    assert.ok((await text()).includes('<img src=x onerror=window.hacked=1>'));
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.evaluate(() => document.querySelectorAll('main img, main script').length), 0);
    const stopped = await page.evaluate(() => new Promise((done) => {
      addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective), { once: true });
      const script = document.createElement('script');
      script.textContent = 'window.hacked = 3';
      document.body.append(script);
      setTimeout(() => done('nothing'), 5000);
    }));
    assert.match(stopped, /script-src/);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    wrong.splice(0, wrong.length, ...wrong.filter((one) => !one.includes('Content Security Policy')));
  });

  await test('without a script its plain form stands', async () => {
    const context = patient(await browser.newContext({ javaScriptEnabled: false }));
    const still = await context.newPage();
    await still.goto(all.url);
    const words = plain(await still.locator('main').innerText());
    for (const one of ['Plumbline report', 'do first', 'temperature', 'Passed']) assert.ok(words.includes(one), one);
    await context.close();
  });

  await test('nothing went wrong meanwhile, and nothing was asked for', () => assert.deepEqual(wrong, []));
}

const begun = Date.now();
try {
  await main();
} catch (error) {
  failures.push('set-up');
  console.log(error.stack ?? error);
} finally {
  await endAll();
  rmSync(folder, { recursive: true, force: true });
}
console.log(`${passed} passed, ${failures.length} failed, in ${((Date.now() - begun) / 1000).toFixed(1)} s`);
process.exit(failures.length === 0 && passed > 0 ? 0 : 1);
