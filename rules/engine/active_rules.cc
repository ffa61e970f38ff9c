#include "rules/engine/active_rules.h"

#include "absl/strings/str_cat.h"

namespace plumbline::rules {

absl::StatusOr<std::vector<ActiveRule>> SelectRules(const std::vector<std::string>& globs) {
  std::vector<ActiveRule> active;
  std::vector<bool> used(globs.size(), false);
  for (const CatalogueEntry& entry : Catalogue()) {
    // The coverage rule always runs: a run that no rule could judge must not look like a pass.
    bool wanted = globs.empty() || std::string_view(entry.info->id) == "meta/probe-coverage";
    for (size_t i = 0; i < globs.size(); ++i) {
      if (!GlobMatch(globs[i], entry.info->id)) continue;
      used[i] = true;
      wanted = true;
    }
    if (wanted) active.push_back({&entry, Options(entry.info->id, entry.info->options)});
  }
  bool of_user = false;  // rules that are not in the catalogue: plumb audit --rule-file
  for (size_t i = 0; i < globs.size(); ++i) {
    of_user |= globs[i].starts_with("user/");
    if (used[i] || SomeRuleMatches(globs[i])) continue;
    const std::string near(NearestRule(globs[i]));
    return absl::InvalidArgumentError(
        absl::StrCat("no rule matches '", globs[i], "'",
                     near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
  }
  if (active.size() == 1 && !globs.empty() && !of_user &&
      !GlobMatch(globs[0], active[0].entry->info->id)) {
    return absl::InvalidArgumentError("the selected rules are planned, but not built yet");
  }
  return active;
}

absl::Status ApplySetting(const std::string& setting, std::vector<ActiveRule>& active) {
  const size_t equals = setting.find('=');
  const size_t dot = setting.substr(0, equals).rfind('.');
  if (equals == std::string::npos || dot == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("'", setting, "': expected RULE.OPTION=VALUE"));
  }
  const std::string rule = setting.substr(0, dot);
  if (FindRule(rule) == nullptr && FindPlannedRule(rule) == nullptr) {
    const std::string near(NearestRule(rule));
    return absl::InvalidArgumentError(absl::StrCat(
        "no rule '", rule, "'", near.empty() ? "" : absl::StrCat("; did you mean ", near, "?")));
  }
  for (ActiveRule& candidate : active) {
    if (rule != candidate.entry->info->id) continue;
    const std::string error = candidate.options.Set(setting.substr(dot + 1, equals - dot - 1),
                                                    setting.substr(equals + 1));
    return error.empty() ? absl::OkStatus() : absl::InvalidArgumentError(error);
  }
  return absl::InvalidArgumentError(absl::StrCat(rule, " is not among the rules that run"));
}

}  // namespace plumbline::rules
