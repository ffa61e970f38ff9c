// One ReadRun call: sends a run's items from the journal to one caller, one at a time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <string>

#include "plumbline/v1/query.pb.h"
#include "server/access/gate.h"
#include "server/journal/run_reader.h"
#include "server/query/work_pool.h"

namespace plumbline::server {

// The pool's threads read. Keeps itself alive until the call is over.
class RunStream : public grpc::ServerWriteReactor<v1::ReadRunResponse>,
                  public std::enable_shared_from_this<RunStream> {
 public:
  // If `reader` is nullptr, there is no journal. `stopped`: the server is shutting down. All
  // arguments must outlive it. If a batch has a run that `lease` does not cover, the stream ends.
  RunStream(std::string run, std::string version, RunReader* reader, WorkPool* pool,
            const std::atomic<bool>* stopped, std::shared_ptr<Lease> lease);
  void Begin();

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { self_.reset(); }

 private:
  grpc::Status CheckSources() const;
  grpc::Status Open();
  grpc::Status Advance();  // fills in the next message, or returns why there is none
  void Submit(grpc::Status (RunStream::*work)());

  const std::string run_;
  const std::string version_;
  RunReader* const reader_;
  WorkPool* const pool_;
  const std::atomic<bool>* const stopped_;
  const std::shared_ptr<Lease> lease_;
  std::atomic<bool> revoked_{false};
  std::shared_ptr<RunStream> self_;
  std::unique_ptr<RunCursor> cursor_;
  v1::ReadRunResponse response_;
  uint64_t items_ = 0, not_judged_live_ = 0;
  bool ended_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace plumbline::server
