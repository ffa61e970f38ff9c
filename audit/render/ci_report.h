// Writes the report for continuous integration: JUnit's XML, Markdown for a pull request, and
// annotations of GitHub Actions. One entry per incident; suppressed ones are left out. Foreign text
// is escaped for each form. The same result gives the same bytes.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns a test suite with a test case for each rule that gave a verdict: failed by its incidents
// at or above `fail_on`, skipped if it passed nothing and all its verdicts are inconclusive.
std::string RenderJunit(const AuditResult& result, v1::Level fail_on);
// Returns a heading, the summary, and a table of incidents.
std::string RenderMarkdown(const AuditResult& result);
// Returns one workflow command per incident and per input that could not be read, then the summary.
std::string RenderGithub(const AuditResult& result);

}  // namespace plumbline::audit
