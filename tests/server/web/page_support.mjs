// A real plumbd, runs for it, and Debian's Chromium: shared by the page's tests and pictures.
//
// From the environment: PLUMB_BIN (folder of plumbd and page_feeder), PLUMB_CHROMIUM.
import { spawn } from 'node:child_process';
import { mkdtempSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
export const root = join(here, '../../..');
export const require = createRequire(join(root, 'dashboards/web/package.json'));
export const bin = process.env.PLUMB_BIN ?? join(root, 'build/dev/bin');
const PATIENCE = 60000;

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
export async function eventually(what, holds, patience = PATIENCE) {
  const until = Date.now() + patience;
  for (;;) {
    const value = await holds();
    if (value) return value;
    if (Date.now() > until) throw new Error('not within ' + patience / 1000 + ' s: ' + what);
    await sleep(50);
  }
}

// Everything that was started is ended with the test, also if it fails.
const started = [];
export async function endAll() {
  for (const one of started.splice(0).reverse()) await one();
}

export async function startServer(config = '', options = []) {
  const folder = mkdtempSync(join(tmpdir(), 'plumb-page-'));
  writeFileSync(join(folder, 'config.toml'), config, { mode: 0o600 });
  const args = ['--config', join(folder, 'config.toml'), '--grpc', '127.0.0.1:0', '--http', '127.0.0.1:0', ...options];
  const child = spawn(join(bin, 'plumbd'), args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (text) => { log += text; });
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      child.kill('SIGTERM');
      await new Promise((done) => child.on('exit', done));
    }
    rmSync(folder, { recursive: true, force: true });
  };
  started.push(stop);
  const find = (word) => log.match(new RegExp(word + ' on (\\S+)'))?.[1];
  await eventually('plumbd listens: ' + log, () => {
    if (child.exitCode !== null) throw new Error('plumbd ended: ' + log);
    return find('http') && find('listening');
  });
  return { http: 'http://' + find('http'), grpc: find('listening'), folder, child, log: () => log, stop };
}

export async function feed(server, what = '') {
  const child = spawn(join(bin, 'page_feeder'), [server.grpc, ...(what ? [String(what)] : [])], { stdio: ['pipe', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (text) => { output += text; });
  started.push(async () => {
    child.kill('SIGKILL');  // killed agents send no goodbye, and the test no longer checks
    if (child.exitCode === null && child.signalCode === null) await new Promise((done) => child.on('exit', done));
  });
  await eventually('the runs are sent', () => {
    if (child.exitCode !== null) throw new Error('page_feeder ended with ' + child.exitCode);
    return output.includes('ready');
  });
  let commands = 0;
  return {
    // Does not wait for the command to end.
    send(command) {
      child.stdin.write(command + '\n');
      commands++;
    },
    async sendAndWait(command) {
      child.stdin.write(command + '\n');
      commands++;
      await eventually(command, () => output.split('done').length - 1 >= commands);
    },
  };
}

// Six artificial faults (fault_files.mjs), each in a separate run.
export async function sendFaults(server) {
  const { writeFaults } = await import('./fault_files.mjs');
  const runs = { leak: 'moe-48b-pretrain-7', drift: 'rl-math-7b-4', comb: 'vlm-3b-sft-2', hang: 'dense-70b-pretrain-1', nan: 'dense-13b-lr3', overflow: 'dense-13b-fp16' };
  const folders = Object.entries(writeFaults(join(server.folder, 'faults'))).map(([name, folder]) => `${runs[name]}=${folder}`);
  const child = spawn(join(bin, 'fault_feeder'), [server.grpc, ...folders], { stdio: ['pipe', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (text) => { output += text; });
  started.push(async () => {
    child.kill('SIGKILL');
    if (child.exitCode === null && child.signalCode === null) await new Promise((done) => child.on('exit', done));
  });
  await eventually('the faults are sent', () => {
    if (child.exitCode !== null) throw new Error('fault_feeder ended with ' + child.exitCode);
    return output.includes('ready');
  });
  await eventually('all six are found', async () => {
    const { value } = await json(server, 'incidents?state=open');
    return value && Object.values(runs).every((run) => value.incidents.some((one) => one.run === run));
  });
  return runs;
}

export async function startBrowser() {
  const { chromium } = require('playwright-core');
  const candidates = [process.env.PLUMB_CHROMIUM, '/usr/bin/chromium'].filter(Boolean);
  const executablePath = candidates.find((one) => existsSync(one));
  if (!executablePath) throw new Error('no Chromium: apt-get install chromium');
  // Chromium has no sandbox as root; the pages are our own.
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--force-color-profile=srgb'] });
  started.push(() => browser.close());
  return browser;
}

// Raises the timeouts of a page or a context, for a loaded machine.
export function patient(one) {
  one.setDefaultTimeout(PATIENCE);
  return one;
}

export async function json(server, path, headers = {}) {
  const answer = await fetch(server.http + '/api/v1/' + path, { headers });
  return { status: answer.status, value: await answer.json().catch(() => null) };
}

// Waits until all findings of page_feeder's runs exist.
export async function settled(server, { hang = true } = {}) {
  const wanted = ['causality/moe-future-leak', 'health/loss-non-finite', ...(hang ? ['performance/hang'] : [])];
  await eventually('the planted faults are found', async () => {
    const { value } = await json(server, 'incidents?state=open');
    return value && wanted.every((rule) => value.incidents.some((one) => one.rule === rule));
  });
  await eventually('the run that is over is judged', async () => {
    const { value } = await json(server, 'runs');
    return value.runs.some((one) => one.run === 'tokenizer-sweep-03' && one.state === 'done');
  });
}

// Opens an address of the page and waits until its view is complete.
export async function open(page, server, address) {
  const url = server.http + '/#' + address;
  if (page.url().split('#')[0] === server.http + '/') {
    await page.evaluate((a) => {
      if (location.hash === '#' + a) return;
      delete document.documentElement.dataset.whole;
      location.hash = '#' + a;
    }, address);
  } else {
    await page.goto(url);
  }
  await page.waitForFunction(() => document.documentElement.dataset.whole !== undefined, null, { timeout: PATIENCE });
}

export const axeSource = () => readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
