// One watcher of incidents: what exists first, then KIND_CAUGHT_UP, then each change.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "plumbline/v1/query.pb.h"
#include "server/access/gate.h"
#include "server/incidents/incident_book.h"

namespace plumbline::server {

// Thread-safe. Lives until OnDone, then tells its owner.
class Watch : public grpc::ServerWriteReactor<v1::IncidentEvent>,
              public std::enable_shared_from_this<Watch> {
 public:
  Watch(const v1::WatchIncidentsRequest& request, const IncidentBook* book,
        std::shared_ptr<Lease> lease, std::function<void(Watch*)> on_done);

  // Keeps itself alive from here on and sends what exists.
  void Begin();
  // Something changed: sends it, unless a write is under way (its end looks again).
  void Wake();
  void End(const grpc::Status& status);

  void OnWriteDone(bool ok) override;
  void OnCancel() override { End(grpc::Status::CANCELLED); }
  void OnDone() override;

 private:
  void Pump();
  bool FillNext();
  bool FillChange(const IncidentBook::Change& change);

  const IncidentBook* const book_;
  const std::shared_ptr<Lease> lease_;
  const std::function<void(Watch*)> on_done_;
  std::shared_ptr<Watch> self_;

  std::mutex mutex_;
  IncidentFilter filter_;
  bool skip_existing_;
  bool goes_on_ = false;   // after a watch that broke: what it has seen is not told again
  std::string identity_;   // of the book
  uint64_t snapshot_ = 0;  // what changed last when the watch began
  uint64_t cursor_ = 0;
  uint64_t began_after_ = 0;
  bool caught_up_ = false;
  struct Sent {
    uint64_t revision = 0;
    bool resolved = false;
  };
  std::unordered_map<uint64_t, Sent> sent_;  // by incident id: as it was sent last
  v1::IncidentEvent event_;
  bool writing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace plumbline::server
