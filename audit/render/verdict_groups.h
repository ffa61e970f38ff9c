// Verdicts that say the same of many sites, gathered for a person to read. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Verdicts of one rule that say the same, over sites and steps.
struct VerdictGroup {
  std::string rule;
  std::string words;               // an inconclusive one's reason; what a pass rests on, or nothing
  std::vector<std::string> sites;  // as SiteText has them
};

// By rule, then by the reason's id.
std::vector<VerdictGroup> InconclusiveGroups(const AuditResult& result);
// By rule, then by what it was assumed on.
std::vector<VerdictGroup> PassedGroups(const AuditResult& result);

// The first few sites, and how many more there are.
std::string SitesText(const std::vector<std::string>& sites);

// "12 findings that the baseline FILE has are left out"; empty: none is.
std::string LeftOutText(const AuditResult& result);

// "2 findings (1 error, 1 warning); 5 of 7 rules judged; not judged: health/loss-stall, ...".
std::string SummaryText(const AuditResult& result);

}  // namespace plumbline::audit
