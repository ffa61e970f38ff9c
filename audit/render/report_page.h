// The page's script and style for an HTML report, as dashboards/web/page.cmake puts them into this
// program.
#pragma once

#include <string_view>

namespace plumbline::audit {

struct ReportPage {
  std::string_view script;  // no "</script"
  std::string_view digest;  // "sha256-..." of it, for the content policy
  std::string_view style;   // no "</style"
};

// Static storage. nullptr: this plumb was built without the page, and reports have their plain
// form.
const ReportPage* BundledReportPage();

}  // namespace plumbline::audit
