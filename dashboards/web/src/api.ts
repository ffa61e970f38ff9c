// What the server says: JSON under /api/v1, and one stream of events.
import { path } from './address';

export interface IncidentRow {
  fingerprint: string;
  run: string;
  rule: string;
  level: string;
  strength: string;
  state: string;
  suppressed: boolean;
  title: string;
  title_short: string;
  act: string;
  command: string;
  fill?: string;  // what of the command stands in capitals
  where: string;
  step_first: number;
  step_last: number;
  opened: string;
  updated: string;
  count: number;
  sites: number;
  revision: number;
  who: string;
  reason: string;
  until_step?: number;
  until_time?: string;
  merged_into?: string;
}

export interface RunRow {
  run: string;
  state: string;
  word: string;
  order: number;
  over: boolean;
  world: number;
  seen: number;
  connected: number;
  finished: number;
  attempt: number;
  newest_step: number;
  closed_step: number;
  step_seconds: number;
  first_seen: string;
  last_seen: string;
  open: { error: number; warning: number; note: number };
  put_aside: number;
  judged: number;
  inconclusive: number;
  evidence: number;
  samples: number;
  lost: number;
  late: number;
  liveness: Record<string, number>;
  worst: IncidentRow | null;
  quarantined?: string;
}

export interface Gap { attempt: number; step_first: number; step_last: number; items: number; reason: string }

export interface RunPage extends RunRow {
  now: string;
  gaps: Gap[];
  attempts: { attempt: number; step_first: number; step_last: number; superseded: boolean }[];
  incidents: IncidentRow[];
}

export type Value = number | string | boolean | null | Value[] | { [key: string]: Value };

export interface Finding {
  rule: string;
  level: string;
  strength: string;
  title: string;
  explanation: string;
  cause: { id: string; confidence: number | string };
  site: { run: string; step_first: number; step_last: number; ranks: string; rank_count: number; layer: string; op: string };
  sample_size: number;
  measured?: { name: string; value: number | string; unit: string };
  threshold?: { value: number | string; source: string };
  bias?: { mean: number | string; low: number | string; high: number | string; unit: string };
  false_alarm?: { kind: string; value: number | string };
  forecast?: { [key: string]: Value };
  assumptions: string[];
  witness: { [key: string]: Value };
  details: { [key: string]: Value };
  fix: string;
  act: string;
  commands: { where: string; command: string; fill?: string }[];  // `fill`: what stands in capitals
  fingerprint: string;
  suppressed: boolean;
}

export interface IncidentPage extends IncidentRow {
  now: string;
  may_change: boolean;
  access: string;
  finding: Finding;
  site_rows: { fingerprint: string; layer: string; op: string; level: string; strength: string; step_first: number; step_last: number; ranks: number; count: number; suppressed: boolean }[];
  history: { change: string; level: string; state: string; step: number | null; time: string; who: string; reason: string }[];
  capsule: { state: string; why: string; bytes?: number; step?: number; ranks?: number };
  also: { fingerprint: string; rule: string; level: string; title_short: string }[];
  run_step?: number;
  run_world?: number;
  run_connected?: number;
}

export interface Points {
  series?: string;
  bucket_steps?: number;
  step: number[];
  mean?: (number | null)[];
  min?: (number | null)[];
  max?: (number | null)[];
  bad?: number[];
}

export interface SeriesRow { series: string; role: string; is: string; ranks: number; step_first: number; step_last: number; samples: number }
export interface SeriesList {
  count: number;
  matching: number;
  more_groups: number;
  groups: { group: string; count: number; series: SeriesRow[] }[];
}

export interface Coverage {
  judged: number;
  inconclusive: number;
  dropped: number;
  rules: { rule: string; pass: number; finding: number; inconclusive: number }[];
  reasons: { rule: string; reason: string; sites: number }[];
  evidence: number;
  lost: number;
  late: number;
  lost_by_cause: Record<string, number>;
  late_by_cause: Record<string, number>;
  gaps: Gap[];
  liveness: Record<string, number>;
}

