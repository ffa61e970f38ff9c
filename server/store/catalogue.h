// The store's runs, series and spans, all in memory. It assigns the ids, so that the judging thread
// never waits for the database.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "plumbline/v1/evidence.pb.h"
#include "server/store/closed_steps.h"

namespace plumbline::server {

// The steps of one role in one attempt of a run. A run that restarts under the same attempt opens a
// later generation, which supersedes the earlier one like an attempt.
//
// Evidence that a rank reported after its step had been closed is in separate spans, because steps
// ascend within a span. Their generations have this bit, then the rank; they supersede no other
// span.
constexpr uint32_t kLateGeneration = uint32_t{1} << 31;
// A run that the rules had forgotten may continue at an earlier step, since its ranks return at
// different ones. It then opens a later generation that supersedes none. From this number on, such
// generations are odd.
constexpr uint32_t kResumable = uint32_t{1} << 20;
constexpr int kLateRankShift = 14;

// Steps that were rebuilt from the journal (Store::AddRebuilt) have spans like late ones, under
// numbers that no rank has: one for steps, and several for late evidence.
constexpr uint32_t kRebuiltRank = (1u << (31 - kLateRankShift)) - 1;
constexpr uint32_t kRebuiltLate = 256;
inline uint32_t RebuiltRank(bool late, uint32_t rank) {
  return late ? kRebuiltRank - 1 - rank % kRebuiltLate : kRebuiltRank;
}

struct Span {
  uint32_t id = 0;
  uint32_t run = 0;
  uint32_t attempt = 0;
  uint32_t generation = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int64_t first_step = 0, last_step = -1;
  uint64_t samples = 0;

  // Everything up to (entry, step) is in sealed tiles, if `sealed`.
  bool sealed = false;
  uint64_t sealed_entry = 0;
  int64_t sealed_step = 0;

  // In memory: closed, not yet in the database as complete blocks.
  std::deque<ClosedStepPtr> steps;
  // The number of these, from the front, that were passed to the writer as complete blocks, and in
  // any form.
  size_t queued = 0, flushed = 0;
  size_t block_bytes = 0;  // of the steps after `queued`
  size_t block_steps = 0;  // steps of a full block; 0: not decided
  std::unordered_map<const rules::SeriesColumns*, std::shared_ptr<const StoredColumns>> columns;

  bool empty() const { return last_step < first_step; }
  bool late() const { return generation >= kLateGeneration; }
  bool rebuilt() const {
    return late() &&
           (generation & ~kLateGeneration) >> kLateRankShift >= kRebuiltRank - kRebuiltLate;
  }
  bool resumed() const { return !late() && generation >= kResumable && generation % 2 == 1; }
  // If two spans have the same step, the later span counts.
  std::pair<uint32_t, uint32_t> order() const { return {attempt, generation}; }
};

struct SeriesName {
  uint32_t id = 0;
  uint32_t run = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string layer;
  std::string op;
};

// Runs and series with their ids.
struct NameRows {
  std::vector<std::pair<uint32_t, std::string>> runs;
  std::vector<SeriesName> series;
};

// Not thread-safe. Pointers stay valid.
class Catalogue {
 public:
  uint32_t Run(std::string_view name);            // returns the id of the run; assigns one if the
                                                  // run is new
  uint32_t FindRun(std::string_view name) const;  // 0: unknown
  // Returns the id of a series of a run and role; assigns one if it is new.
  uint32_t Series(uint32_t run, v1::Role role, const v1::Site& site);
  // Returns the newest generation of an attempt; nullptr if there is none.
  Span* Find(uint32_t run, uint32_t attempt, v1::Role role);
  Span* Find(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation);
  Span* Add(uint32_t run, uint32_t attempt, v1::Role role,
            bool resumed = false);  // adds the next generation
  // Do the same for late steps of a rank. AddLate returns nullptr if the rank has too many spans.
  Span* FindLate(uint32_t run, uint32_t attempt, v1::Role role, uint32_t rank);
  Span* AddLate(uint32_t run, uint32_t attempt, v1::Role role, uint32_t rank);

  // returns them ascending by order(), of all roles
  std::vector<Span*> SpansOf(uint32_t run) const;
  std::vector<Span*> Spans() const;
  const std::vector<const SeriesName*>& SeriesOf(uint32_t run) const;

  // All of a run; pointers to it are invalid then.
  void Forget(const std::string& name, uint32_t run);

  // Load the entries of the database.
  void LoadRun(uint32_t id, std::string name);
  void LoadSeries(SeriesName series);
  void LoadSpan(Span span);

  // Returns the names added since the last call. The names must be written before any record that
  // uses them.
  NameRows TakeFresh() { return std::exchange(fresh_, {}); }
  NameRows Names() const;  // returns all

 private:
  using SeriesKey = std::tuple<uint32_t, int, std::string, std::string>;
  using SpanKey = std::tuple<uint32_t, uint32_t, int, uint32_t>;  // run, attempt, role, generation

  SeriesName* Enter(SeriesName series);
  Span* NewestUpTo(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation);
  Span* AddGeneration(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation);

  std::map<std::string, uint32_t, std::less<>> runs_;
  std::map<SeriesKey, std::unique_ptr<SeriesName>> series_;
  std::map<uint32_t, std::vector<const SeriesName*>> series_of_;
  std::map<SpanKey, std::unique_ptr<Span>> spans_;
  uint32_t newest_run_ = 0, newest_series_ = 0, newest_span_ = 0;
  NameRows fresh_;
};

}  // namespace plumbline::server
