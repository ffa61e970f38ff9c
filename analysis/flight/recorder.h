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

// "nccl:all_reduce", "_allgather_base", "ALLREDUCE" -> "all_reduce", "all_gather", ...: one name a
// kind of operation; what is not known in small letters.
std::string KindOf(std::string_view name);

// All members must have come before any of them can be done: all-reduce, all-gather,
// reduce-scatter, all-to-all, barrier.
bool EndsForAll(std::string_view kind);
// Members must hand in equal shapes.
bool SameShapes(std::string_view kind);

struct Op {
  std::string group;
  uint64_t sequence = 0;
  std::string kind;
  bool pending = false;
  bool started = false;  // on the device; of one that is pending, else it waits in its stream
  bool point_to_point = false;
  int64_t peer = -1;  // rank of the job; -1: not known, or none
  std::string dtype, input_shape, output_shape, where;

  bool Same(const Op& other) const { return group == other.group && sequence == other.sequence; }
};

// What one group looks like from one rank.
struct GroupView {
  int64_t last_enqueued = -1;  // the latest sequence number that it launched; -1: not known
  int64_t last_completed = -1;
  uint64_t oldest = UINT64_MAX;  // recorded: what is older was overwritten
  bool status_said = false;      // by pg_status, not only by what is recorded
};

struct RankRecord {
  uint32_t rank = 0;
  bool dumped = true;
  std::vector<Op> ops;                                     // in the order of launching
  std::vector<std::pair<uint64_t, uint32_t>> by_sequence;  // of collectives: number, index; sorted
  std::map<std::string, GroupView> groups;

  // The oldest pending operation; nullptr: none.
  const Op* head() const;
  // The recorded operation; nullptr: none.
  const Op* Find(const std::string& group, uint64_t sequence) const;
  bool Launched(const std::string& group, uint64_t sequence) const;
  bool Completed(const std::string& group, uint64_t sequence) const;
};

struct Job {
  std::map<uint32_t, RankRecord> ranks;                  // that left a dump
  std::map<std::string, std::vector<uint32_t>> members;  // of groups, in their order
};

// `recorders`: by rank. Ranks of groups are those that some dump names; where none does, the ranks
// whose dumps have operations of the group.
Job JoinRecorders(const std::map<uint32_t, const v1::FlightRecorder*>& recorders);

}  // namespace plumbline::flight
