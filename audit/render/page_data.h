// Writes the data of an HTML report's views as JSON. dashboards/web/src/report.ts reads it.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Returns strict JSON that is safe within a script element: it has no "<", ">" or "&". Holds at
// most 1,000 incidents, in the form of plumbd's page, and at most 100 series: those of the
// incidents and some losses. Thread-safe.
std::string PageData(const AuditResult& result);

// Returns the subject of the report: its run, the number of runs, or its file; empty if unknown.
std::string ReportTitle(const AuditResult& result);

}  // namespace plumbline::audit
