// Detects resumes that are not visible as attempts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "analysis/frame/frame.h"
#include "base/archive.h"

namespace plumbline::analysis {

inline constexpr std::string_view kScheduleCounter = "scheduler.step",
                                  kOptimizerCounter = "optimizer.step";

inline bool CountsSteps(const v1::Site& site) {
  return site.layer().empty() && (site.op() == kScheduleCounter || site.op() == kOptimizerCounter);
}

// Checkpoints have no attempts. A resume is visible if the schedule's counter falls and the
// optimizer's continues.
struct SeenResumes {
  uint32_t count = 0;
  double scheduler = -1, optimizer = -1;  // the last values
  std::optional<double> scheduler_now, optimizer_now;

  void Take(const SiteStep& step) {
    std::optional<double>& now = step.site.op() == kScheduleCounter ? scheduler_now : optimizer_now;
    for (const Item& item : step.items) {
      if (item.evidence->has_scalar())
        now = std::max(now.value_or(-1), item.evidence->scalar().value());
    }
  }
  void Close() {
    if (scheduler_now && optimizer_now && *scheduler_now<scheduler&& * optimizer_now> optimizer)
      ++count;
    if (scheduler_now) scheduler = *scheduler_now;
    if (optimizer_now) optimizer = *optimizer_now;
    scheduler_now.reset();
    optimizer_now.reset();
  }
  // Between steps scheduler_now and optimizer_now are empty.
  void Persist(Archive& a) { a(count, scheduler, optimizer); }
};

}  // namespace plumbline::analysis
