// The sites of one run: routers, series and stages, found by name without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/sites/governor.h"
#include "agent/core/sites/losses.h"
#include "agent/core/sites/site_orders.h"
#include "base/mutex.h"
#include "probes/logprobs_probe.h"

namespace plumbline::agent {

// Of the kinds in the list the number that C has; then the sites of series and stages.
enum class SiteKind : uint8_t {
#define PLUMB_KIND(Name, NAME, name, number, op) k##Name = number,
#include "proto/evidence_kinds.inc"
  kScalar = 254,
  kSpan = 255
};
const char* SiteKindName(SiteKind kind);  // "routing", "scalar", ...
// Of C's number; false: it is none of the list's.
bool MeasuredKind(int32_t number, SiteKind* kind);

// Sites that the cadence makes due; series and stages always are.
constexpr bool IsMeasured(SiteKind kind) {
  return kind != SiteKind::kScalar && kind != SiteKind::kSpan;
}

// Numbers calls within their step, from 0. Any thread.
class CallNumbers {
 public:
  uint32_t NextCall(int64_t step) { return NextCalls(step, 1); }
  // `n` numbers: the first of them.
  uint32_t NextCalls(int64_t step, uint32_t n);
  bool any() const { return calls_.load(std::memory_order_relaxed) != 0; }  // ever

 private:
  std::atomic<uint64_t> calls_{0};  // step (40 bits) and calls so far (24 bits)
};

struct Site {
  SiteKind kind = SiteKind::kRouting;
  std::string layer;
  std::string op;
  int64_t declared_step = 0;
  std::atomic<uint64_t*> next_due{nullptr};  // the façade's word; nullptr: always due

  // Tells how experts are loaded and no more: no rows, outside of the budgets, at the caller's
  // pace.
  bool tells_loads() const { return kind == SiteKind::kRouting && op == "loads"; }
  // Due at every step. Both sides of a rollout must send the same ones, by a budget of their own.
  bool always_due() const { return kind == SiteKind::kLogprobs || tells_loads(); }

  // The number of this call within its step, from 0. Any thread.
  uint32_t NextCall(int64_t step) { return calls_.NextCall(step); }
  uint32_t NextCalls(int64_t step, uint32_t n) { return calls_.NextCalls(step, n); }
  // Whether a call of it ever came while it was due. Any thread.
  bool heard() const { return calls_.any(); }
  // Notes what a call at the open step would take. Any thread.
  void NoteBytes(uint64_t sample_bytes, uint64_t summary_bytes);
  // Ends the step: the most bytes of one step so far. The stepping thread only.
  void EndStep();
  uint64_t most_sample_bytes() const { return most_sample_bytes_.load(std::memory_order_relaxed); }
  uint64_t most_summary_bytes() const { return most_summary_bytes_; }

  // What one replay of its calls in graphs takes. Any thread.
  std::atomic<uint64_t> graph_calls{0};
  std::atomic<uint64_t> graph_sample_bytes{0};
  std::atomic<uint64_t> graph_summary_bytes{0};

  LossCounters losses;
  CallCost cost;
  CallCost device_cost;            // of its calls on a GPU, by the GPU's clock
  SiteOrders orders;               // of the server
  probes::LogprobsBudget rollout;  // of a kLogprobs site

 private:
  CallNumbers calls_;
  std::atomic<uint64_t> sample_bytes_{0};
  std::atomic<uint64_t> summary_bytes_{0};
  std::atomic<uint64_t> most_sample_bytes_{0};  // written by the stepping thread
  uint64_t most_summary_bytes_ = 0;
};

class SiteTable {
 public:
  static constexpr size_t kMaxSites = 8192;
  static constexpr size_t kMaxName = 512;

  // The site of that name, made if it is new; nullptr when the table is full or a name longer than
  // kMaxName. Any thread; locks only to make one. Sites live as long as the table.
  Site* FindOrAdd(SiteKind kind, std::string_view layer, std::string_view op, int64_t step);

  size_t size() const { return count_.load(std::memory_order_acquire); }
  // In order of their making, index < size(). Any thread.
  Site* at(size_t index) const { return sites_[index].get(); }

 private:
  static constexpr size_t kSlots = 4 * kMaxSites;
  Site* Find(SiteKind kind, std::string_view layer, std::string_view op, size_t* slot) const;

  Mutex adding_;  // of who adds; readers find what slots_ and count_ publish
  std::array<std::atomic<Site*>, kSlots> slots_{};  // open addressing; entries are never removed
  std::array<std::unique_ptr<Site>, kMaxSites> sites_;
  std::atomic<size_t> count_{0};
};

}  // namespace plumbline::agent
