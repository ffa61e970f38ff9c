// Measures the figures of docs/measurements/page.md: node page_measure.mjs
import { readFileSync } from 'node:fs';
import { endAll, feed, open, settled, sleep, startBrowser, startServer } from './page_support.mjs';

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const cpu = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};

try {
  const server = await startServer('[liveness]\nhang_seconds = 0.3\n');
  const feeder = await feed(server, 10000);
  await settled(server);
  const browser = await startBrowser();

  // Measures bytes over the wire, and the time from requesting the document until the view is
  // complete and takes input.
  const first = async (address) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
    const page = await context.newPage();
    const client = await context.newCDPSession(page);
    await client.send('Network.enable');
    // Measures the CPU time of the page's own thread, which other load changes less than elapsed
    // time.
    await client.send('Performance.enable', { timeDomain: 'threadTicks' });
    let bytes = 0;
    client.on('Network.loadingFinished', (event) => { bytes += event.encodedDataLength; });
    await page.goto('about:blank');
    await page.goto(server.http + '/#' + address, { waitUntil: 'commit' });
    await page.waitForFunction(() => document.documentElement.dataset.ready !== undefined);
    const { metrics } = await client.send('Performance.getMetrics');
    const ms = (name) => 1000 * metrics.find((one) => one.name === name).value;
    const ready = await page.evaluate(() => Number(document.documentElement.dataset.readyAt));
    await page.waitForTimeout(1000);
    await context.close();
    return { bytes, ready, task: ms('TaskDuration'), script: ms('ScriptDuration') };
  };
  for (const [name, address] of [['runs', '/'], ['run, 10,000 series', '/run/many-series'], ['run, 10,000 ranks', '/run/many-ranks'], ['run, 1,000,000 steps', '/run/many-steps']]) {
    await first(address);
    const seen = [];
    for (let i = 0; i < 7; i++) seen.push(await first(address));
    console.log(`${name}: ready after ${median(seen.map((one) => one.ready)).toFixed(0)} ms (${Math.min(...seen.map((one) => one.ready)).toFixed(0)} to ${Math.max(...seen.map((one) => one.ready)).toFixed(0)}), ${(median(seen.map((one) => one.bytes)) / 1000).toFixed(1)} KB; the page's thread worked ${median(seen.map((one) => one.task)).toFixed(0)} ms, ${median(seen.map((one) => one.script)).toFixed(0)} ms of them for scripts (load ${readFileSync('/proc/loadavg', 'utf8').split(' ')[0]})`);
  }

  // The server's part: the longest answers.
  for (const [name, path] of [['10,000 series listed', 'runs/many-series/series'], ['10,000 ranks x 100 steps as cells', 'runs/many-ranks/cells?series=loss&rows=256&columns=300'], ['1,000,000 steps as 1,200 columns', 'runs/many-steps/points?series=loss&px=1200'], ['all runs', 'runs']]) {
    const took = [];
    let size = 0;
    for (let i = 0; i < 9; i++) {
      const begun = performance.now();
      size = (await (await fetch(server.http + '/api/v1/' + path)).arrayBuffer()).byteLength;
      took.push(performance.now() - begun);
    }
    console.log(`${name}: ${median(took).toFixed(1)} ms, ${(size / 1000).toFixed(1)} KB unpacked`);
  }

  // Shows a run whose steps come 60 times a second.
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await open(page, server, '/run/live');
  const client = await page.context().newCDPSession(page);
  await client.send('Performance.enable');
  const busy = async () => (await client.send('Performance.getMetrics')).metrics.find((one) => one.name === 'TaskDuration').value;
  await sleep(2000);
  const [taskBefore, cpuBefore, begun] = [await busy(), cpu(server.child.pid), performance.now()];
  for (let i = 0; i < 600; i++) {
    feeder.send('steps 1');
    await sleep(Math.max(0, begun + (i + 1) * (1000 / 60) - performance.now()));
  }
  const seconds = (performance.now() - begun) / 1000;
  console.log(`60 steps a second for ${seconds.toFixed(1)} s: the page's thread is busy ${(100 * (await busy() - taskBefore) / seconds).toFixed(1)} %, plumbd ${(100 * (cpu(server.child.pid) - cpuBefore) / seconds).toFixed(1)} % of a core`);
} finally {
  await endAll();
}
