#include "server/query/capsule_stream.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/grpc_status.h"

namespace plumbline::server {
namespace {

constexpr uint64_t kCapsulePiece = uint64_t{1} << 20;

}  // namespace

CapsuleStream::CapsuleStream(std::string fingerprint, CapsuleKeeper* keeper,
                             std::shared_ptr<Lease> lease, WorkPool* pool,
                             const std::atomic<bool>* stopped)
    : fingerprint_(std::move(fingerprint)),
      keeper_(keeper),
      lease_(std::move(lease)),
      pool_(pool),
      stopped_(stopped) {}

void CapsuleStream::Begin() {
  self_ = shared_from_this();
  Submit(&CapsuleStream::Open);
}

void CapsuleStream::Submit(grpc::Status (CapsuleStream::*work)()) {
  pool_->Submit([this, work] {
    grpc::Status status = grpc::Status::CANCELLED;
    if (*stopped_) {
      status = {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
    } else if (!cancelled_) {
      status = (this->*work)();
    }
    status.ok() && !ended_ ? StartWrite(&response_) : Finish(status);
  });
}

void CapsuleStream::OnWriteDone(bool ok) {
  if (!ok) return Finish(grpc::Status::CANCELLED);
  Submit(&CapsuleStream::Advance);
}

grpc::Status CapsuleStream::Open() {
  std::vector<v1::CapsuleInfo> held;
  if (keeper_ != nullptr && !fingerprint_.empty()) held = keeper_->List("", fingerprint_);
  // Capsules of runs that the caller may not read are treated as missing, because another answer
  // would reveal that they exist.
  std::erase_if(held, [this](const v1::CapsuleInfo& info) {
    return !lease_->Over(Scope::kRead, info.finding().site().run());
  });
  if (held.empty())
    return {grpc::StatusCode::NOT_FOUND, "the server has no capsule of that finding"};
  if (held.size() > 1) {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            absl::StrCat(held.size(), " capsules begin with ", fingerprint_)};
  }
  info_ = std::move(held.front());
  *response_.mutable_info() = info_;
  return grpc::Status::OK;
}

// Opens the next rank whose bytes are stored; returns false if there is none.
bool CapsuleStream::OpenNext() {
  while (++index_ < info_.ranks_size()) {
    if (info_.ranks(index_).state() != v1::CapsuleRank::STATE_HELD) continue;
    file_ = std::ifstream(keeper_->PathOf(info_, index_), std::ios::binary);
    left_ = info_.ranks(index_).total();
    return true;
  }
  return false;
}

grpc::Status CapsuleStream::Advance() {
  if (left_ == 0 && !OpenNext()) {
    ended_ = true;
    return grpc::Status::OK;
  }
  std::string data(std::min(left_, kCapsulePiece), '\0');
  if (!file_.read(data.data(), static_cast<std::streamsize>(data.size()))) {
    return {grpc::StatusCode::ABORTED, "the capsule was removed or replaced in the meantime"};
  }
  left_ -= data.size();
  v1::CapsuleBytes& bytes = *response_.mutable_bytes();
  bytes.set_index(static_cast<uint32_t>(index_));
  bytes.set_data(std::move(data));
  bytes.set_last(left_ == 0);
  return grpc::Status::OK;
}

}  // namespace plumbline::server
