// v1::Query: what a server holds, and incidents as they happen.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plumbline/v1/journal_event.pb.h"
#include "server/access/gate.h"
#include "server/capsules/capsule_keeper.h"
#include "server/incidents/incident_table.h"
#include "server/journal/run_reader.h"
#include "server/judge/judge.h"
#include "server/process/counters.h"
#include "server/store/store.h"

namespace grpc {
class Service;
}

namespace plumbline::server {

// What the service answers from. All pointers outlive it.
struct QuerySources {
  std::string version;
  const Judge* judge = nullptr;  // nullptr: nothing is judged here
  IncidentTable* incident_table = nullptr;
  const Counters* counters = nullptr;
  Store* store = nullptr;
  RunReader* runs = nullptr;          // nullptr: there is no journal
  CapsuleKeeper* capsules = nullptr;  // nullptr: none are taken
  Gate* gate = nullptr;               // nullptr: whoever calls may do everything
  // Carries out what somebody decided about an incident, at its place among the batches, and then
  // calls `done` on any thread. Empty: the incident table is told at once.
  std::function<void(v1::IncidentUpdate update, std::function<void(absl::Status)> done)> update;
  // Carries out what somebody decided about a run in quarantine; as `update`. Empty: none is.
  std::function<void(const v1::UpdateRunRequest& request, const std::string& who,
                     std::function<void(absl::Status)> done)>
      update_run;
  // Who was told of an incident. Empty: nobody ever is.
  std::function<std::vector<v1::AlertDelivery>(const std::string& fingerprint)> alerts;
};

class QueryService {
 public:
  virtual ~QueryService() = default;
  static std::unique_ptr<QueryService> Create(QuerySources sources);

  virtual grpc::Service* service() = 0;
  // Ends every stream with UNAVAILABLE.
  virtual void Shutdown() = 0;
};

}  // namespace plumbline::server
