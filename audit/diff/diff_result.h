// Two sides, compared: what the renderers write.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/diff/curves.h"
#include "audit/diff/side.h"
#include "audit/render/text_util.h"

namespace plumbline::audit {

struct TextDifference {
  std::string name, a, b;  // empty: that side has none
};

struct TimeDifference {
  std::string kind;     // of spans
  double a = 0, b = 0;  // seconds a step, mean over the side's runs
};

struct DiffResult {
  DiffSide a, b;
  std::vector<TextDifference> settings;  // by name; of groups those on which a side agrees with
                                         // itself
  std::vector<SeriesDiff> series;
  std::vector<std::string> series_only_a, series_only_b;
  std::vector<TextDifference> numerics;            // models of sums and biases, by rule and site
  std::vector<const v1::Finding*> only_a, only_b;  // by rule, layer, op; into the sides' reports
  uint64_t findings_in_both = 0;
  std::vector<TimeDifference> times;
  bool compared = false;  // something of both sides was held against each other
};

// A loss of B that ends above that of A.
struct EndAbove {
  std::string name;
  double share = 0;   // 0.05: 5 % above
  size_t points = 0;  // of the newest common ones
};
// Those that end more than `margin` (a share) above, beyond the noise, by name.
std::vector<EndAbove> EndsAbove(const DiffResult& result, double margin);

// Keeps the sides; its findings point into them.
std::unique_ptr<const DiffResult> CompareSides(DiffSide a, DiffSide b);

std::string DiffText(const DiffResult& result, const TextStyle& style);
// Schema "plumbline.diff/1". Strict JSON, ends with a newline.
std::string DiffJson(const DiffResult& result);

}  // namespace plumbline::audit
