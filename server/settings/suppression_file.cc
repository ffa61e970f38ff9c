#include "server/settings/suppression_file.h"

#include <sys/stat.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "rules/suppressions.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kSuppressionLook{500};

}  // namespace

SuppressionFile::Stamp SuppressionFile::StampNow() const {
  Stamp stamp;
  stamp.day = rules::DayOf(static_cast<int64_t>(UnixNs()));
  struct stat file {};
  if (stat(path_.c_str(), &file) != 0) return stamp;
  stamp.mtime_ns = int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec;
  stamp.size = file.st_size;
  stamp.inode = file.st_ino;
  return stamp;
}

absl::Status SuppressionFile::ReadAndReport() {
  seen_ = StampNow();
  std::vector<rules::Suppression> list;
  if (!path_.empty()) {
    auto read = rules::LoadSuppressions(path_);
    if (!read.ok()) return read.status();
    list = *std::move(read);
  }
  emit_(rules::ToMessage(list, seen_.day));
  return absl::OkStatus();
}

absl::Status SuppressionFile::Start() {
  if (auto s = ReadAndReport(); !s.ok() || path_.empty()) return s;
  thread_ = std::thread([this] { Loop(); });
  return absl::OkStatus();
}

void SuppressionFile::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void SuppressionFile::Reload() {
  {
    const MutexLock lock(mutex_);
    reload_ = true;
  }
  wake_.NotifyAll();
}

void SuppressionFile::Loop() {
  MutexLock lock(mutex_);
  for (;;) {
    wake_.WaitFor(lock, kSuppressionLook,
                  [this]() PLUMB_REQUIRES(mutex_) { return stopped_ || reload_; });
    if (stopped_) return;
    const bool requested = std::exchange(reload_, false);
    lock.Unlock();
    if (requested || StampNow() != seen_) {
      if (auto s = ReadAndReport(); !s.ok()) {
        LogError("suppressions: {}; the earlier suppressions stay in force",
                 std::string(s.message()));
      }
    }
    lock.Lock();
  }
}

}  // namespace plumbline::server
