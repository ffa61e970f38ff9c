// What the store knows of runs, series and spans, all of it in memory. Numbers are given here, so
// that the judging thread never waits for the database.
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

// The steps of one role in one attempt of a run. A run that begins anew under the same attempt
// opens a later generation, which supersedes as an attempt does.
//
// What a rank reported after its step had been closed has spans of its own, since steps ascend
// within a span. Their generations have this bit, then the rank; they supersede nothing.
constexpr uint32_t kLateGeneration = uint32_t{1} << 31;
// A run that the rules had forgotten and that goes on at an earlier step, since its ranks return at
// different ones, opens a later generation that supersedes none. From here on, these are odd.
constexpr uint32_t kResumable = uint32_t{1} << 20;
constexpr int kLateRankShift = 14;

// Steps that came back from the journal (Store::AddRebuilt) have spans as late ones have, under
// numbers that no rank has: one for steps, and some for what had come late.
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

  // Everything up to (entry, step) is in sealed tiles; `sealed` false: nothing is.
  bool sealed = false;
  uint64_t sealed_entry = 0;
  int64_t sealed_step = 0;

  // In memory: closed, not yet in the database as whole blocks.
  std::deque<ClosedStepPtr> steps;
  // Of them, from the front: handed to the writer as whole blocks; handed over in any form.
  size_t queued = 0, flushed = 0;
  size_t block_bytes = 0;  // of the steps behind `queued`
  size_t block_steps = 0;  // a block is full at so many; 0: not decided
  std::unordered_map<const rules::SeriesColumns*, std::shared_ptr<const StoredColumns>> columns;

  bool empty() const { return last_step < first_step; }
  bool late() const { return generation >= kLateGeneration; }
  bool rebuilt() const {
    return late() &&
           (generation & ~kLateGeneration) >> kLateRankShift >= kRebuiltRank - kRebuiltLate;
  }
  bool resumed() const { return !late() && generation >= kResumable && generation % 2 == 1; }
  // A later span has the say where both have a step.
  std::pair<uint32_t, uint32_t> order() const { return {attempt, generation}; }
};

struct SeriesName {
  uint32_t id = 0;
  uint32_t run = 0;
  v1::Role role = v1::ROLE_UNSPECIFIED;
  std::string layer;
  std::string op;
};

// Runs and series with their numbers.
struct NameRows {
  std::vector<std::pair<uint32_t, std::string>> runs;
  std::vector<SeriesName> series;
};

// Not thread-safe; pointers stay valid.
class Catalogue {
 public:
  uint32_t Run(std::string_view name);            // its number, given now where it is new
  uint32_t FindRun(std::string_view name) const;  // 0: unknown
  // The number of a series of a run and role.
  uint32_t Series(uint32_t run, v1::Role role, const v1::Site& site);
  // The newest generation of an attempt; nullptr: there is none.
  Span* Find(uint32_t run, uint32_t attempt, v1::Role role);
  Span* Find(uint32_t run, uint32_t attempt, v1::Role role, uint32_t generation);
  Span* Add(uint32_t run, uint32_t attempt, v1::Role role,
            bool resumed = false);  // the next generation
  // The same of late steps of a rank. Add: nullptr where it has too many of them.
  Span* FindLate(uint32_t run, uint32_t attempt, v1::Role role, uint32_t rank);
  Span* AddLate(uint32_t run, uint32_t attempt, v1::Role role, uint32_t rank);

  std::vector<Span*> SpansOf(uint32_t run) const;  // ascending by order(), of all roles
  std::vector<Span*> Spans() const;
  const std::vector<const SeriesName*>& SeriesOf(uint32_t run) const;

  // All of a run; pointers to it are invalid then.
  void Forget(const std::string& name, uint32_t run);

  // As the database has them.
  void LoadRun(uint32_t id, std::string name);
  void LoadSeries(SeriesName series);
  void LoadSpan(Span span);

  // What was numbered since the last call: to be written before what uses it.
  NameRows TakeFresh() { return std::exchange(fresh_, {}); }
  NameRows Names() const;  // all

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
