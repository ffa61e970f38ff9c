// Counts the bytes of one kind that senders make the server keep: in total, and per access entry.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/stream/shares.h"

namespace plumbline::server {

// Thread-safe.
class SharedBytes {
 public:
  // `what` and `key` are for messages: "names", "limits.name_bytes".
  SharedBytes(uint64_t most, Shares shares, const char* what, const char* key)
      : most_(most), shares_(std::move(shares)), what_(what), key_(key) {}

  // Takes bytes. Returns ResourceExhausted, and takes nothing, if the total or the owner's share is
  // used up.
  absl::Status Take(const std::string& owner, uint64_t bytes);
  // Counts bytes that exist already, even beyond the limits.
  void Note(const std::string& owner, uint64_t bytes);
  void Give(const std::string& owner, uint64_t bytes);

  uint64_t used() const;
  uint64_t most() const { return most_; }
  uint64_t left() const;  // 0 without a limit

  // Bytes of one owner, which the destructor returns.
  class Held {
   public:
    Held() = default;
    Held(std::shared_ptr<SharedBytes> incident_table, std::string owner)
        : incident_table_(std::move(incident_table)), owner_(std::move(owner)) {}
    ~Held() { Give(bytes_); }
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    Held(Held&& other) noexcept
        : incident_table_(std::move(other.incident_table_)),
          owner_(std::move(other.owner_)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    Held& operator=(Held&& other) noexcept {
      std::swap(incident_table_, other.incident_table_);
      std::swap(owner_, other.owner_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

    absl::Status Take(uint64_t bytes) {
      absl::Status taken =
          incident_table_ == nullptr ? absl::OkStatus() : incident_table_->Take(owner_, bytes);
      if (taken.ok()) bytes_ += bytes;
      return taken;
    }
    void Note(uint64_t bytes) {
      if (incident_table_ != nullptr) incident_table_->Note(owner_, bytes);
      bytes_ += bytes;
    }
    void Give(uint64_t bytes) {
      if (incident_table_ != nullptr) incident_table_->Give(owner_, bytes);
      bytes_ -= bytes;
    }
    uint64_t bytes() const { return bytes_; }

   private:
    std::shared_ptr<SharedBytes> incident_table_;  // null: not counted
    std::string owner_;
    uint64_t bytes_ = 0;
  };

 private:
  const uint64_t most_;  // 0: no limit
  const Shares shares_;
  const char* const what_;
  const char* const key_;
  mutable Mutex mutex_;
  uint64_t used_ PLUMB_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> by_owner_
      PLUMB_GUARDED_BY(mutex_);  // at most one per access entry or combination of entries
};

}  // namespace plumbline::server