export interface ServerInfo {
  version: string;
  now: string;
  grpc: string;
  keeps: boolean;
  access: string;
  guarded: boolean;
  may_change: boolean;
  replay: boolean;
  store_problem: string;
  store_bytes: number;
}

export interface RulePage {
  rule: string;
  title: string;
  level: string;
  since: string;
  sections: { title: string; text: string }[];
  options: { name: string; default: string; unit: string; reason: string }[];
  incidents: IncidentRow[];
}

// What the server refused, in its own words.
export class ApiError extends Error {
  constructor(readonly status: number, words: string) {
    super(words);
  }
}

const BASE = '/api/v1/';
export { path };
// A file: the browser asks for it and keeps it.
export const capsuleAddress = (fingerprint: string): string => BASE + path('incidents', fingerprint, 'capsule');

async function failed(answer: Response): Promise<ApiError> {
  let words = answer.statusText;
  try {
    words = ((await answer.json()) as { error: string }).error;
  } catch {
    // No JSON: a refusal of the front.
  }
  return new ApiError(answer.status, words);
}

type Params = Record<string, string | number | undefined>;

// A report has no server: it answers from what is in it.
let source: ((address: string, params: Params) => unknown) | null = null;
export function setSource(answer: (address: string, params: Params) => unknown): void {
  source = answer;
}

// What start.ts asked for while this script was still on its way; each answer serves once.
const early = (globalThis as { early?: Map<string, Promise<Response>> }).early;
function takeEarly(address: string): Promise<Response> | undefined {
  const answer = early?.get(address);
  early?.delete(address);
  return answer;
}
// The first view stands: what nobody has taken would be old when it is asked for.
export function dropEarly(): void {
  early?.clear();
}

export async function get<T>(address: string, params: Params = {}, signal?: AbortSignal): Promise<T> {
  if (source) return source(address, params) as T;
  const text = address + query(params);
  const answer = await (takeEarly(text) ?? fetch(BASE + text, { signal, credentials: 'same-origin' }));
  if (!answer.ok) throw await failed(answer);
  return (await answer.json()) as T;
}

export async function getBytes(address: string, params: Params, signal?: AbortSignal): Promise<Uint8Array> {
  const answer = await fetch(BASE + address + query(params), { signal, credentials: 'same-origin' });
  if (!answer.ok) throw await failed(answer);
  return new Uint8Array(await answer.arrayBuffer());
}

function query(params: Params): string {
  const set = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '') set.append(name, String(value));
  }
  const text = set.toString();
  return text ? '?' + text : '';
}

