// All watchers of incidents. Wakes them on a separate thread, so that the judging thread does not
// serialise messages for a hundred of them.
#pragma once

#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "plumbline/v1/query.pb.h"
#include "server/access/gate.h"
#include "server/incidents/incident_table.h"
#include "server/query/watch.h"

namespace plumbline::server {

// Thread-safe.
class WatchHub {
 public:
  WatchHub(IncidentTable* incident_table, DeletedRuns deleted);
  ~WatchHub();

  // Starts a watch. `lease`: the watcher's permissions and their duration.
  Watch* Start(const v1::WatchIncidentsRequest& request, std::shared_ptr<Lease> lease);
  void EndAll(const grpc::Status& status);

 private:
  std::vector<std::shared_ptr<Watch>> All();
  void Loop();

  IncidentTable* const incident_table_;
  const DeletedRuns deleted_;
  int subscription_ = 0;
  Mutex mutex_;
  CondVar wake_;
  bool changed_ PLUMB_GUARDED_BY(mutex_) = false;
  bool stopped_ PLUMB_GUARDED_BY(mutex_) = false;
  std::map<Watch*, std::weak_ptr<Watch>> watches_ PLUMB_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace plumbline::server
