// The client of the server's API: JSON under /api/v1.
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
  fill?: string;  // the parts of the command that are in capitals
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
  symptoms?: IncidentRow[];  // incidents with the same cause, which have no separate row
}

const announced = new Set<string>();

/** Returns true once, if the incident was opened recently. Findings may have joined it before its first event. */
export function isNew(row: IncidentRow): boolean {
  if (announced.has(row.fingerprint) || Date.parse(row.updated) - Date.parse(row.opened) > 10_000) return false;
  if (announced.size >= 10_000) announced.clear();
  announced.add(row.fingerprint);
  return true;
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
  judged: number;  // number of verdicts that are a pass or a finding, without inconclusive ones
  inconclusive: number;
  evidence: number;
  samples: number;
  lost: number;
  late: number;
  liveness: Record<string, number>;
  worst: IncidentRow | null;
  labels: Labels;
  owner: string;
  quarantined?: string;
}

// What people added to a run.
export interface Labels { tags: string[]; note: string; name: string; archived: boolean; deleted: boolean; who: string; time: string }
// Each part that is set replaces the former one; `undo` alone.
export interface RunEdit { who?: string; add_tags?: string[]; remove_tags?: string[]; note?: string; name?: string; archived?: boolean; deleted?: boolean; undo?: boolean }

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
  how_sure: string;
  title: string;
  explanation: string;
  cause: { id: string; confidence: number | string };
  site: { run: string; step_first: number; step_last: number; ranks: string; rank_count: number; layer: string; op: string; file?: string; line?: number };
  sample_size: number;
  measured?: { name: string; value: number | string; unit: string };
  threshold?: { value: number | string; source: string };
  bias?: { mean: number | string; low: number | string; high: number | string; unit: string };
  false_alarm?: { kind: string; value: number | string; text?: string };
  forecast?: { [key: string]: Value };
  lost?: { rank_seconds: number | string; on_gpus: boolean; text: string };  // as its rule measured it
  assumptions: string[];
  witness: { [key: string]: Value };
  details: { [key: string]: Value };
  fix: string;
  act: string;
  commands: { where: string; command: string; fill?: string }[];  // `fill`: the parts that are in capitals
  fingerprint: string;
  suppressed: boolean;
}

// Time that ranks lost by an incident, summed over ranks.
export interface Lost { rank_seconds: number; on_gpus: boolean; of: string }

