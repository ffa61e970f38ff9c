// v1::Query: a server's data, and incidents as they happen.
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

// The service's sources. All pointers must outlive it.
struct QuerySources {
  std::string version;
  const Judge* judge = nullptr;  // nullptr: no judge
  IncidentTable* incident_table = nullptr;
  const Counters* counters = nullptr;
  Store* store = nullptr;
  RunReader* runs = nullptr;          // nullptr: there is no journal
  CapsuleKeeper* capsules = nullptr;  // nullptr: no capsules
  Gate* gate = nullptr;               // nullptr: no access control
  // Applies a person's decision about an incident, at its place among the batches, and then calls
  // `done` on any thread. Empty: it is applied to the incident table at once.
  std::function<void(v1::IncidentUpdate update, std::function<void(absl::Status)> done)> update;
  // Applies a person's decision about a run in quarantine, as `update`. Empty: there is no
  // quarantine.
  std::function<void(const v1::UpdateRunRequest& request, const std::string& who,
                     std::function<void(absl::Status)> done)>
      update_run;
  // Returns the alert deliveries of an incident. Empty: there are no alerts.
  std::function<std::vector<v1::AlertDelivery>(const std::string& fingerprint)> alerts;
};

// Returns the name that a caller chose, with the access entry that was verified.
std::string WhoOf(const Lease& lease, const std::string& who);
// Returns InvalidArgument (see CheckEdit), NotFound, or FailedPrecondition if a run in progress
// would be deleted.
absl::Status CheckEditOf(const Judge& judge, const v1::RunEdit& edit);

class QueryService {
 public:
  virtual ~QueryService() = default;
  static std::unique_ptr<QueryService> Create(QuerySources sources);

  virtual grpc::Service* service() = 0;
  // Ends every stream with UNAVAILABLE.
  virtual void Shutdown() = 0;
};

}  // namespace plumbline::server
