// The report as one HTML page for a browser.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// One file that loads nothing: no font, no image, one script of its own, and a content security
// policy that names that script's digest. Findings, one block an incident, with plots of the series
// they speak of; losses; what could not be told and what passed, folded; inputs. Where its script
// runs, the page's views of plumbd take the place of these words. All foreign text is escaped. The
// same result gives the same bytes.
std::string RenderHtml(const AuditResult& result);

}  // namespace plumbline::audit
