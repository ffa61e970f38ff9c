// Pictures of every view: node page_shots.mjs FOLDER [WIDTH|THEME|VIEW]...
// Those of the README: node page_shots.mjs docs/pictures readme
// Of six planted faults, all runs and the worst incident of each: node page_shots.mjs FOLDER faults
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { endAll, feed, json, open, sendFaults, settled, startBrowser, startServer } from './page_support.mjs';

const folder = process.argv[2] ?? 'build/page';
const only = process.argv.slice(3);
mkdirSync(folder, { recursive: true });

try {
  const server = await startServer('[liveness]\nhang_seconds = 0.3\n');
  const readme = only[0] === 'readme';
  const faults = only[0] === 'faults' ? await sendFaults(server) : null;
  if (faults) only.shift();
  else {
    await feed(server, readme ? 'pictures' : '');
    await settled(server);
  }
  const { value } = await json(server, 'incidents?state=open');
  const of = (rule) => value.incidents.find((one) => one.rule === rule)?.fingerprint;
  const hostile = value.incidents.find((one) => one.run.includes('evil'))?.fingerprint;
  const ofRun = (run) => value.incidents.find((one) => one.run === run)?.fingerprint;
  const views = faults ? { runs: '/', incidents: '/incidents', ...Object.fromEntries(Object.entries(faults).map(([name, run]) => ['incident-' + name, '/incident/' + ofRun(run)])), run: '/run/' + faults.nan } : {
    runs: '/',
    run: '/run/dense-13b-fp16-lr3',
    'run-leak': '/run/demo-score-drop',
    incidents: '/incidents',
    'incident-leak': '/incident/' + of('causality/moe-future-leak'),
    'incident-nan': '/incident/' + of('health/loss-non-finite'),
    'incident-hang': '/incident/' + of('performance/hang'),
    hostile: '/incident/' + hostile,
    rule: '/rule/causality/moe-future-leak',
    rules: '/rules',
    compare: '/compare?a=vlm-3b-sft-2&b=dense-1b-baseline-12',
    signin: '/signin',
  };
  const browser = await startBrowser();
  if (readme) {
    const page = await browser.newPage({ viewport: { width: 1180, height: 720 }, colorScheme: 'light' });
    for (const [name, address] of [['runs', '/'], ['incident', views['incident-leak']]]) {
      await open(page, server, address);
      await page.waitForTimeout(1000);
      await page.screenshot({ path: join(folder, name + '.png') });
    }
    for (const name of Object.keys(views)) delete views[name];
  }
  for (const width of [1280, 400]) {
    for (const theme of ['light', 'dark']) {
      if (only.length && !only.includes(String(width)) && !only.includes(theme) && !only.some((one) => one in views)) continue;
      const page = await browser.newPage({ viewport: { width, height: 900 }, colorScheme: theme, deviceScaleFactor: 1 });
      for (const [name, address] of Object.entries(views)) {
        if (only.some((one) => one in views) && !only.includes(name)) continue;
        await open(page, server, address);
        await page.waitForTimeout(500);
        await page.screenshot({ path: join(folder, `${name}-${theme}-${width}.png`), fullPage: true });
      }
      await page.close();
    }
  }
} finally {
  await endAll();
}
