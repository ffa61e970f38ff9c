// Rules: a list, and the page of a rule in sections, with its findings on this server.
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "rules/catalogue.h"
#include "server/web/views.h"

namespace plumbline::server {
namespace {

// Splits a page into paragraphs, each with a title in bold: "**Why.** In training ...". The text
// stays as the rule's author wrote it: no HTML is made of it here.
Json SectionsOf(const std::string& page) {
  Json sections = Json::array();
  std::string title, text;
  const auto flush = [&] {
    const size_t begin = text.find_first_not_of('\n');
    if (begin != std::string::npos) {
      text.erase(text.find_last_not_of('\n') + 1);
      sections.push_back({{"title", title}, {"text", text.substr(begin)}});
    }
    title.clear();
    text.clear();
  };
  for (size_t at = 0; at < page.size();) {
    const size_t end = std::min(page.find('\n', at), page.size());
    std::string line = page.substr(at, end - at);
    at = end + 1;
    if (line.rfind("# ", 0) == 0) continue;  // its id, which is shown above
    const bool heading = line.rfind("## ", 0) == 0;
    const size_t bold = line.rfind("**", 0) == 0 ? line.find("**", 2) : std::string::npos;
    if (heading || bold != std::string::npos) {
      flush();
      title = heading ? line.substr(3) : line.substr(2, bold - 2);
      while (!title.empty() && (title.back() == '.' || title.back() == ':')) title.pop_back();
      line = heading ? "" : line.substr(std::min(bold + 3, line.size()));
    }
    absl::StrAppend(&text, line, "\n");
  }
  flush();
  return sections;
}

Json OptionsOf(const rules::RuleInfo& info) {
  Json options = Json::array();
  for (const analysis::OptionInfo& option : info.options) {
    options.push_back({{"name", option.name},
                       {"default", option.default_value},
                       {"unit", option.unit},
                       {"reason", option.reason}});
  }
  return options;
}

}  // namespace

Json WebViews::Rules(const Lease& lease) const {
  std::map<std::string, uint64_t> open;
  for (const auto& change : IncidentsSeen(lease, "", "")) {
    if (StandingOf(change) == std::string_view("open")) ++open[change.incident.finding().rule()];
  }
  Json rows = Json::array();
  for (const rules::CatalogueEntry& entry : rules::Catalogue()) {
    rows.push_back({{"rule", entry.info->id},
                    {"title", entry.info->title},
                    {"level", analysis::LevelName(entry.info->level)},
                    {"open", open[entry.info->id]}});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Json& a, const Json& b) { return a["open"] > b["open"]; });
  return {{"rules", std::move(rows)}};
}

absl::StatusOr<Json> WebViews::Rule(const Lease& lease, const std::string& id) const {
  const rules::CatalogueEntry* const entry = rules::FindRule(id);
  if (entry == nullptr) {
    const std::string near(rules::NearestRule(id));
    return absl::NotFoundError(
        absl::StrCat("unknown rule", near.empty() ? "" : "; did you mean ", near));
  }
  const rules::RuleInfo& info = *entry->info;
  Json out = {{"rule", info.id},
              {"title", info.title},
              {"level", analysis::LevelName(info.level)},
              {"since", info.since},
              {"sections", SectionsOf(info.page)},
              {"options", OptionsOf(info)}};
  auto incidents = IncidentsSeen(lease, "", info.id);
  std::sort(incidents.begin(), incidents.end(), WorseThan);
  out["incidents"] = Json::array();
  for (const auto& change : incidents) {
    if (out["incidents"].size() < 50) out["incidents"].push_back(IncidentRow(change));
  }
  return out;
}

}  // namespace plumbline::server
