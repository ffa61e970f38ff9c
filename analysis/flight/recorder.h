// A flight recorder's operations, joined over ranks by group and sequence number.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plumbline/v1/evidence.pb.h"

namespace plumbline::flight {

// Returns one name per kind of operation: "nccl:all_reduce", "_allgather_base", "ALLREDUCE" give
// "all_reduce", "all_gather", ... Unknown names are returned in lower case.
std::string KindOf(std::string_view name);

// Returns true if all members must have started before any of them can finish: all-reduce,
// all-gather, reduce-scatter, all-to-all, barrier.
bool EndsForAll(std::string_view kind);
// Returns true if members must pass in equal shapes.
bool SameShapes(std::string_view kind);

struct Op {
  std::string group;
  uint64_t sequence = 0;
  std::string kind;
  bool pending = false;
  bool started = false;  // for a pending operation: true if it runs on the device, false if it
                         // waits in its stream
  bool point_to_point = false;
  int64_t peer = -1;  // rank in the job; -1 if not known or none
  std::string dtype, input_shape, output_shape, where;

  bool Same(const Op& other) const { return group == other.group && sequence == other.sequence; }
};

// One rank's view of a group.
struct GroupView {
  int64_t last_enqueued = -1;  // the latest sequence number that it launched; -1 if not known
  int64_t last_completed = -1;
  uint64_t oldest = UINT64_MAX;  // oldest recorded sequence number; older entries were overwritten
  bool status_stated = false;    // from pg_status, not only from the recorded operations
};

struct RankRecord {
  uint32_t rank = 0;
  bool dumped = true;
  std::vector<Op> ops;                                     // in launch order
  std::vector<std::pair<uint64_t, uint32_t>> by_sequence;  // for collectives: number, index; sorted
  std::map<std::string, GroupView> groups;

  // Returns the oldest pending operation. If there is none, returns nullptr.
  const Op* head() const;
  // Returns the recorded operation. If there is none, returns nullptr.
  const Op* Find(const std::string& group, uint64_t sequence) const;
  bool Launched(const std::string& group, uint64_t sequence) const;
  bool Completed(const std::string& group, uint64_t sequence) const;
};

struct Job {
  std::map<uint32_t, RankRecord> ranks;                  // ranks with a dump
  std::map<std::string, std::vector<uint32_t>> members;  // members of each group, in their order
};

// `recorders` is keyed by rank. The ranks of a group are those that some dump names. If none does,
// the ranks whose dumps have operations of the group.
Job JoinRecorders(const std::map<uint32_t, const v1::FlightRecorder*>& recorders);

}  // namespace plumbline::flight
