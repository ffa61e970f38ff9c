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

// Kinds of the list have their number in C; then the kinds of series and stages follow.
enum class SiteKind : uint8_t {
#define PLUMB_KIND(Name, NAME, name, number, op) k##Name = number,
#include "proto/evidence_kinds.inc"
  kScalar = 254,
  kSpan = 255
};
const char* SiteKindName(SiteKind kind);  // "routing", "scalar", ...
// Converts C's number; returns false if it is not in the list.
bool MeasuredKind(int32_t number, SiteKind* kind);

// Returns true for kinds that the cadence makes due; series and stages always are.
constexpr bool IsMeasured(SiteKind kind) {
  return kind != SiteKind::kScalar && kind != SiteKind::kSpan;
}

// Numbers calls within their step, from 0. Thread-safe.
class CallNumbers {
 public:
  uint32_t NextCall(int64_t step) { return NextCalls(step, 1); }
  // Takes `n` numbers and returns the first one.
  uint32_t NextCalls(int64_t step, uint32_t n);
  // Returns true if the newest call was in this step.
  bool In(int64_t step) const {
    const uint64_t calls = calls_.load(std::memory_order_relaxed);
    return calls != 0 && calls >> kBits == (static_cast<uint64_t>(step) & (~uint64_t{0} >> kBits));
  }
  bool any() const { return calls_.load(std::memory_order_relaxed) != 0; }  // ever

 private:
  static constexpr uint64_t kBits = 24;
  std::atomic<uint64_t> calls_{0};  // step (40 bits) and calls so far (kBits bits)
};

// A line of the trainer's source; the file is empty if it is not known.
struct SourceLine {
  std::string_view file;
  uint32_t line = 0;
};

struct Site {
  SiteKind kind = SiteKind::kRouting;
  std::string layer;
  std::string op;
  int64_t declared_step = 0;
  std::string file;  // the line that reported it first; empty: not known
  uint32_t line = 0;
  std::atomic<uint64_t*> next_due{nullptr};  // the façade's word; nullptr: always due

  // Returns true if the site only reports the loads of experts. Such a site keeps no rows, is
  // outside of the budgets, and is called as often as the caller decides.
  bool reports_loads() const { return kind == SiteKind::kRouting && op == "loads"; }
  // Returns true if the site is due at every step. Both sides of a rollout must send the same
  // steps, within a separate budget.
  bool always_due() const { return kind == SiteKind::kLogprobs || reports_loads(); }

  // Returns the number of this call within its step, from 0. Thread-safe.
  uint32_t NextCall(int64_t step) { return calls_.NextCall(step); }
  uint32_t NextCalls(int64_t step, uint32_t n) { return calls_.NextCalls(step, n); }
  // Returns true if a call of the site ever came while it was due. Thread-safe.
  bool heard() const { return calls_.any(); }
  bool HeardIn(int64_t step) const { return calls_.In(step); }
  // Notes the bytes that a call at the open step would take. Thread-safe.
  void NoteBytes(uint64_t sample_bytes, uint64_t summary_bytes);
  // Ends the step: updates the most bytes of one step so far. Called by the stepping thread only.
  void EndStep();
  uint64_t most_sample_bytes() const { return most_sample_bytes_.load(std::memory_order_relaxed); }
  uint64_t most_summary_bytes() const { return most_summary_bytes_; }

  // Bytes of one replay of its calls in graphs. Thread-safe.
  std::atomic<uint64_t> graph_calls{0};
  std::atomic<uint64_t> graph_sample_bytes{0};
  std::atomic<uint64_t> graph_summary_bytes{0};

  LossCounters losses;
  CallCost cost;
  CallCost device_cost;            // time of its calls on a GPU, by the GPU's clock
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
  static constexpr size_t kMaxName = 512, kMaxFile = 256;

  // Returns the site of that name, and creates it if it is new. Returns nullptr if the table is
  // full or a name is longer than kMaxName. Thread-safe; locks only to create a site. Sites live as
  // long as the table.
  // A new site keeps the last kMaxFile bytes of `at`.
  Site* FindOrAdd(SiteKind kind, std::string_view layer, std::string_view op, int64_t step,
                  const SourceLine& at = {});

  size_t size() const { return count_.load(std::memory_order_acquire); }
  // Returns sites in the order of their creation, index < size(). Thread-safe.
  Site* at(size_t index) const { return sites_[index].get(); }

 private:
  static constexpr size_t kSlots = 4 * kMaxSites;
  Site* Find(SiteKind kind, std::string_view layer, std::string_view op, size_t* slot) const;

  Mutex adding_;  // held by threads that add; readers find entries published in slots_ and count_
  std::array<std::atomic<Site*>, kSlots> slots_{};  // open addressing; entries are never removed
  std::array<std::unique_ptr<Site>, kMaxSites> sites_;
  std::atomic<size_t> count_{0};
};

}  // namespace plumbline::agent
