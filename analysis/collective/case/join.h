// Joins the items of a step that belong to one call of a collective, over its ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::analysis {

// The items of a step that belong to one call: equal (group, sequence number). If that number is
// not known, items with equal (group, n-th call of the step). Sorted by group rank. Pointers are
// valid as long as the step.
struct JoinedReduction {
  static constexpr size_t kNamedMissing = 32;

  std::string group;
  uint64_t sequence = 0;  // sequence number, or the number of the call in the step
  bool sequence_known = false;
  uint32_t call = 0;  // number of the call, of the first item
  std::vector<Item> items;
  uint32_t size = 0;  // N; 0 if not known
  // Number of group ranks that did not report (of ranks, for the world)
  uint64_t missing_count = 0;
  std::vector<uint32_t> missing;     // the first missing ranks, if their numbers are known
  std::vector<uint32_t> sampleless;  // ranks that reported without a sample
  std::string ambiguous;             // "short-id: sentence" if the items cannot be one call

  const v1::ReductionCall& call_of(size_t i) const { return items[i].evidence->reduction().call(); }
  bool has_sample() const { return sampleless.size() < items.size(); }
};

// Returns every call of the step in the order (group, sequence), without running sums of one rank.
// Computed once per step (SiteStep::cache).
std::shared_ptr<const std::vector<JoinedReduction>> JoinReductions(const SiteStep& step);

// A property on which ranks of one call disagree: dtype, count, op or root.
struct ReductionMismatch {
  std::string what;                 // "count"
  std::vector<std::string> values;  // value per item, as text
  std::vector<uint32_t> ranks;      // rank per item
};
std::vector<ReductionMismatch> FindMismatches(const JoinedReduction& joined);

// Returns a text such as "ranks 1, 2, 3". If there are many, lists the first sixteen. GroupWords
// returns "the world" or a text such as "group dp".
std::string RankWords(const std::vector<uint32_t>& ranks);
// The same for `count` ranks, of which `ranks` has only the first, or none.
std::string RankWords(const std::vector<uint32_t>& ranks, uint64_t count);
std::string GroupWords(const std::string& group);

// Returns true if this one record covers all ranks.
bool HoldsAllRanks(const v1::Reduction& reduction);

}  // namespace plumbline::analysis
