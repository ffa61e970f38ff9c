// Groups equal verdicts of many sites for display. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Verdicts of one rule with the same text, over sites and steps.
struct VerdictGroup {
  std::string rule;
  std::string words;               // an inconclusive verdict's reason without its code; a passed
                                   // verdict's assumption, or empty
  std::string reason;              // an inconclusive verdict's reason in two or three words
  std::vector<std::string> sites;  // in the form of SiteText
};

// Returns groups sorted by rule, then by the reason's id.
std::vector<VerdictGroup> InconclusiveGroups(const AuditResult& result);
// Returns groups sorted by rule, then by their assumption.
std::vector<VerdictGroup> PassedGroups(const AuditResult& result);

// Lists the first sites, and the number of the others.
std::string SitesText(const std::vector<std::string>& sites);

// Returns "12 findings that the baseline FILE has are left out"; "" if none is.
std::string LeftOutText(const AuditResult& result);

// Returns "2 findings (1 error, 1 warning); 5 of 7 rules judged; not judged: health/loss-stall,
// ...".
std::string SummaryText(const AuditResult& result);

}  // namespace plumbline::audit
