// Records how the processes of one attempt of one role end: their endings, which processes left
// without one, and the newest value that each reported.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "analysis/processes/processes.h"
#include "base/archive.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/evidence.pb.h"
#include "rules/analysis_names.h"

namespace plumbline::rules {

// Not thread-safe. Memory per rank is bounded. Full endings are kept only for ranks that a finding
// could name (kWhole).
class ProcessEnds {
 public:
  static constexpr size_t kWhole = 64;
  static constexpr size_t kMostNames = 64;  // of series; values of others are not kept

  // Records that the source reported something: a rank that was gone is back.
  void Hear(const v1::Source& source);
  // Records a scalar that the rank reported. Older steps change nothing.
  void Value(uint32_t rank, int64_t step, const v1::Site& site, double value);
  // Records its goodbye.
  void Stated(const v1::Source& source, const v1::Progress& progress);
  // Records how the process ended: kGone, kUnreachable, or kOpen if it is only known that nothing
  // arrives from it.
  void Gone(const v1::Source& source, EndKind way);

  // Returns true if any source is a process, not a dump or a foreign file.
  bool any_process() const;

  // Appends the known facts about processes, by rank. The caller fills in the steps.
  void List(v1::Role role, std::vector<ProcessEnd>* out) const;

  // Computes whole_ again after reading.
  void Persist(Archive& a);

 private:
  struct Rank {
    std::string host;
    int64_t pid = 0;  // 0: the source is not a process, such as a dump or a foreign file
    EndKind way = EndKind::kOpen;
    v1::Ending stated;
    bool followed = false;
    bool whole = false;
    uint32_t name = kMostNames;  // of the series, in names_; kMostNames: none
    int64_t value_step = ProcessEnd::kNever;
    double value = 0;
    void Persist(Archive& a);
  };
  void Thin();
  void Renew(Rank& rank);

  std::map<uint32_t, Rank> ranks_;
  std::vector<std::string> names_;
  size_t whole_ = 0;  // ranks whose ending is kept in full
};

// Returns the column whose values are kept: the loss, or the first.
uint32_t ShownColumn(const std::vector<v1::Site>& sites);
// Returns true for the name of a training loss, but not of an auxiliary one.
bool IsLossName(const v1::Site& site);

}  // namespace plumbline::rules
