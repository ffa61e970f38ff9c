#include "server/process/health.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/process/log.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kHealthLook{250};

double Seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

}  // namespace

bool SpaceOf(const std::string& path, DiskSpace* out) {
  struct statvfs info {};
  if (path.empty() || statvfs(path.c_str(), &info) != 0) return false;
  out->free = uint64_t{info.f_bavail} * info.f_frsize;  // available to a process that is not root
  out->size = uint64_t{info.f_blocks} * info.f_frsize;
  return true;
}

Health::Health(Sources sources) : sources_(std::move(sources)), serving_(Look()) {
  if (!serving_.ok()) LogError("not serving: {}", std::string(serving_.message()));
  if (sources_.changed) sources_.changed(serving_);
  thread_ = std::thread([this] { Loop(); });
}

Health::~Health() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

absl::Status Health::Serving() const {
  const MutexLock lock(mutex_);
  return serving_;
}

absl::Status Health::Look() const {
  if (auto s = sources_.journal(); !s.ok()) return s;
  const auto commit = sources_.writing();
  if (commit > kLongestCommit) {
    return absl::UnavailableError(absl::StrCat("a commit of the journal takes ",
                                               static_cast<int64_t>(Seconds(commit)),
                                               " s and has not ended"));
  }
  DiskSpace space;
  if (SpaceOf(sources_.directory, &space) && space.free < kLeastFree) {
    return absl::UnavailableError(
        absl::StrCat("the disk of ", sources_.directory, " has ", space.free >> 20,
                     " MiB free, and the journal needs ", kLeastFree >> 20));
  }
  return absl::OkStatus();
}

// Returns true if a thread is blocked for too long. A judge that waits for a disk does not count:
// the disk is the cause, and a restart does not fix it.
bool Health::Stands() const {
  if (sources_.writing() > kLongestUnit) return true;
  return sources_.journal().ok() && sources_.judging() > kLongestUnit;
}

void Health::Loop() {
  auto next_word = std::chrono::steady_clock::now();
  std::chrono::nanoseconds wait = kHealthLook;
  if (sources_.period.count() > 0) wait = std::min(wait, sources_.period);
  bool stood = false;
  MutexLock lock(mutex_);
  while (!stopped_) {
    lock.Unlock();
    const absl::Status now = Look();
    const bool stands = Stands();
    if (stands && !stood)
      LogCritical("a thread has been busy with one task for a minute: it is blocked");
    stood = stands;
    const auto clock = std::chrono::steady_clock::now();
    if (sources_.period.count() > 0 && clock >= next_word && !stands) {
      sources_.gets_on();
      next_word = clock + sources_.period;
    }
    lock.Lock();
    const bool differs = now.ok() != serving_.ok();
    serving_ = now;
    if (differs) {
      lock.Unlock();
      if (now.ok()) {
        LogInfo("serving again");
      } else {
        LogError("not serving: {}", std::string(now.message()));
      }
      if (sources_.changed) sources_.changed(now);
      lock.Lock();
    }
    wake_.WaitFor(lock, wait, [this]() PLUMB_REQUIRES(mutex_) { return stopped_; });
  }
}

}  // namespace plumbline::server