// A header has room for a reason in any script this way, and not in percent encoding.
function base64(text: string): string {
  let bytes = '';
  for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
  return btoa(bytes).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

// A change has no body: it stands in a header that pages of other sites cannot send.
export async function setState(fingerprint: string, update: Record<string, unknown>): Promise<IncidentPage> {
  const answer = await fetch(BASE + path('incidents', fingerprint, 'state'), {
    method: 'POST',
    headers: { 'Plumbline-Update': 'b64.' + base64(JSON.stringify(update)) },
    credentials: 'same-origin',
  });
  if (!answer.ok) throw await failed(answer);
  return (await answer.json()) as IncidentPage;
}

// The token goes in a header once; what stays is a cookie that no script can read.
export async function signIn(token: string): Promise<void> {
  const answer = await fetch(BASE + 'session', { method: 'POST', headers: { Authorization: 'Bearer ' + token } });
  if (!answer.ok) throw new ApiError(answer.status, (await answer.text()).trim());
}
export async function signOut(): Promise<void> {
  await fetch(BASE + 'session', { method: 'DELETE' });
}

// ---- events ----

export interface RunStep {
  run: string;
  newest_step: number;
  closed_step: number;
  connected: number;
  finished: number;
  last_seen: string;
  open_incidents: number;
  lost: number;
}
export type LiveEvent =
  | { kind: 'incident'; row: IncidentRow }
  | { kind: 'runs'; runs: RunStep[] }
  | { kind: 'again' };  // after a break: anything may have changed

export interface LiveState {
  state: 'connecting' | 'live' | 'starting' | 'offline';
  lag: number;        // ms that the judge is behind
  since: number;      // when the server was heard last
  next: number;       // when it is tried again, while offline
}

const TRIES = [500, 1000, 2000, 4000, 5000];

// Comes again by itself; the last event's id goes along, so nothing is missed and nothing is told twice.
export class Live {
  state: LiveState = { state: 'connecting', lag: 0, since: Date.now(), next: 0 };
  private lastId = '';
  private tries = 0;
  private stop: AbortController | null = null;
  private timer = 0;
  private watchdog = 0;

  constructor(private readonly onEvent: (event: LiveEvent) => void, private readonly onState: () => void,
              private readonly onTime: (now: string) => void, private readonly onDenied: () => void) {}

  connect(): void {
    clearTimeout(this.timer);
    this.stop?.abort();
    this.stop = new AbortController();
    void this.read(this.stop);
  }
  close(): void {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.stop?.abort();
  }

  private async read(stop: AbortController): Promise<void> {
    try {
      const headers: Record<string, string> = this.lastId ? { 'Last-Event-ID': this.lastId } : {};
      const answer = await fetch(BASE + 'events', { signal: stop.signal, headers, credentials: 'same-origin' });
      if (answer.status === 401) return this.onDenied();
      if (answer.status === 403) return;  // the views say what is missing
      if (!answer.ok || !answer.body) throw new Error('no stream');
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        text += value;
        for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
          this.take(text.slice(0, end));
          text = text.slice(end + 2);
        }
      }
    } catch {
      // Told below: whatever happened, the stream is over.
    }
    if (stop.signal.aborted) return;
    this.lost();
  }

  private take(block: string): void {
    let name = '';
    let data = '';
    for (const line of block.split('\n')) {
      if (line.startsWith('event: ')) name = line.slice(7);
      else if (line.startsWith('data: ')) data += line.slice(6);
      else if (line.startsWith('id: ')) this.lastId = line.slice(4);
    }
    if (!name) return;
    this.heard();
    const value = JSON.parse(data);
    if (name === 'hello') {
      this.onTime(value.now);
      if (this.tries > 0 || this.state.state === 'offline') this.onEvent({ kind: 'again' });
      this.tries = 0;
      this.set({ state: 'live', lag: 0 });
    } else if (name === 'beat') {
      this.onTime(value.now);
      const was = this.state.state;
      this.set({ state: value.replay ? 'starting' : 'live', lag: value.lag_ms });
      if (was === 'starting' && !value.replay) this.onEvent({ kind: 'again' });
    } else if (name === 'incident') {
      this.onEvent({ kind: 'incident', row: value });
    } else if (name === 'runs') {
      this.onEvent({ kind: 'runs', runs: value });
    }
  }

  // Silence of a connection that looks whole is a break, too: beats come each second.
  private heard(): void {
    this.state.since = Date.now();
    clearTimeout(this.watchdog);
    this.watchdog = window.setTimeout(() => this.stalled(), 6000);
  }
  private stalled(): void {
    this.stop?.abort();
    this.lost();
  }
  private lost(): void {
    clearTimeout(this.watchdog);
    const wait = TRIES[Math.min(this.tries, TRIES.length - 1)];
    this.tries++;
    // A stream that ends each hour comes back at once: nothing is said of that.
    const offline = Date.now() - this.state.since > 2000 || this.tries > 2;
    this.set({ state: offline ? 'offline' : this.state.state, lag: 0, next: Date.now() + wait });
    this.timer = window.setTimeout(() => this.connect(), wait);
  }
  private set(change: Partial<LiveState>): void {
    Object.assign(this.state, change);
    this.onState();
  }
}
