// What the views of an HTML report show, as JSON: dashboards/web/src/report.ts reads it.
#pragma once

#include <string>

#include "audit/session/audit.h"

namespace plumbline::audit {

// Strict JSON that may stand within a script element: no "<", ">", "&". Incidents as the page of
// plumbd has them, at most 1,000; the series that they speak of and some losses, at most 100.
// Thread-safe.
std::string PageData(const AuditResult& result);

}  // namespace plumbline::audit
