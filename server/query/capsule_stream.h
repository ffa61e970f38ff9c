// One GetCapsule call: sends the stored parts of a capsule to one caller, a piece at a time.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <string>

#include "plumbline/v1/query.pb.h"
#include "server/access/gate.h"
#include "server/capsules/capsule_keeper.h"
#include "server/query/work_pool.h"

namespace plumbline::server {

// The pool's threads read. Keeps itself alive until the call is over.
class CapsuleStream : public grpc::ServerWriteReactor<v1::GetCapsuleResponse>,
                      public std::enable_shared_from_this<CapsuleStream> {
 public:
  // If `keeper` is nullptr, there are no capsules. `stopped`: the server is shutting down. All
  // arguments must outlive it.
  CapsuleStream(std::string fingerprint, CapsuleKeeper* keeper, std::shared_ptr<Lease> lease,
                WorkPool* pool, const std::atomic<bool>* stopped);
  void Begin();

  void OnWriteDone(bool ok) override;
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { self_.reset(); }

 private:
  grpc::Status Open();
  grpc::Status Advance();  // fills in the next message; if ended_ is set, there is none
  bool OpenNext();
  void Submit(grpc::Status (CapsuleStream::*work)());

  const std::string fingerprint_;
  CapsuleKeeper* const keeper_;
  const std::shared_ptr<Lease> lease_;
  WorkPool* const pool_;
  const std::atomic<bool>* const stopped_;
  std::shared_ptr<CapsuleStream> self_;
  v1::CapsuleInfo info_;
  v1::GetCapsuleResponse response_;
  int index_ = -1;  // of the rank whose bytes are being sent
  uint64_t left_ = 0;
  std::ifstream file_;
  bool ended_ = false;
  std::atomic<bool> cancelled_{false};
};

}  // namespace plumbline::server
