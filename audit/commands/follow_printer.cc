#include "audit/commands/follow_printer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "audit/live/watch_printer.h"
#include "audit/render/finding_json.h"
#include "audit/render/finding_text.h"
#include "base/clock.h"

namespace plumbline::audit {
namespace {

int64_t Now() { return static_cast<int64_t>(UnixNs()); }

}  // namespace

std::string FollowPrinter::Line(const char* event, const v1::Finding& finding,
                                const std::string& text) const {
  if (format_ == Format::kJson) {
    return absl::StrCat("{\"event\":\"", event, "\",\"time\":\"", Rfc3339(Now()),
                        "\",\"finding\":", FindingJson(finding), "}\n");
  }
  return Inked(style_, Ink::kDim, TimeText(Now()) + "  " + text) + "\n";
}

std::string FollowPrinter::Found(const v1::Finding& finding) const {
  std::string text = Line("found", finding, "found");
  if (format_ == Format::kText) text += RenderFinding(finding, style_) + "\n";
  return text;
}

std::string FollowPrinter::Update(const std::vector<const v1::Finding*>& findings) {
  std::string out;
  std::map<std::string, v1::Finding> now;
  const auto place = [](const v1::Finding& finding) {
    return absl::StrCat(Printable(finding.rule()), ", ", SiteText(finding.site()), ": ",
                        Printable(finding.title()));
  };
  for (const v1::Finding* finding : findings) {
    const auto before = shown_.find(finding->fingerprint());
    if (before == shown_.end()) {
      out += Found(*finding);
    } else if (before->second.level() != finding->level()) {
      out += Line("changed", *finding,
                  absl::StrCat("now ", LevelName(finding->level()), ", was ",
                               LevelName(before->second.level()), ": ", place(*finding)));
    } else if (before->second.title() != finding->title()) {
      out += Line("changed", *finding, "changed: " + place(*finding));
    }
    now[finding->fingerprint()] = *finding;
  }
  for (const auto& [fingerprint, finding] : shown_) {
    if (!now.contains(fingerprint))
      out += Line("withdrawn", finding,
                  "withdrawn, because later data contradict it: " + place(finding));
  }
  shown_ = std::move(now);
  return out;
}

std::string ReportLine(const std::string& json_report) {
  const auto report = nlohmann::ordered_json::parse(json_report, nullptr, false);
  return absl::StrCat("{\"event\":\"report\",\"report\":", TerminalSafeJson(report.dump()), "}\n");
}

}  // namespace plumbline::audit
