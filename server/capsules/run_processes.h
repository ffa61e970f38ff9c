// Which processes of a run are connected, and whether more may still come: ranks of a run start,
// and after a restart of the server come back, one by one. Those that a finding names are waited
// for as long as a rank that broke off (`grace`, at most a minute), those that the run's world size
// promises a shorter while, since some may carry no probe. Streams that take no directives (what a
// process left behind) are there but stand for nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/stream/stream_table.h"

namespace plumbline::server {

// One process says who it is in the same words, however often it connects.
bool SameProcess(const v1::Source& a, const v1::Source& b);

// Not thread-safe. Time is passed in, so that tests need not wait.
class RunProcesses {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Stream {
    uint64_t connection = 0;
    std::weak_ptr<Connection> line;
    std::vector<v1::Source> sources;
    std::string tool_version;
    bool follows = false;  // takes directives
  };
  struct Process {
    uint64_t stream = 0;
    v1::Source source;
  };

  // `start`: of the server; whoever was connected before may come back from then on.
  RunProcesses(std::chrono::nanoseconds grace, Time start);

  // `stream.connection` rises with each connection of a stream, and the news of them may come in
  // any order. False: a later one is known.
  bool Joined(uint64_t stream_id, Stream stream, Time now);
  bool Left(uint64_t stream_id, uint64_t connection);

  // nullptr: it is not connected.
  const Stream* Of(uint64_t stream_id) const;
  std::vector<uint64_t> StreamsOf(const std::string& run) const;
  // Of its newest attempt.
  std::vector<Process> ProcessesOf(const std::string& run) const;
  // `worlds`: what else is known of the run, world size by role.
  bool MoreMayCome(const v1::FindingSite& site, const std::map<int, uint32_t>& worlds,
                   Time now) const;

 private:
  struct Streams {
    int all = 0, following = 0;
  };
  struct Role {
    uint32_t world = 0;
    std::map<uint32_t, Streams> ranks;  // that speak for each
    bool Follows(uint32_t rank) const;
    size_t following() const;
  };
  struct Attempt {
    Time since{};
    std::map<int, Role> roles;
  };

  void Count(const v1::Source& source, bool follows, Time now);
  void Uncount(const v1::Source& source, bool follows);

  const Time start_;
  const std::chrono::nanoseconds grace_;
  std::map<uint64_t, Stream> streams_;
  std::map<std::string, std::map<uint32_t, Attempt>> runs_;  // that are connected
};

}  // namespace plumbline::server
