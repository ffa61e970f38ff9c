// Joins the calls of one communicator over its ranks, while the logs are read.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "audit/readers/nccl_log/line.h"

namespace plumbline::audit {

// The values of a call that are compared between ranks.
struct NcclStatement {
  NcclCollective collective = NcclCollective::kOther;
  uint64_t count = 0;
  uint32_t datatype = 0, op = 0, root = 0;
  friend auto operator<=>(const NcclStatement&, const NcclStatement&) = default;
};

// A call with the statement of each rank.
struct NcclJoined {
  uint64_t number = 0;   // opCount
  uint32_t ordinal = 0;  // index among the calls with this number; a group call makes several
  std::map<uint32_t, NcclStatement> ranks;

  bool agrees() const;
};

// Keeps the calls that the rules need: one of each kind, the first ones, and up to a bound all on
// which ranks disagree. Compares and counts the others. Memory is bounded. Not thread-safe.
class NcclJoinedCalls {
 public:
  static constexpr size_t kMostKept = 64;

  // `ranks`: number of ranks of the communicator. Closes a call when all ranks have logged it. If
  // more than `most_open` calls are open, closes the oldest, even if ranks are missing.
  void Add(uint32_t rank, const NcclCall& call, size_t ranks, size_t most_open);
  // Returns the kept calls in order, including those still open.
  std::vector<NcclJoined> Take();

  // Number of calls that more than one rank logged.
  uint64_t compared() const { return compared_; }
  uint64_t differing() const { return differing_; }  // number of them on which ranks disagree
  // Number of log lines for calls that were already closed.
  uint64_t too_late() const { return too_late_; }

 private:
  using Key = std::pair<uint64_t, uint32_t>;
  static constexpr size_t kMostOpenRanks = 1 << 20;  // limit of log lines kept for open calls
  static constexpr size_t kFirstKept = 16;

  struct Place {
    uint64_t number = UINT64_MAX;
    uint32_t ordinal = 0;
  };
  void Close(std::map<Key, NcclJoined>::iterator at);

  std::map<Key, NcclJoined> open_;
  size_t open_ranks_ = 0;
  Key floor_ = {0, 0};  // calls up to this key were closed because too many were open
  bool floored_ = false;
  std::map<uint32_t, Place> places_;  // rank -> its current call
  std::set<NcclStatement> kinds_;
  std::vector<NcclJoined> kept_, different_;
  uint64_t compared_ = 0, differing_ = 0, too_late_ = 0;
};

}  // namespace plumbline::audit
