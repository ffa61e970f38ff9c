// Runs before the page's script is loaded, and sends the requests of the first view.
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
    // The code that uses the answer handles its error. If no code uses it, the error is ignored.
    answer.catch(() => undefined);
    early.set(address, answer);
  }
  (globalThis as { early?: Map<string, Promise<Response>> }).early = early;
}
