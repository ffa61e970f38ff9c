// Items of a step that are one call of a collective, put together over its ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "analysis/frame/frame.h"

namespace plumbline::rules {

// The items of a step that are one call: equal (group, sequence number), or where no number is
// known equal (group, n-th call of the step). Sorted by group rank. Pointers as in the step.
struct JoinedReduction {
  static constexpr size_t kNamedMissing = 32;

  std::string group;
  uint64_t sequence = 0;  // or the call's number
  bool sequence_known = false;
  uint32_t call = 0;  // of the first item
  std::vector<Item> items;
  uint32_t size = 0;                 // N; 0: not known
  uint64_t missing_count = 0;        // group ranks that did not report; of the world: ranks
  std::vector<uint32_t> missing;     // the first of them, where their numbers are known
  std::vector<uint32_t> sampleless;  // ranks that reported without a sample
  std::string ambiguous;             // "short-id: sentence": items that cannot be one call

  const v1::ReductionCall& call_of(size_t i) const { return items[i].evidence->reduction().call(); }
  bool has_sample() const { return sampleless.size() < items.size(); }
};

// Every call of the step in the order (group, sequence), running sums of one rank left out.
// Computed once a step (SiteStep::cache).
std::shared_ptr<const std::vector<JoinedReduction>> JoinReductions(const SiteStep& step);

// What ranks of one call disagree on: dtype, count, op or root; empty: nothing.
struct ReductionMismatch {
  std::string what;                 // "count"
  std::vector<std::string> values;  // of each item, in words
  std::vector<uint32_t> ranks;      // of each item
};
std::vector<ReductionMismatch> FindMismatches(const JoinedReduction& joined);

// "ranks 1, 2, 3", the first sixteen of many; "the world" or "group dp".
std::string RankWords(const std::vector<uint32_t>& ranks);
// The same of `count` ranks of which only the first are listed, or none.
std::string RankWords(const std::vector<uint32_t>& ranks, uint64_t count);
std::string GroupWords(const std::string& group);

// One record that speaks for all ranks.
bool HoldsAllRanks(const v1::Reduction& reduction);

}  // namespace plumbline::rules
