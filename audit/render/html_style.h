// The style sheet of the report's page. Colours are set once for light and once for dark; each pair
// of text and background has a contrast of at least 4.5 (WCAG 2.1 AA;
// tests/audit/html_report_test.cc computes it).
#pragma once

namespace plumbline::audit {

inline constexpr const char* kHtmlStyle = R"css(
:root { color-scheme: light dark; --back: #ffffff; --text: #1b1f24; --dim: #57606a; --line: #d0d7de; --box: #f6f8fa;
  --error: #b3261e; --warning: #7a4d00; --note: #0a5aa8; --good: #1a6b32; --plot: #0a5aa8; }
@media (prefers-color-scheme: dark) {
  :root { --back: #0d1117; --text: #e6edf3; --dim: #9aa4af; --line: #3a424b; --box: #161b22;
    --error: #ff8a80; --warning: #f0b429; --note: #79b8ff; --good: #6fd28a; --plot: #79b8ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 0; } code, pre { font: 0.9em/1.4 ui-monospace, monospace; }
pre { background: var(--box); padding: 0.5rem; overflow-x: auto; white-space: pre-wrap; }
article { border: 1px solid var(--line); border-left: 4px solid var(--dim); padding: 0.75rem; margin: 1rem 0; }
article.error { border-left-color: var(--error); } article.warning { border-left-color: var(--warning); }
article.note { border-left-color: var(--note); } .level { font-weight: 700; }
.level.error { color: var(--error); } .level.warning { color: var(--warning); } .level.note { color: var(--note); }
.dim { color: var(--dim); } .good { color: var(--good); } .act { font-weight: 600; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; margin: 0.5rem 0; }
dt { color: var(--dim); } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; vertical-align: top; padding: 0.25rem 0.6rem;
  border-bottom: 1px solid var(--line); } th { color: var(--dim); font-weight: 600; }
.number { text-align: right; } summary { cursor: pointer; } details { margin: 0.5rem 0; }
figure { margin: 0.5rem 0; } figcaption { color: var(--dim); } svg { width: 100%; height: auto; display: block; }
svg text { fill: var(--dim); font: 12px ui-monospace, monospace; } .axis { fill: none; stroke: var(--line); }
.band { fill: var(--plot); fill-opacity: 0.2; stroke: var(--plot); stroke-opacity: 0.2; }
.line { fill: none; stroke: var(--plot); stroke-width: 1.5; } .nonfinite { fill: var(--error); }
.onset { stroke: var(--error); stroke-width: 1.5; stroke-dasharray: 5 3; }
@media print { details > * { display: block; } article { break-inside: avoid; } }
)css";

}  // namespace plumbline::audit
