// The result of comparing two sides. The renderers write it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/diff/curves.h"
#include "audit/diff/rewards.h"
#include "audit/diff/side.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {

struct TextDifference {
  std::string name, a, b;  // empty if that side has none
};

struct TimeDifference {
  std::string kind;     // kind of spans
  double a = 0, b = 0;  // seconds per step, mean over the side's runs
};

struct DiffResult {
  DiffSide a, b;
  std::vector<TextDifference> settings;  // by name; for groups: settings on which each side's runs
                                         // agree
  std::vector<SeriesDiff> series;
  std::vector<RewardDiff> rewards;
  std::vector<std::string> series_only_a, series_only_b;
  std::vector<TextDifference> numerics;            // models of sums and biases, by rule and site
  std::vector<const v1::Finding*> only_a, only_b;  // by rule, layer, op; pointers into the sides'
                                                   // reports
  uint64_t findings_in_both = 0;
  std::vector<TimeDifference> times;
  bool compared = false;  // true if something was compared
};

// A loss of B that ends above that of A.
struct EndAbove {
  std::string name;
  double share = 0;   // 0.05: 5 % above
  size_t points = 0;  // number of newest common points
};
// Returns the losses of B that end more than `margin` (a share) above A, beyond the noise, by name.
std::vector<EndAbove> EndsAbove(const DiffResult& result, double margin);

// Compares the sides and owns them: findings point into them.
std::unique_ptr<const DiffResult> CompareSides(DiffSide a, DiffSide b);

std::string DiffText(const DiffResult& result, const TextStyle& style);
// Returns strict JSON of schema "plumbline.diff/1" that ends with a newline.
std::string DiffJson(const DiffResult& result);

}  // namespace plumbline::audit
