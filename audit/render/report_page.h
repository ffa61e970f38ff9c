// The script and style of an HTML report. dashboards/web/page.cmake puts them into this program.
#pragma once

#include <string_view>

namespace plumbline::audit {

struct ReportPage {
  std::string_view script;  // no "</script"
  std::string_view digest;  // "sha256-..." of the script, for the content security policy
  std::string_view style;   // no "</style"
};

// Returns static storage. If this plumb was built without the page, returns nullptr, and reports
// have their plain form.
const ReportPage* BundledReportPage();

}  // namespace plumbline::audit
