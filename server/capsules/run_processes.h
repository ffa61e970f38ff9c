// Tracks which processes of a run are connected, and whether more may still connect: ranks of a run
// start one by one, and reconnect one by one after a restart of the server. Ranks that a finding
// names are awaited as long as a disconnected rank (`grace`, at most a minute). Ranks that are only
// known from the run's world size are awaited for less, since some may have no probe. Streams that
// take no directives (the spool of an earlier process) are tracked but do not count as a process.
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

// Returns true if both are the same process, which sends equal fields at each connection.
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

  // `start`: of the server; processes that were connected before may reconnect from then on.
  RunProcesses(std::chrono::nanoseconds grace, Time start);

  // Records a connection. `stream.connection` rises with each connection of a stream, but calls may
  // come in any order. Returns false if a later connection is known.
  bool Joined(uint64_t stream_id, Stream stream, Time now);
  bool Left(uint64_t stream_id, uint64_t connection);

  // Returns nullptr if the stream is not connected.
  const Stream* Of(uint64_t stream_id) const;
  std::vector<uint64_t> StreamsOf(const std::string& run) const;
  // Returns the processes of the run's newest attempt.
  std::vector<Process> ProcessesOf(const std::string& run) const;
  // `worlds`: world sizes by role that are known otherwise.
  bool MoreMayCome(const v1::FindingSite& site, const std::map<int, uint32_t>& worlds,
                   Time now) const;

 private:
  struct Streams {
    int all = 0, following = 0;
  };
  struct Role {
    uint32_t world = 0;
    std::map<uint32_t, Streams> ranks;  // the streams of each
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
  std::map<std::string, std::map<uint32_t, Attempt>> runs_;  // only connected ones
};

}  // namespace plumbline::server
