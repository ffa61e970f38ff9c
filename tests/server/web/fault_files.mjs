// Six artificial faults as files for plumb audit, each in a separate folder: a router that drops by
// score, a rollout at another temperature, a GPU that waits for data, ranks that hang, a loss that
// becomes NaN, a sum that overflows in fp16. For pictures and for the report's test; one seed
// generates all of them.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

function randomOf(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 4294967296;
  };
  return { uniform, normal: () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()) };
}

const TYPES = { F32: [Float32Array, 4], I64: [BigInt64Array, 8], U8: [Uint8Array, 1], F16: [Uint16Array, 2], BOOL: [Uint8Array, 1] };
function safetensors(path, metadata, tensors) {
  const header = { __metadata__: metadata };
  const bodies = [];
  let at = 0;
  for (const [name, { dtype, shape, values }] of Object.entries(tensors)) {
    const bytes = Buffer.from(TYPES[dtype][0].from(values).buffer);
    header[name] = { dtype, shape, data_offsets: [at, at + bytes.length] };
    at += bytes.length;
    bodies.push(bytes);
  }
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...bodies]));
}

// Four sequences of 64 tokens in one pool; the full experts keep the best scores, not the first
// tokens.
function leak(folder) {
  const { normal } = randomOf(7);
  const [tokens, experts, capacity] = [256, 8, 40];
  const logits = Float32Array.from({ length: tokens * experts }, (_, i) => normal() + (i % experts === 3 ? 1.1 : 0));
  const score = (t, e) => {
    const row = logits.subarray(t * experts, (t + 1) * experts);
    const top = Math.max(...row);
    return Math.exp(row[e] - top) / row.reduce((sum, x) => sum + Math.exp(x - top), 0);
  };
  const choice = Array.from({ length: tokens }, (_, t) => [...logits.subarray(t * experts, (t + 1) * experts)].reduce((best, x, e, row) => (x > row[best] ? e : best), 0));
  const keep = new Array(tokens).fill(1);
  for (let e = 0; e < experts; e++) {
    const all = choice.map((one, t) => [one, t]).filter(([one]) => one === e).map(([, t]) => t).sort((a, b) => score(b, e) - score(a, e));
    for (const t of all.slice(capacity)) keep[t] = 0;
  }
  const whole = (of) => ({ dtype: 'I64', shape: [tokens], values: Array.from({ length: tokens }, (_, t) => BigInt(of(t))) });
  safetensors(join(folder, 'layer.safetensors'), { kind: 'routing', run: 'moe-48b-pretrain-7', layer: 'layers.11', step: '812', rank: '5', mode: 'train', top_k: '1', score_function: 'softmax', capacity: String(capacity), capacity_source: 'declared', pool: 'microbatch' }, {
    router_logits: { dtype: 'F32', shape: [tokens, experts], values: logits }, topk_indices: { dtype: 'I64', shape: [tokens, 1], values: choice.map(BigInt) },
    keep_mask: { dtype: 'U8', shape: [tokens, 1], values: keep }, sequence_id: whole((t) => Math.floor(t / 64)), position: whole((t) => t % 64),
  });
}

// Sampled at temperature 1; the trainer divides its logits by 0.8.
function drift(folder) {
  const { uniform, normal } = randomOf(11);
  const lines = [];
  const soft = (logits) => {
    const top = Math.max(...logits);
    const sum = logits.reduce((s, x) => s + Math.exp(x - top), 0);
    return logits.map((x) => x - top - Math.log(sum));
  };
  for (let id = 0; id < 160; id++) {
    const line = { step: 40 + Math.floor(id / 16), sequence_id: `s${id}`, tokens: [], loss_mask: [], rollout_logprobs: [], train_logprobs: [], entropy: [], varentropy: [], weight_versions: [], train_version: 40 + Math.floor(id / 16) };
    for (let t = 0; t < 48; t++) {
      const logits = Array.from({ length: 24 }, () => 2 * normal());
      const [mu, pi] = [soft(logits), soft(logits.map((x) => x / 0.8))];
      let left = uniform();
      let token = mu.findIndex((x) => (left -= Math.exp(x)) <= 0);
      if (token < 0) token = 0;
      const entropy = -pi.reduce((s, x) => s + Math.exp(x) * x, 0);
      line.tokens.push(token);
      line.loss_mask.push(1);
      line.rollout_logprobs.push(mu[token] + 2e-3 * normal());
      line.train_logprobs.push(pi[token]);
      line.entropy.push(entropy);
      line.varentropy.push(pi.reduce((s, x) => s + Math.exp(x) * (x + entropy) ** 2, 0));
      line.weight_versions.push(line.train_version);
    }
    lines.push(JSON.stringify(line));
  }
  writeFileSync(join(folder, 'rollout.jsonl'), lines.join('\n') + '\n');
}

