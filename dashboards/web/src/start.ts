// Runs before the page's script is loaded: sends the first view's requests meanwhile.
import { partsOf, path } from './address';

const [what, ...rest] = partsOf(location.hash);
const asked = ['server'];
if (!what || what === 'runs') asked.push('runs');
if (what === 'run' && rest.length) asked.push(path('runs', rest.join('/')));
if (what === 'incident' && rest.length === 1) asked.push(path('incidents', rest[0]));
if (what !== 'signin') {
  const early = new Map<string, Promise<Response>>();
  for (const address of asked) {
    const answer = fetch('/api/v1/' + address, { credentials: 'same-origin', signal: AbortSignal.timeout(30000) });
    // The code that takes the answer handles its error; otherwise it is ignored.
    answer.catch(() => undefined);
    early.set(address, answer);
  }
  (globalThis as { early?: Map<string, Promise<Response>> }).early = early;
}
