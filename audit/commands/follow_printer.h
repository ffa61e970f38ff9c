// Prints findings of plumb audit --follow as they come, change and go.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "audit/render/text_util.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// Not thread-safe.
class FollowPrinter {
 public:
  enum class Format { kText, kJson };
  FollowPrinter(Format format, TextStyle style) : format_(format), style_(style) {}

  // Returns the text to print for the current findings. A new finding is printed whole, as JSON
  // {"event":"found","time":…,"finding":{…}}. A finding with another level or title is printed on
  // one line ("changed"). A finding that is gone is also printed on one line ("withdrawn"). If
  // nothing changed, returns "".
  std::string Update(const std::vector<const v1::Finding*>& findings);

 private:
  std::string Found(const v1::Finding& finding) const;
  std::string Line(const char* event, const v1::Finding& finding, const std::string& text) const;

  const Format format_;
  const TextStyle style_;
  std::map<std::string, v1::Finding> shown_;  // by fingerprint
};

// Returns a report of plumb audit as the last line: {"event":"report","report":{…}}.
std::string ReportLine(const std::string& json_report);

}  // namespace plumbline::audit
