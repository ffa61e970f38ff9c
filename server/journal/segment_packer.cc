#include "server/journal/segment_packer.h"

#include <time.h>

#include <filesystem>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/journal/segment_rewrite.h"
#include "server/process/health.h"
#include "server/process/log.h"
#include "server/process/thread_priority.h"

namespace plumbline::server {
namespace {

constexpr std::chrono::milliseconds kBusy{100};
constexpr std::chrono::minutes kAfterFailure{1};

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  return error ? 0 : size;
}

}  // namespace

SegmentPacker::SegmentPacker(PackerOptions options, Mutex* files)
    : options_(std::move(options)), files_(files) {
  std::error_code error;
  std::filesystem::directory_iterator it(options_.directory, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    std::error_code ignored;
    if (IsRewritePath(it->path())) std::filesystem::remove(it->path(), ignored);
  }
}

SegmentPacker::~SegmentPacker() { Stop(); }

void SegmentPacker::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void SegmentPacker::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void SegmentPacker::Loop() {
  LowerThreadPriority();
  for (;;) {
    {
      MutexLock lock(mutex_);
      wake_.WaitFor(lock, options_.period,
                    [this]() PLUMB_REQUIRES(mutex_) { return woken_ || stopped_; });
      woken_ = false;
    }
    if (stopped_) return;
    (void)Round();
  }
}

void SegmentPacker::Wake() {
  {
    const MutexLock lock(mutex_);
    woken_ = true;
  }
  wake_.NotifyAll();
}

// Returns false if it must stop.
bool SegmentPacker::Wait(std::chrono::nanoseconds time) {
  MutexLock lock(mutex_);
  return !wake_.WaitFor(lock, time, [this]() PLUMB_REQUIRES(mutex_) { return stopped_.load(); });
}

bool SegmentPacker::WaitWhileBusy() {
  while (!stopped_ && options_.busy()) {
    if (!Wait(kBusy)) return false;
  }
  return !stopped_;
}

int SegmentPacker::Round() {
  if (Clock::now() < not_before_) return 0;
  const auto segments = ListSegments(options_.directory);
  if (!segments.ok()) return 0;
  const uint64_t settled = options_.settled();
  int written = 0;
  for (size_t i = 0; i + 1 < segments->size(); ++i) {
    const uint64_t last_entry = (*segments)[i + 1].first - 1;
    if (last_entry > settled) break;
    const Segment& segment = (*segments)[i];
    const bool old =
        options_.editor != nullptr && options_.editor->Due(segment, (*segments)[i + 1]);
    if (!Due(segment) && !old) continue;
    if (!WaitWhileBusy()) break;
    if (WriteAgain(segment, last_entry, old)) ++written;
    if (Clock::now() < not_before_) break;
  }
  return written;
}

bool SegmentPacker::Due(const Segment& segment) {
  if (done_.contains(segment.first)) return false;
  const auto packed = IsPacked(segment);
  const bool unreadable =
      absl::IsDataLoss(packed.status()) || absl::IsInvalidArgument(packed.status());
  if (unreadable || (packed.ok() && *packed == options_.pack)) done_.insert(segment.first);
  return packed.ok() && *packed != options_.pack;
}

bool SegmentPacker::WriteAgain(const Segment& segment, uint64_t last_entry, bool edit) {
  const double cpu = CpuSeconds();
  const uint64_t before = SizeOf(segment.path);
  DiskSpace space;
  absl::Status status;
  // A packed file is smaller; an unpacked one takes about four times as much.
  const uint64_t most = options_.pack ? before : 8 * before;
  if (SpaceOf(options_.directory, &space) && space.free < most + Health::kLeastFree) {
    status = absl::ResourceExhaustedError(
        absl::StrCat(most, " bytes of free disk space are not available"));
  } else {
    RewriteOptions options;
    options.pack = options_.pack;
    options.tool_version = options_.tool_version;
    options.go_on = [this] { return WaitWhileBusy(); };
    if (edit) {
      options_.editor->Begin();
      options.edit = [editor = options_.editor.get()](auto... entry) {
        return editor->Edit(entry...);
      };
    }
    try {
      status = RewriteSegment(segment, last_entry, options);
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("not enough memory");
    }
  }
  if (status.ok()) status = Replace(segment, before, edit);
  const bool final = status.ok() || absl::IsDataLoss(status);
  if (edit && final) options_.editor->Done(segment, status.ok());
  if (status.ok()) {
    LogInfo("journal: entries {} to {} {}: {:.1f} to {:.1f} MiB, {:.2f} s of CPU", segment.first,
            last_entry, options_.pack ? "packed" : "unpacked", MiB(before),
            MiB(SizeOf(segment.path)), CpuSeconds() - cpu);
    done_.insert(segment.first);
    return true;
  }
  if (absl::IsCancelled(status) || absl::IsNotFound(status)) return false;
  LogWarning("journal: entries {} to {} are not packed: {}", segment.first, last_entry,
             std::string(status.message()));
  if (absl::IsDataLoss(status) || absl::IsAlreadyExists(status)) {
    done_.insert(segment.first);
  } else {
    not_before_ = Clock::now() + kAfterFailure;
  }
  return false;
}

// A reader meanwhile sees either the old or the new file, complete.
absl::Status SegmentPacker::Replace(const Segment& segment, uint64_t size, bool edit) {
  const std::string fresh = RewritePath(segment);
  std::error_code error;
  const MutexLock lock(*files_);
  if (!std::filesystem::exists(segment.path, error)) {
    std::filesystem::remove(fresh, error);
    return absl::NotFoundError("retention removed it");
  }
  if (options_.pack && !edit && SizeOf(fresh) >= size) {
    std::filesystem::remove(fresh, error);
    return absl::AlreadyExistsError("they would not become smaller");
  }
  std::filesystem::rename(fresh, segment.path, error);
  if (error) {
    const std::string why = error.message();
    std::filesystem::remove(fresh, error);
    return absl::UnavailableError(absl::StrCat(segment.path, ": ", why));
  }
  // If the new name is not durable yet, the old file remains, with the same contents.
  (void)SyncDirectory(options_.directory);
  return absl::OkStatus();
}

}  // namespace plumbline::server