// In every step of 100 ms the GPU waits about 16 ms for the loader.
function comb(folder) {
  const { uniform } = randomOf(13);
  const events = [];
  const add = (cat, name, pid, tid, ts, dur, args = {}) => events.push({ ph: 'X', cat, name, pid, tid, ts, dur, args });
  let correlation = 1;
  for (let step = 0; step < 24; step++) {
    const begin = 1e6 + step * 100000;
    const wait = 14000 + Math.round(4000 * uniform());
    add('user_annotation', `ProfilerStep#${step}`, 100, 100, begin, 100000);
    add('user_annotation', 'enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__', 100, 100, begin, wait - 200);
    const kernel = (100000 - wait) / 20;
    for (let k = 0; k < 20; k++, correlation++) {
      const at = begin + wait + k * kernel;
      add('cuda_runtime', 'cudaLaunchKernel', 100, 100, at - 60, 8, { correlation });
      add('kernel', ['gemm_bf16', 'softmax', 'layer_norm', 'gelu'][k % 4], 0, 7, at, kernel - 5, { correlation, stream: 7, device: 0 });
    }
  }
  writeFileSync(join(folder, 'rank0.json'), JSON.stringify({ schemaVersion: 1, distributedInfo: { backend: 'nccl', rank: 0, world_size: 1 }, displayTimeUnit: 'ms', traceEvents: events }));
}

// Eight ranks in two pipeline groups; rank 5 has not launched the operation that its group waits
// for, and the others wait for its group.
function hang(folder) {
  const frames = [{ name: 'step', filename: '/home/me/train.py', line: 57 }];
  const entry = (number, state, group, name) => ({ frames, record_id: number, pg_id: Number(group[0]), process_group: group, collective_seq_id: number, p2p_seq_id: 0, op_id: number, profiling_name: name, time_created_ns: 1712345678000000000,
    input_sizes: [[1024, 8]], input_dtypes: ['Float'], output_sizes: [[1024, 8]], output_dtypes: ['Float'], state, is_p2p: false, retired: state === 'completed', timeout_ms: 600000 });
  const world = ['0', 'default_pg'];
  const tensor = ['1', 'tensor'];
  for (let rank = 0; rank < 8; rank++) {
    const inner = rank >= 4;
    const entries = [1, 2, 3, 4, 5].map((n) => entry(n, 'completed', world, 'nccl:all_reduce'));
    if (inner) entries.push(...[1, 2, 3].map((n) => entry(n, 'completed', tensor, 'nccl:_all_gather_base')));
    if (inner && rank !== 5) entries.push(entry(4, 'started', tensor, 'nccl:_all_gather_base'));
    if (!inner) entries.push(entry(6, 'started', world, 'nccl:all_reduce'));
    const status = (last, done) => ({ last_enqueued_collective: last, last_started_collective: last, last_completed_collective: done });
    writeFileSync(join(folder, `trace_rank_${rank}.json`), JSON.stringify({ version: '2.5', pg_config: { 0: { name: '0', desc: 'default_pg', ranks: '[0, 1, 2, 3, 4, 5, 6, 7]' }, ...(inner ? { 1: { name: '1', desc: 'tensor', ranks: '[4, 5, 6, 7]' } } : {}) },
      pg_status: { 0: status(inner ? 5 : 6, 5), ...(inner ? { 1: status(rank === 5 ? 3 : 4, 3) } : {}) }, entries }));
  }
}

function nan(folder) {
  const { normal } = randomOf(17);
  const rows = ['step,loss,grad_norm,lr'];
  for (let step = 0; step < 400; step++) {
    const loss = 2.2 + 2.6 * Math.exp(-step / 70) + 0.02 * normal();
    rows.push(step < 311 ? `${step},${loss.toFixed(5)},${(0.8 + 0.05 * normal()).toFixed(4)},0.0003` : `${step},nan,nan,0.0003`);
  }
  writeFileSync(join(folder, 'metrics.csv'), rows.join('\n') + '\n');
}

function overflow(folder) {
  const [ranks, m] = [4, 64];
  // 30,000 each in fp16; the sum of four exceeds its range. The other values fit.
  const values = Array.from({ length: ranks * m }, (_, i) => (i % m < 8 ? 0x7753 : 0x3c00));
  safetensors(join(folder, 'grads.safetensors'), { kind: 'reduction', run: 'dense-13b-fp16', layer: 'bucket.3', step: '57', op: 'sum', wire_dtype: 'fp16', count: String(m), group: 'dp' }, {
    inputs: { dtype: 'F16', shape: [ranks, m], values }, output: { dtype: 'F16', shape: [m], values: Array.from({ length: m }, (_, i) => (i < 8 ? 0x7c00 : 0x4400)) },
  });
}

export const FAULTS = { leak, drift, comb, hang, nan, overflow };

// Writes the six folders below `folder`; returns them by name.
export function writeFaults(folder) {
  const out = {};
  for (const [name, write] of Object.entries(FAULTS)) {
    out[name] = join(folder, name);
    mkdirSync(out[name], { recursive: true });
    write(out[name]);
  }
  return out;
}
