// Bundles src/ and writes it as C++ files, one for plumbd and one for the reports of plumb: node
// build.mjs OUT.cc REPORT.cc. If the argument is a folder, writes the files there instead.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];
const reportOut = process.argv[3];
if (!out) throw new Error('node build.mjs OUT.cc REPORT.cc');

// Its licence requires its notice in every copy.
const uplot = readFileSync(join(here, 'node_modules/uplot/LICENSE'), 'utf8').trim();

const options = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  target: 'es2022',
  charset: 'utf8',
  banner: { js: `/*! With uPlot:\n${uplot}\n*/` },
  legalComments: 'inline',
  outdir: 'out',
  write: false,
  logLevel: 'warning',
};
// A report's script is inside the file itself, so it is not a module. A small separate script sends
// the first requests; the script of curves comes last.
const bundles = await Promise.all([
  build({ ...options, entryPoints: { page: 'src/main.ts', style: 'src/style.css' }, format: 'esm', splitting: true, chunkNames: 'part-[hash]' }),
  build({ ...options, entryPoints: { report: 'src/report.ts' }, format: 'iife' }),
  build({ ...options, entryPoints: { start: 'src/start.ts' }, format: 'iife', banner: {} }),
]);
const files = bundles.flatMap((one) => one.outputFiles);
const named = (text) => files.filter((file) => file.path.includes(text));
const of = (end) => Buffer.from(files.find((file) => file.path.endsWith(end)).contents);
const assets = [
  ['/', 'text/html; charset=utf-8', readFileSync(join(here, 'src/index.html'))],
  ['/page.js', 'text/javascript; charset=utf-8', of('page.js')],
  ['/start.js', 'text/javascript; charset=utf-8', of('start.js')],
  ...named('part-').map((file) => ['/' + basename(file.path), 'text/javascript; charset=utf-8', Buffer.from(file.contents)]),
  ['/style.css', 'text/css; charset=utf-8', of('style.css')],
];

// Returns a string literal in lines. Octal escapes end after three digits, so the following
// characters cannot join them.
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
    // Compressed once at build time, not for every request.
    text += `    {"${path}"sv, "${type}"sv, "\\"${tag}\\""sv,\n${literal(bytes)}sv,\n${literal(gzipSync(bytes, { level: 9 }))}sv},\n`;
  }
  text += '};\n\n}  // namespace\n\nstd::span<const PageAsset> PageAssets() { return kAssets; }\n' +
    'std::string_view PageAbsentWhy() { return {}; }\n\n}  // namespace plumbline::server\n';
  mkdirSync(dirname(out), { recursive: true });
  writeFileSync(out, text);
  if (reportOut) writeFileSync(reportOut, reportSource());
}

// Returns the script and the style of a report, and the script's digest for the content policy.
function reportSource() {
  const script = of('report.js');
  if (/<\/script|<!--/i.test(script.toString())) throw new Error('the script of a report would end within');
  const digest = createHash('sha256').update(script).digest('base64');
  return '// Written by dashboards/web/build.mjs.\n#include "audit/render/report_page.h"\n\n#pragma GCC diagnostic ignored "-Woverlength-strings"\n\nnamespace plumbline::audit {\nnamespace {\n\n' +
    `using std::string_view_literals::operator""sv;\n\nconstexpr ReportPage kPage = {\n${literal(script)}sv,\n    "sha256-${digest}"sv,\n${literal(of('style.css'))}sv};\n\n}  // namespace\n\n` +
    'const ReportPage* BundledReportPage() { return &kPage; }\n\n}  // namespace plumbline::audit\n';
}
