// Ends trainings: sends the processes of a run a directive if an incident of the level that their
// hellos named is open.
//
// Only connected streams are remembered. Whether a directive is due follows from the incident
// table, which a restart rebuilds from the journal. So a process that was disconnected when the
// finding was made gets its directive when it reconnects. The agent decides whether the finding
// belongs to its own steps. The first directive for an incident is journalled and added to its
// history.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "plumbline/v1/finding.pb.h"
#include "plumbline/v1/ingest.pb.h"
#include "plumbline/v1/journal_event.pb.h"
#include "server/incidents/incident_table.h"
#include "server/process/counters.h"
#include "server/stream/stream_table.h"

namespace plumbline::server {

// Thread-safe.
class StopSender {
 public:
  static constexpr uint32_t kMostOfOne = 8;      // directives to one connection for one incident
  static constexpr size_t kMostIncidents = 256;  // of one connection
  static constexpr size_t kMostNoted = 4096;  // incidents whose directive is known to be journalled

  // `keep`: journals an update of an incident; called on any thread, must be quick. Both pointers
  // must outlive it.
  StopSender(const IncidentTable* incidents, Counters* counters,
             std::function<void(v1::IncidentUpdate)> keep)
      : incidents_(incidents), counters_(counters), keep_(std::move(keep)) {}

  // Record connections and disconnections of streams. `connection` rises with each connection of a
  // stream.
  void Joined(uint64_t stream_id, uint64_t connection, std::weak_ptr<Connection> line,
              const v1::Hello& hello);
  void Left(uint64_t stream_id, uint64_t connection);

  // Handles a verdict with a finding. `merged` is the finding merged with earlier verdicts, `now`
  // is the site of this verdict.
  void OnFound(const v1::Finding& merged, const v1::FindingSite& now);

 private:
  struct Stream {
    uint64_t connection = 0;
    std::weak_ptr<Connection> line;
    std::set<std::string> runs;
    v1::Level level = v1::LEVEL_UNSPECIFIED;
    // By incident: the newest step of a directive, and the number of directives sent.
    std::map<std::string, std::pair<int64_t, uint32_t>> sent;
  };
  struct Order {
    uint64_t stream_id = 0;
    std::shared_ptr<Connection> line;
    v1::StopTraining stop;
  };

  static bool Ends(const IncidentTable::Change& change, v1::Level level);
  static v1::StopTraining StopOf(const IncidentTable::Change& change, int64_t step_last);
  static bool Note(Stream* stream, const v1::StopTraining& stop);
  void Send(const std::vector<Order>& orders);
  void Keep(const v1::StopTraining& stop, size_t processes) PLUMB_EXCLUDES(mutex_);

  const IncidentTable* const incidents_;
  Counters* const counters_;
  const std::function<void(v1::IncidentUpdate)> keep_;
  std::atomic<size_t> requesting_{0};  // streams that may get directives
  Mutex mutex_;
  std::map<uint64_t, Stream> streams_ PLUMB_GUARDED_BY(mutex_);
  std::set<std::string> noted_ PLUMB_GUARDED_BY(mutex_);  // fingerprint and opening
};

}  // namespace plumbline::server
