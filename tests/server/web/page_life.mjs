// Tabs in unusual states: hidden, many, without an answer, with data that the server no longer has,
// signed out.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { bin, open, patient, startServer } from './page_support.mjs';

// A headless browser shows all tabs at the same time, so this sets a page hidden or visible.
export const hide = (page, hidden) => page.evaluate((value) => {
  Object.defineProperty(document, 'hidden', { configurable: true, get: () => value });
  document.dispatchEvent(new Event('visibilitychange'));
}, hidden);
const linkShows = (page, words) => page.waitForFunction((w) => document.querySelector('.link-state').textContent.startsWith(w), words);
const reads = (page, words) => page.waitForFunction((w) => document.querySelector('main').innerText.includes(w), words);
// Makes the page query the server again.
async function lookAgain(page) {
  await hide(page, true);
  await hide(page, false);
}

async function manyTabs(browser, server) {
  const context = patient(await browser.newContext());
  const tabs = [];
  for (let i = 0; i < 8; i++) {
    const tab = await context.newPage();
    await open(tab, server, '/');
    await linkShows(tab, 'live');
    await hide(tab, true);
    await linkShows(tab, 'connecting');
    tabs.push(tab);
  }
  await hide(tabs[0], false);
  await linkShows(tabs[0], 'live');
  await context.close();
}

// Many windows: more than a browser has connections to one host.
async function manyWindows(browser, server) {
  const context = patient(await browser.newContext());
  const windows = [];
  for (let i = 0; i < 9; i++) {
    windows.push(await context.newPage());
    await open(windows[i], server, '/');
    await linkShows(windows[i], 'live');
  }
  // Windows without their own stream poll; if a window with a stream closes, one of them takes
  // its place.
  const streams = () => Promise.all(windows.map((page) => page.evaluate(async () => (await navigator.locks.query()).held.length)));
  assert.deepEqual(await streams(), Array(9).fill(4));
  await windows.shift().close();
  await windows[7].waitForFunction(async () => (await navigator.locks.query()).held.length === 4);
  for (const page of windows) await linkShows(page, 'live');
  await context.close();
}

async function unanswered(browser, server, fingerprint) {
  const page = patient(await browser.newPage());
  await open(page, server, '/');
  await linkShows(page, 'live');
  await page.route('**/api/v1/incidents/**', () => undefined);
  await page.evaluate((one) => { location.hash = '#/incident/' + one; }, fingerprint);
  await linkShows(page, 'not answered');
  await reads(page, 'The server does not answer');
  assert.match(await page.locator('#banner').innerText(), /may be outdated/);
  await page.unroute('**/api/v1/incidents/**');
  await linkShows(page, 'live');
  await page.close();
}

// Like a restart without its data.
async function gone(browser, server, { address, asked, back }) {
  const page = patient(await browser.newPage());
  await open(page, server, address);
  await reads(page, back);
  await page.route(asked, (route) => route.fulfill({ status: 404, json: { error: 'no such thing' } }));
  await lookAgain(page);
  await reads(page, 'Not found');
  // It is judged again, or sent again.
  await page.unroute(asked);
  await lookAgain(page);
  await reads(page, back);
  await page.close();
}

// No process is connected that could send a capsule.
async function overRun(browser, server, fingerprint) {
  for (const [change, words] of [[{ run_over: true }, 'the run is over'], [{ run_over: false, run_connected: 0 }, 'no process of the run is connected']]) {
    const page = patient(await browser.newPage());
    await page.route('**/api/v1/incidents/' + fingerprint + '*', async (route) => {
      const answer = await route.fetch();
      await route.fulfill({ response: answer, json: { ...(await answer.json()), capsule: { state: 'none', why: 'no capsule was requested' }, ...change } });
    });
    await open(page, server, '/incident/' + fingerprint);
    const judge = await page.locator('.judge').innerText();
    assert.ok(judge.includes(words) && judge.includes('plumb audit --server') && !judge.includes('plumb capsule'), judge);
    await page.close();
  }
}

async function signedOut(browser, folder) {
  const made = execFileSync(join(bin, 'plumbd'), ['--new-token', join(folder, 'gone.token')], { encoding: 'utf8' });
  const accepted = join(folder, 'gone.tokens');
  writeFileSync(accepted, made.split('\n').filter((one) => one.startsWith('sha256:')).join('\n') + '\n', { mode: 0o600 });
  const server = await startServer(`[[access]]\nname = 'who-left'\ntoken_file = '${accepted}'\nscopes = ['read']\nruns = ['*']\n`);
  const page = patient(await browser.newPage());
  // An open error for the badge.
  await page.route('**/api/v1/incidents?state=open', (route) => route.fulfill({ json: { incidents: [{ fingerprint: 'f', level: 'error', suppressed: false }] } }));
  await open(page, server, '/rules');
  await page.waitForFunction(() => location.hash === '#/signin');
  await linkShows(page, 'not signed in');
  await page.fill('input[type=password]', readFileSync(join(folder, 'gone.token'), 'utf8').trim());
  await page.keyboard.press('Enter');
  await linkShows(page, 'live');
  await page.waitForFunction(() => !document.querySelector('.nav .count').hidden && document.querySelector('footer').innerText.includes('who-left'));
  writeFileSync(accepted, '# no token\n', { mode: 0o600 });
  await page.waitForFunction(() => location.hash === '#/signin');
  await linkShows(page, 'not signed in');
  assert.equal(await page.evaluate(() => document.querySelector('.nav .count').hidden), true);
  assert.ok(!(await page.locator('footer').innerText()).includes('who-left'));
  await page.close();
}

export async function lifeTests(test, browser, server, { leak, run }) {
  await test('windows beyond the browser\'s connections are live, too', () => manyWindows(browser, server));
  await test('a tab that is hidden leaves its connection to the others', () => manyTabs(browser, server));
  await test('a request without an answer in time is reported', () => unanswered(browser, server, leak));
  await test('objects that the server no longer has are not shown as current', async () => {
    await gone(browser, server, { address: '/incident/' + leak, asked: '**/api/v1/incidents/' + leak, back: 'Judge it yourself' });
    await gone(browser, server, { address: '/run/' + run, asked: '**/api/v1/runs/' + run, back: 'Timeline' });
  });
  await test('no capsule is offered if the processes of the run have ended', () => overRun(browser, server, leak));
  await test('a revoked token is reported, and no data of the session stays', () => signedOut(browser, server.folder));
}
