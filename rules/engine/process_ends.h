// What is known of how the processes of one attempt of one role end: their last words, who left
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

namespace plumbline::rules {

// Not thread-safe. What is kept of a rank is bounded; whole words are kept of those that a finding
// could name (kWhole).
class ProcessEnds {
 public:
  static constexpr size_t kWhole = 64;
  static constexpr size_t kMostNames = 64;  // of series; values of others are not kept

  // It says something: one that was gone is back.
  void Hear(const v1::Source& source);
  // A scalar that it reported. Older steps change nothing.
  void Value(uint32_t rank, int64_t step, const v1::Site& site, double value);
  // Its goodbye.
  void Said(const v1::Source& source, const v1::Progress& progress);
  // kGone or kUnreachable; kOpen: nothing is known but that nothing comes of it.
  void Gone(const v1::Source& source, EndKind way);

  // Appends what is known of processes, by rank; steps are left to the caller.
  void List(v1::Role role, std::vector<ProcessEnd>* out) const;

  // whole_ is counted again.
  void Persist(Archive& a);

 private:
  struct Rank {
    std::string host;
    int64_t pid = 0;  // 0: it does not say that it is a process; dumps and foreign files are none
    EndKind way = EndKind::kOpen;
    v1::Ending said;
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
  size_t whole_ = 0;  // ranks whose words are
};

// The column whose values are kept: the loss, or the first.
uint32_t ShownColumn(const std::vector<v1::Site>& sites);
// Is it the name of a loss that is trained on? Auxiliary ones are none.
bool IsLossName(const v1::Site& site);

}  // namespace plumbline::rules
