// The phases of a run that its log names: a stage, a task, the length of sequences. If a loss
// changes in the row in which one of them changes, other data may be the cause. Not thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/archive.h"

namespace plumbline::rules {

class Phases {
 public:
  static bool IsName(std::string_view op) {
    constexpr std::string_view kNames[] = {
        "stage",      "phase",           "task",           "task_id",
        "seq_len",    "seqlen",          "seq_length",     "sequence_length",
        "curriculum", "curriculum_step", "context_length", "curriculum seqlen",
        "difficulty"};
    if (op.starts_with("train/")) op.remove_prefix(6);
    return std::find(std::begin(kNames), std::end(kNames), op) != std::end(kNames);
  }

  void Take(const std::string& op, int64_t step, double value) {
    if (!std::isfinite(value)) return;
    const auto [known, fresh] = series_.try_emplace(op);
    Phase& phase = known->second;
    if (!fresh && phase.value != value) {
      ++phase.count;
      if (phase.steps.size() < kMostSteps) phase.steps.push_back(step);
    }
    phase.value = value;
  }

  // Returns the series that changes within `within` steps of a step. A series that changes in more
  // than an eighth of the points names no phases.
  std::optional<std::string> Near(int64_t step, double within, uint64_t points) const {
    for (const auto& [op, phase] : series_) {
      if (phase.count > std::min<uint64_t>(kMostSteps, points / 8)) continue;
      for (const int64_t at : phase.steps) {
        if (std::fabs(static_cast<double>(at - step)) <= within) return op;
      }
    }
    return std::nullopt;
  }

  void Persist(Archive& a) { a(series_); }

 private:
  static constexpr size_t kMostSteps = 64;
  struct Phase {
    double value = 0;
    uint64_t count = 0;          // of changes
    std::vector<int64_t> steps;  // of the first changes
    void Persist(Archive& a) { a(value, count, steps); }
  };
  std::map<std::string, Phase> series_;
};

}  // namespace plumbline::rules
