#include "server/query/run_stream.h"

#include <utility>

#include "plumbline/v1/batch.pb.h"
#include "server/process/grpc_status.h"

namespace plumbline::server {

RunStream::RunStream(std::string run, std::string version, RunReader* reader, WorkPool* pool,
                     const std::atomic<bool>* stopped, std::shared_ptr<Lease> lease)
    : run_(std::move(run)),
      version_(std::move(version)),
      reader_(reader),
      pool_(pool),
      stopped_(stopped),
      lease_(std::move(lease)) {}

void RunStream::Begin() {
  self_ = shared_from_this();
  lease_->OnRevoked([weak = weak_from_this()](const absl::Status&) {
    if (auto stream = weak.lock()) stream->revoked_ = true;
  });
  Submit(&RunStream::Open);
}

void RunStream::Submit(grpc::Status (RunStream::*work)()) {
  pool_->Submit([this, work] {
    grpc::Status status = grpc::Status::CANCELLED;
    if (*stopped_) {
      status = {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
    } else if (revoked_) {
      status = {grpc::StatusCode::UNAUTHENTICATED, "your token has expired or was revoked"};
    } else if (!cancelled_) {
      status = (this->*work)();
    }
    status.ok() ? StartWrite(&response_) : Finish(status);
  });
}

void RunStream::OnWriteDone(bool ok) {
  if (!ok) return Finish(grpc::Status::CANCELLED);
  if (ended_) return Finish(grpc::Status::OK);
  Submit(&RunStream::Advance);
}

// Checks the sources of a batch, which may carry evidence of other runs.
grpc::Status RunStream::CheckSources() const {
  if (lease_->Everywhere(Scope::kRead) || !response_.item().has_batch()) return grpc::Status::OK;
  v1::Batch batch;
  if (!batch.ParseFromString(response_.item().batch())) {
    return {grpc::StatusCode::DATA_LOSS, "an item of the journal is not a batch"};
  }
  for (const v1::Source& source : batch.sources()) {
    if (auto s = lease_->Check(Scope::kRead, source.run()); !s.ok()) return ToGrpc(s);
  }
  return grpc::Status::OK;
}

grpc::Status RunStream::Open() {
  if (auto s = lease_->Check(Scope::kRead, run_); !s.ok()) return ToGrpc(s);
  if (reader_ == nullptr) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            "this server has no journal: start plumbd with --data DIR"};
  }
  auto cursor = reader_->Read(run_);
  if (!cursor.ok()) return ToGrpc(cursor.status());
  cursor_ = std::move(*cursor);
  *response_.mutable_header() = cursor_->header();
  response_.mutable_header()->set_tool_version(version_);
  return grpc::Status::OK;
}

grpc::Status RunStream::Advance() {
  const auto next = cursor_->Next(response_.mutable_item());
  if (!next.ok()) return ToGrpc(next.status());
  if (*next) {
    ++items_;
    // Only batches count, because an event was applied when it was journalled.
    const bool waits = response_.item().entry() > cursor_->header().judged_entry();
    if (waits && response_.item().has_batch()) ++not_judged_live_;
    return CheckSources();
  }
  ended_ = true;
  response_.mutable_end()->set_items(items_);
  response_.mutable_end()->set_not_judged_live(not_judged_live_);
  return grpc::Status::OK;
}

}  // namespace plumbline::server
