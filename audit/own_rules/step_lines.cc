#include "audit/own_rules/step_lines.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "audit/own_rules/json_text.h"

namespace plumbline::audit {
namespace {

const char* RoleWord(v1::Role role) {
  return role == v1::ROLE_ROLLOUT ? "rollout" : role == v1::ROLE_TRAINER ? "trainer" : "";
}

}  // namespace

size_t StepLines::RunNumber(const std::string& name, std::string* out) {
  const auto [known, fresh] = runs_.try_emplace(name, runs_.size());
  if (fresh) {
    absl::StrAppend(out, "{\"run\":", known->second, ",\"name\":");
    AppendJsonString(out, name);
    *out += "}\n";
  }
  return known->second;
}

// Late evidence has only one rank of a step that was judged before, so it is not shown.
void StepLines::TakeSite(const analysis::SiteStep& step, const SeriesRoles& roles) {
  if (step.late) return;
  const auto [known, fresh] =
      sites_.try_emplace({step.site.layer(), step.site.op()}, static_cast<int64_t>(sites_.size()));
  if (fresh && !reads_(step.site.op())) known->second = -1;
  const int64_t site = known->second;
  if (site < 0) return;
  if (fresh) {
    absl::StrAppend(&declared_, "{\"site\":", site, ",\"layer\":");
    AppendJsonString(&declared_, step.site.layer());
    declared_ += ",\"op\":";
    AppendJsonString(&declared_, step.site.op());
    absl::StrAppend(&declared_, ",\"series\":\"", NameOf(roles.Of(step.site.op())), "\"}\n");
  }
  missing_ = step.missing_ranks;
  for (const analysis::Item& item : step.items) {
    const bool scalar = item.evidence->has_scalar();
    std::string& list = scalar ? scalars_ : evidence_;
    if (!list.empty()) list += ',';
    absl::StrAppend(&list, "[", site, ",", item.source->rank(), ",");
    if (scalar) {
      AppendJsonNumber(&list, item.evidence->scalar().value());
    } else {
      absl::StrAppend(&list, item.evidence->call(), ",");
      AppendJsonMessage(&list, *item.evidence);
    }
    list += ']';
  }
}

std::string StepLines::EndStep(const analysis::StepEnd& step) {
  if (scalars_.empty() && evidence_.empty()) return "";
  std::string out;
  const size_t run = RunNumber(step.run, &out);
  out += declared_;
  absl::StrAppend(&out, "{\"step\":", step.step, ",\"of\":", run, ",\"attempt\":", step.attempt,
                  ",\"role\":\"", RoleWord(step.role), "\",\"world\":", step.world_size);
  if (!missing_.empty()) absl::StrAppend(&out, ",\"missing\":[", absl::StrJoin(missing_, ","), "]");
  absl::StrAppend(&out, ",\"scalars\":[", scalars_, "],\"evidence\":[", evidence_, "]}\n");
  declared_.clear();
  scalars_.clear();
  evidence_.clear();
  missing_.clear();
  return out;
}

std::string StepLines::EndRun(const analysis::RunSummary& run) {
  std::string out;
  const size_t number = RunNumber(run.run, &out);
  absl::StrAppend(&out, "{\"end\":", number, ",\"first\":", run.step_first,
                  ",\"last\":", run.step_last, ",\"ranks\":[", absl::StrJoin(run.ranks, ","),
                  "]}\n");
  return out;
}

}  // namespace plumbline::audit
