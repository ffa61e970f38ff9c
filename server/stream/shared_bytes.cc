#include "server/stream/shared_bytes.h"

#include "absl/strings/str_cat.h"

namespace plumbline::server {

absl::Status SharedBytes::Take(const std::string& owner, uint64_t bytes) {
  const MutexLock lock(mutex_);
  if (most_ > 0 && used_ + bytes > most_) {
    return absl::ResourceExhaustedError(absl::StrCat(what_, " of all runs take ", used_ >> 10,
                                                     " KiB; the limit is ", most_ >> 10, " (", key_,
                                                     ")"));
  }
  uint64_t& own = by_owner_[owner];
  if (most_ > 0 && own + bytes > shares_.Part(owner, most_)) {
    return absl::ResourceExhaustedError(
        shares_.Full(owner, most_, absl::StrCat("bytes for ", what_).c_str(), key_));
  }
  own += bytes;
  used_ += bytes;
  return absl::OkStatus();
}

void SharedBytes::Note(const std::string& owner, uint64_t bytes) {
  const MutexLock lock(mutex_);
  by_owner_[owner] += bytes;
  used_ += bytes;
}

void SharedBytes::Give(const std::string& owner, uint64_t bytes) {
  const MutexLock lock(mutex_);
  by_owner_[owner] -= bytes;
  used_ -= bytes;
}

uint64_t SharedBytes::left() const {
  const MutexLock lock(mutex_);
  return used_ < most_ ? most_ - used_ : 0;
}

uint64_t SharedBytes::used() const {
  const MutexLock lock(mutex_);
  return used_;
}

}  // namespace plumbline::server
