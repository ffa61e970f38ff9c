// Writes the report as one HTML page.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns one file that loads nothing: no font, no image, one inline script, and a content security
// policy with that script's digest. Shows findings, one block per incident, with plots of their
// series; losses; inconclusive and passed verdicts, folded; inputs. If the script runs, it replaces
// this text with the views of plumbd's page. All foreign text is escaped. The same result gives the
// same bytes.
std::string RenderHtml(const AuditResult& result);

}  // namespace plumbline::audit
