// One watcher of incidents: sends existing ones first, then KIND_CAUGHT_UP, then each change.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "plumbline/v1/query.pb.h"
#include "server/access/gate.h"
#include "server/incidents/incident_table.h"

namespace plumbline::server {

// The runs that people deleted. Thread-safe.
struct DeletedRuns {
  std::function<std::set<std::string>()> list;
  std::function<uint64_t()> edits;  // grows with each edit of a run
};

// Thread-safe. Lives until OnDone, which notifies its owner.
class Watch : public grpc::ServerWriteReactor<v1::IncidentEvent>,
              public std::enable_shared_from_this<Watch> {
 public:
  Watch(const v1::WatchIncidentsRequest& request, const IncidentTable* incident_table,
        std::shared_ptr<Lease> lease, DeletedRuns deleted, std::function<void(Watch*)> on_done);

  // Begins to send existing incidents; keeps itself alive from here on.
  void Begin();
  // Sends a change. If a write is in progress, the end of that write checks again.
  void Wake();
  void End(const grpc::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override;

 private:
  void Pump() PLUMB_REQUIRES(mutex_);
  bool FillNext() PLUMB_REQUIRES(mutex_);
  bool FillChange(const IncidentTable::Change& change) PLUMB_REQUIRES(mutex_);
  bool FillLeft() PLUMB_REQUIRES(mutex_);
  void ReadEdits() PLUMB_REQUIRES(mutex_);

  const IncidentTable* const incident_table_;
  const std::shared_ptr<Lease> lease_;
  const DeletedRuns deleted_;
  const std::function<void(Watch*)> on_done_;
  std::shared_ptr<Watch> self_;
  IncidentFilter filter_;  // set by the constructor

  Mutex mutex_;
  bool skip_existing_ PLUMB_GUARDED_BY(mutex_);
  bool goes_on_ PLUMB_GUARDED_BY(mutex_) =
      false;  // set if an earlier watch broke: incidents that it has seen are not sent again
  std::string identity_ PLUMB_GUARDED_BY(mutex_);   // of the incident table
  uint64_t snapshot_ PLUMB_GUARDED_BY(mutex_) = 0;  // position when the watch began
  uint64_t cursor_ PLUMB_GUARDED_BY(mutex_) = 0;
  uint64_t began_after_ PLUMB_GUARDED_BY(mutex_) = 0;
  bool caught_up_ PLUMB_GUARDED_BY(mutex_) = false;
  struct Sent {
    uint64_t revision = 0;
    bool resolved = false;
    bool left = false;  // its run was deleted
    std::string run, fingerprint;
  };
  std::unordered_map<uint64_t, Sent> sent_
      PLUMB_GUARDED_BY(mutex_);  // by incident id: the last state sent
  v1::IncidentEvent event_ PLUMB_GUARDED_BY(mutex_);
  uint64_t edits_seen_ PLUMB_GUARDED_BY(mutex_) = UINT64_MAX;
  bool edited_ PLUMB_GUARDED_BY(mutex_) = false;  // since FillLeft returned false
  // The deleted runs. Also used by filter_, within calls that hold mutex_.
  const std::shared_ptr<std::set<std::string>> gone_ = std::make_shared<std::set<std::string>>();
  bool writing_ PLUMB_GUARDED_BY(mutex_) = false;
  bool ending_ PLUMB_GUARDED_BY(mutex_) = false;
  bool finished_ PLUMB_GUARDED_BY(mutex_) = false;
  grpc::Status status_ PLUMB_GUARDED_BY(mutex_);
};

}  // namespace plumbline::server
