#include "server/store/span_view.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rules/catalogue.h"

namespace plumbline::server {

absl::Status ViewRun(const Catalogue& catalogue, const std::string& run_name,
                     const std::string& glob, RunView* view) {
  const uint32_t run = catalogue.FindRun(run_name);
  if (run == 0) {
    return absl::NotFoundError(absl::StrCat(
        "run \"", run_name, "\" has no series on this server (plumb runs lists the runs)"));
  }
  for (const SeriesName* s : catalogue.SeriesOf(run)) {
    if (glob.empty() || rules::GlobMatch(glob, SeriesText(s->layer, s->op)))
      view->series.push_back(*s);
  }
  for (const Span* span : catalogue.SpansOf(run)) {
    SpanView& v = view->spans.emplace_back();
    v.id = span->id;
    v.attempt = span->attempt;
    v.role = span->role;
    v.late = span->late();
    v.rebuilt = span->rebuilt();
    v.resumed = span->resumed();
    v.first_step = span->first_step;
    v.last_step = span->last_step;
    v.steps.assign(span->steps.begin(), span->steps.end());
  }
  return absl::OkStatus();
}

void AddAttempts(const Catalogue& catalogue, v1::RunInfo* info) {
  std::map<uint32_t, v1::AttemptInfo> attempts;
  for (const Span* span : catalogue.SpansOf(catalogue.FindRun(info->run()))) {
    info->set_samples(info->samples() + span->samples);
    if (span->empty()) continue;
    const auto [at, fresh] = attempts.try_emplace(span->attempt);
    v1::AttemptInfo& a = at->second;
    a.set_attempt(span->attempt);
    a.set_step_first(fresh ? span->first_step
                           : std::min<int64_t>(a.step_first(), span->first_step));
    a.set_step_last(fresh ? span->last_step : std::max<int64_t>(a.step_last(), span->last_step));
  }
  for (auto& [attempt, a] : attempts) {
    a.set_superseded(attempt != attempts.rbegin()->first);
    *info->add_attempts() = std::move(a);
  }
}

}  // namespace plumbline::server
