// Which processes of a run are connected, and whether more may still come: ranks of a run start, and
// after a restart of the server come back, one by one. For so long (`grace`) those that the run's
// own world size or a finding names are waited for; whoever is away by then is left out.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "server/ingest/stream_table.h"

namespace plumbline::server {

// Not thread-safe. Time is passed in, so that tests need not wait.
class Attendance {
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
  Attendance(std::chrono::nanoseconds grace, Time start) : grace_(grace), back_by_(start + grace) {}

  // `stream.connection` rises with each connection of a stream, and the news of them may come in any
  // order. False: a later one is known.
  bool Joined(uint64_t stream_id, Stream stream, Time now);
  bool Left(uint64_t stream_id, uint64_t connection);

  // nullptr: it is not connected.
  const Stream* Of(uint64_t stream_id) const;
  std::vector<uint64_t> StreamsOf(const std::string& run) const;
  // Of its newest attempt.
  std::vector<Process> ProcessesOf(const std::string& run) const;
  bool MoreMayCome(const v1::FindingSite& site, Time now) const;

 private:
  struct Role {
    uint32_t world = 0;
    std::map<uint32_t, int> ranks;  // and how many streams speak for each
  };
  struct Attempt {
    Time since{};
    std::map<int, Role> roles;
  };

  void Count(const v1::Source& source, Time now);
  void Uncount(const v1::Source& source);

  const std::chrono::nanoseconds grace_;
  const Time back_by_;
  std::map<uint64_t, Stream> streams_;
  std::map<std::string, std::map<uint32_t, Attempt>> runs_;  // that are connected
};

}  // namespace plumbline::server
