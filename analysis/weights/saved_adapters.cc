#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/weights/saved_findings.h"
#include "analysis/weights/saved_weights.h"

namespace plumbline::analysis {
namespace {

constexpr std::string_view kAdapter = "lora_", kSecondFactor = "lora_B";

bool IsPartOf(const std::string& layer, std::string_view part) {
  return layer.find(part) != std::string::npos;
}

// Returns true if the rate of the adapters, or else of the smallest group, is 0.
bool RestsAtZero(const SavedRank& rank, const std::vector<const SavedPair*>& adapters) {
  bool held = false;
  for (const SavedPair* pair : adapters) {
    const auto rate = rank.rates.find(pair->layer);
    if (rate == rank.rates.end()) continue;
    if (rate->second > 0) return false;
    held = true;
  }
  return held || (rank.rate && !(*rank.rate > 0));
}

}  // namespace

// Counts the checkpoints in which adapters have no effect or do not change.
void SavedWeights::TakeAdapters(const StepEnd& step, const SavedRank& rank) {
  SavedCourse& course = CourseOf(step, rank.rank);
  std::vector<const SavedPair*> all;
  size_t second = 0, zero = 0, still = 0, others = 0, held = 0;
  for (const SavedPair& pair : rank.tensors) {
    if (!pair.weight()) continue;
    const bool adapter = IsPartOf(pair.layer, kAdapter);
    others += !adapter && pair.change == SavedPair::Change::kNew ? 1 : 0;
    if (!adapter || pair.look->count == 0) continue;
    all.push_back(&pair);
    still += pair.change == SavedPair::Change::kStill ? 1 : 0;
    if (!IsPartOf(pair.layer, kSecondFactor)) continue;
    ++second;
    held += rank.rates.contains(pair.layer) ? 1 : 0;
    zero += pair.look->all_zero() ? 1 : 0;
  }
  if (all.empty()) return;
  const bool at_rest = RestsAtZero(rank, all);
  course.adapters_moved |= still < all.size() && course.checkpoints > 0;
  // If other weights are trained, the adapters may not be in use.
  const bool zeros = second > 0 && zero == second && (others == 0 || held > 0);
  if (!zeros) {
    course.zero_adapters = 0;
  } else if (step.step > 0 && !at_rest) {
    if (course.zero_adapters++ == 0) course.adapters_first = step.step;
  }
  // The first checkpoint begins the row. In a checkpoint of rate 0 nothing has to change.
  if (course.checkpoints == 0 || others > 0)
    course.still_adapters = 1;
  else if (still == all.size() && !at_rest)
    ++course.still_adapters;
}

// Reports adapters that have no effect in the newest checkpoints, or never changed: those that
// change later were in a warm-up, or frozen on purpose.
bool SavedWeights::ReportAdapters(const Place& place, const SavedCourse& course,
                                  VerdictSink& out) const {
  constexpr uint64_t kCheckpoints = 3;
  const bool zero = course.zero_adapters >= kCheckpoints;
  if (!zero && (course.still_adapters < kCheckpoints || course.adapters_moved)) return false;
  std::vector<SavedPair> pairs;
  for (const auto& [key, tensor] : tensors_) {
    const auto& [role, rank, layer, op] = key;
    if (Place(role, rank) == place && op == "weight" && tensor.count > 0 &&
        IsPartOf(layer, zero ? kSecondFactor : kAdapter))
      pairs.push_back({layer, op});
  }
  std::vector<const SavedPair*> adapters;
  for (const SavedPair& pair : pairs) adapters.push_back(&pair);
  if (adapters.empty()) return false;
  out.Add(AdapterFound(zero, zero ? course.adapters_first : course.step_first, course.step,
                       adapters, place.second));
  return true;
}

}  // namespace plumbline::analysis