export interface IncidentPage extends IncidentRow {
  now: string;
  may_change: boolean;
  access: string;
  finding: Finding;
  site_rows: { fingerprint: string; layer: string; op: string; level: string; strength: string; step_first: number; step_last: number; ranks: number; count: number; suppressed: boolean; file?: string; line?: number }[];
  history: { change: string; level: string; state: string; step: number | null; time: string; who: string; reason: string }[];
  capsule: { state: string; why: string; bytes?: number; step?: number; ranks?: number };
  symptom_of?: IncidentRow;
  also: { fingerprint: string; rule: string; level: string; title_short: string }[];
  run_step?: number;
  run_world?: number;
  run_connected?: number;
  run_over?: boolean;
  lost?: Lost | null;
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
export interface Ranks {
  world: number;
  seen: number;
  missing: number;
  missing_ranges: [number, number][];
  left_out: number;
  hosts: string[];
  rank: number[];
  host: number[];  // index in `hosts`
  through: number[];  // last complete step; -1: none
  state: ('connected' | 'away' | 'over')[];
  value: (number | string | null)[];
}
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
  series: number;
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
  store_bytes?: number;  // only for users that may read all runs
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

// The server refused the request, with this text.
export class ApiError extends Error {
  constructor(readonly status: number, words: string) {
    super(words);
  }
}

export const BASE = '/api/v1/';
export { path };
// Returns the address of a file, which the browser downloads.
export const capsuleAddress = (fingerprint: string): string => BASE + path('incidents', fingerprint, 'capsule');

async function failed(answer: Response): Promise<ApiError> {
  let words = answer.statusText;
  try {
    words = ((await answer.json()) as { error: string }).error;
  } catch {
    // The answer is not JSON, so a proxy refused the request.
  }
  return new ApiError(answer.status, words);
}

// There was no answer in time. The server is down, or the browser has no free connection for this tab.
export class Unanswered extends Error {}
export const PATIENCE = 15000;  // ms; the server may need ten seconds for a change

// Called after each request: true if it was answered, false if it was not answered in time.
let onAnswered: (answered: boolean) => void = () => undefined;
export function whenAnswered(listener: (answered: boolean) => void): void {
  onAnswered = listener;
}

// Sends one request and reads its whole answer, within PATIENCE.
async function ask<T>(fetched: (signal: AbortSignal) => Promise<Response>, read: (answer: Response) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  let timer = 0;
  const late = new Promise<never>((_, fail) => {
    timer = window.setTimeout(() => {
      fail(new Unanswered());
      stop.abort();
      onAnswered(false);
    }, PATIENCE);
  });
  const whole = (async () => {
    const answer = await fetched(stop.signal);
    onAnswered(true);
    if (!answer.ok) throw await failed(answer);
    return read(answer);
  })();
  try {
    return await Promise.race([whole, late]);
  } finally {
    clearTimeout(timer);
  }
}

type Params = Record<string, string | number | undefined>;

// A report has no server. This function then answers from the data in the report.
let source: ((address: string, params: Params) => unknown) | null = null;
export function setSource(answer: (address: string, params: Params) => unknown): void {
  source = answer;
}

// Requests that start.ts sent before this script was loaded; each answer is used once.
const early = (globalThis as { early?: Map<string, Promise<Response>> }).early;
function takeEarly(address: string): Promise<Response> | undefined {
  const answer = early?.get(address);
  early?.delete(address);
  return answer;
}
// Discards unused early answers after the first view, because they would be outdated later.
export function dropEarly(): void {
  early?.clear();
}

export async function get<T>(address: string, params: Params = {}): Promise<T> {
  if (source) return source(address, params) as T;
  const text = address + query(params);
  return ask((signal) => takeEarly(text) ?? fetch(BASE + text, { signal, credentials: 'same-origin' }), (answer) => answer.json() as Promise<T>);
}

export async function getBytes(address: string, params: Params): Promise<Uint8Array> {
  return ask((signal) => fetch(BASE + address + query(params), { signal, credentials: 'same-origin' }), async (answer) => new Uint8Array(await answer.arrayBuffer()));
}

function query(params: Params): string {
  const set = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '') set.append(name, String(value));
  }
  const text = set.toString();
  return text ? '?' + text : '';
}

// In this encoding, a reason in any script fits in a header. In percent encoding it would not.
function base64(text: string): string {
  let bytes = '';
  for (const byte of new TextEncoder().encode(text)) bytes += String.fromCharCode(byte);
  return btoa(bytes).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

// A change has no body: it is in a header that pages of other sites cannot send.
function change<T>(address: string, update: object): Promise<T> {
  const headers = { 'Plumbline-Update': 'b64.' + base64(JSON.stringify(update)) };
  return ask((signal) => fetch(BASE + address, { method: 'POST', headers, signal, credentials: 'same-origin' }), (answer) => answer.json() as Promise<T>);
}
export const setState = (fingerprint: string, update: Record<string, unknown>): Promise<IncidentPage> => change(path('incidents', fingerprint, 'state'), update);
export const editRun = (run: string, edit: RunEdit): Promise<Labels> => change(path('runs', run, 'labels'), edit);

// Sends the token once, in a header. The result is a cookie that no script can read.
export async function signIn(token: string): Promise<void> {
  const answer = await fetch(BASE + 'session', { method: 'POST', headers: { Authorization: 'Bearer ' + token } });
  if (!answer.ok) throw new ApiError(answer.status, (await answer.text()).trim());
}
export async function signOut(): Promise<void> {
  await fetch(BASE + 'session', { method: 'DELETE' });
}
