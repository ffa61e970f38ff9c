// Finds ranks whose rows end while those of other ranks continue: the rank hangs, or it died
// without a message.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// Counts the rows of each rank. Not thread-safe.
class RankEnds {
 public:
  // Takes batches in the order in which the engine does.
  void Take(const v1::Batch& batch);
  // Returns true if a rank of a run may be reported as silent. If empty, each rank may.
  using May = std::function<bool(const std::string& run, uint32_t rank)>;
  // Returns (run, verdict) for each run in which a rank fell silent.
  std::vector<std::pair<std::string, v1::Verdict>> Verdicts(const May& may = {}) const;

 private:
  struct Course {
    uint32_t attempt = 0;
    uint64_t rows = 0;  // rows of the attempt; several groups of series of one step count once
    int64_t first = 0, newest = 0;
  };
  using Ranks = std::map<uint32_t, Course>;
  static bool IsSilent(const Course& one, const Course& longest);

  std::map<std::pair<std::string, int>, Ranks> runs_;  // by run and role of the processes
};

}  // namespace plumbline::audit
