// Bundles src/ and writes it as a C++ file: node build.mjs OUT.cc. With a folder as the argument the
// files themselves are written there.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
if (!out) throw new Error('node build.mjs OUT.cc');

// Its authors ask that their notice goes with every copy.
const uplot = readFileSync(join(here, 'node_modules/uplot/LICENSE'), 'utf8').trim();

const bundled = await build({
  absWorkingDir: here,
  entryPoints: { page: 'src/main.ts', style: 'src/style.css' },
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  charset: 'utf8',
  banner: { js: `/*! With uPlot:\n${uplot}\n*/` },
  legalComments: 'inline',
  outdir: 'out',
  write: false,
  logLevel: 'warning',
});
const of = (end) => Buffer.from(bundled.outputFiles.find((file) => file.path.endsWith(end)).contents);
const assets = [
  ['/', 'text/html; charset=utf-8', readFileSync(join(here, 'src/index.html'))],
  ['/page.js', 'text/javascript; charset=utf-8', of('page.js')],
  ['/style.css', 'text/css; charset=utf-8', of('style.css')],
];

// A string literal in lines: octal escapes end after three digits, so what follows cannot join them.
function literal(bytes) {
  let text = '';
  let line = '';
  for (const byte of bytes) {
    const plain = byte >= 0x20 && byte < 0x7f && byte !== 0x22 && byte !== 0x5c && byte !== 0x3f;
    line += plain ? String.fromCharCode(byte) : '\\' + byte.toString(8).padStart(3, '0');
    if (line.length > 100) {
      text += `    "${line}"\n`;
      line = '';
    }
  }
  return text + `    "${line}"`;
}

if (!out.endsWith('.cc')) {
  mkdirSync(out, { recursive: true });
  for (const [path, , bytes] of assets) writeFileSync(join(out, path === '/' ? 'index.html' : path), bytes);
} else {
  let text = '// Written by dashboards/web/build.mjs.\n#include "server/web/page_assets.h"\n\n' +
    '#pragma GCC diagnostic ignored "-Woverlength-strings"\n\nnamespace plumbline::server {\nnamespace {\n\nusing std::string_view_literals::operator""sv;\n\n' +
    'constexpr PageAsset kAssets[] = {\n';
  for (const [path, type, bytes] of assets) {
    const tag = createHash('sha256').update(bytes).digest('hex').slice(0, 16);
    text += `    {"${path}"sv, "${type}"sv, "\\"${tag}\\""sv,\n${literal(bytes)}sv},\n`;
  }
  text += '};\n\n}  // namespace\n\nstd::span<const PageAsset> PageAssets() { return kAssets; }\n' +
    'std::string_view PageAbsentWhy() { return {}; }\n\n}  // namespace plumbline::server\n';
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, text);
}
