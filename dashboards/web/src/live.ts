// Receives the stream of events as long as the page is visible.
import { BASE, PATIENCE, type IncidentRow } from './api';

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
  | { kind: 'again' };  // after a broken connection, when all data may have changed

export interface LiveState {
  state: 'connecting' | 'live' | 'starting' | 'offline' | 'out';  // 'out': no user is signed in
  lag: number;        // ms by which the judging lags
  since: number;      // last time the server responded
  next: number;       // time of the next attempt, while offline
}

const TRIES = [500, 1000, 2000, 4000, 5000];
// Streams per browser and server, because a browser has six connections, and views need some of them.
const STREAMS = 4;
const ASK_AGAIN = 3000;  // interval in ms of the requests of a window without a stream

// Reserves one of the browser's streams until `held` ends. Returns false if other windows have taken all. Without locks
// (plain HTTP to another machine), streams cannot be counted, so each window has its own.
async function place(held: AbortSignal): Promise<boolean> {
  if (!navigator.locks) return true;
  const over = new Promise<void>((done) => held.addEventListener('abort', () => done()));
  for (let n = 0; n < STREAMS; n++) {
    const got = await new Promise<boolean>((answer) => {
      navigator.locks.request(`plumbline-stream-${n}`, { ifAvailable: true }, (lock) => {
        answer(lock !== null);
        return lock === null || held.aborted ? undefined : over;
      }).catch(() => answer(true));
    });
    if (got) return true;
  }
  return false;
}

// Reconnects automatically, and sends the last event's id, so that no event is missed or repeated.
export class Live {
  state: LiveState = { state: 'connecting', lag: 0, since: Date.now(), next: 0 };
  private lastId = '';
  private tries = 0;
  private stop: AbortController | null = null;
  private timer = 0;
  private watchdog = 0;

  constructor(private readonly onEvent: (event: LiveEvent) => void, private readonly onState: () => void,
              private readonly onTime: (now: string) => void, private readonly onDenied: () => void) {}

  // Does not connect while the tab is hidden, because a browser has six connections per host for all its tabs.
  connect(): void {
    this.close();
    if (document.hidden) return;
    if (this.state.state === 'out') this.set({ state: 'connecting', since: Date.now() });
    this.stop = new AbortController();
    void this.follow(this.stop);
  }
  // Follows the stream. If other windows have taken all streams, requests everything at intervals.
  private async follow(stop: AbortController): Promise<void> {
    const streams = await place(stop.signal);
    if (stop.signal.aborted) return;
    if (streams) {
      this.watchdog = window.setTimeout(() => this.stalled(), PATIENCE);
      return this.read(stop);
    }
    try {
      const answer = await fetch(BASE + 'runs', { signal: stop.signal, credentials: 'same-origin' });
      if (answer.status === 401) return this.onDenied();
      if (answer.status === 403) return this.close();
      if (!answer.ok) throw new Error('no answer');
      this.onTime((await answer.json()).now);
      this.tries = 0;
      this.set({ state: 'live', lag: 0, since: Date.now() });
      this.onEvent({ kind: 'again' });
      this.timer = window.setTimeout(() => this.connect(), ASK_AGAIN);
    } catch {
      if (!stop.signal.aborted) this.lost();
    }
  }
  // Stops until connect is called.
  pause(state: 'connecting' | 'out'): void {
    this.close();
    this.tries = 0;
    this.set({ state, lag: 0, since: Date.now() });
  }
  private close(): void {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.stop?.abort();
  }

  private async read(stop: AbortController): Promise<void> {
    try {
      const headers: Record<string, string> = this.lastId ? { 'Last-Event-ID': this.lastId } : {};
      const answer = await fetch(BASE + 'events', { signal: stop.signal, headers, credentials: 'same-origin' });
      if (answer.status === 401) return this.onDenied();
      if (answer.status === 403) return this.close();  // the views show the missing right
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
      // Every error ends the stream, which is handled below.
    }
    if (stop.signal.aborted) return;
    stop.abort();  // releases the reservation
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

  // Detects a connection that seems open but is silent, because the server sends a beat each second.
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
    // A stream that ends each hour and reconnects at once is not shown as offline.
    const offline = Date.now() - this.state.since > 2000 || this.tries > 2;
    this.set({ state: offline ? 'offline' : this.state.state, lag: 0, next: Date.now() + wait });
    this.timer = window.setTimeout(() => this.connect(), wait);
  }
  private set(change: Partial<LiveState>): void {
    Object.assign(this.state, change);
    this.onState();
  }
}
