#include "agent/core/run/record_sink.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"

namespace plumbline::agent {

using transport::SealedBatch;

namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".plr";
constexpr uint64_t kRetryNs = 1'000'000'000;    // a full disk may have space again
constexpr const char* kCause = "record-write";  // cause of the dropped evidence

// Returns "trainer-r00003-a"; the attempt follows.
std::string FilePrefix(v1::Role role, uint32_t rank) {
  char text[48];
  std::snprintf(text, sizeof(text), "%s-r%05u-a", role == v1::ROLE_ROLLOUT ? "rollout" : "trainer",
                rank);
  return text;
}

// Returns the attempt in `name`, or -1 if it is no record with that prefix.
int64_t AttemptOf(const std::string& name, const std::string& prefix) {
  const std::string suffix = kSuffix;
  if (name.size() <= prefix.size() + suffix.size() || name.compare(0, prefix.size(), prefix) != 0 ||
      name.compare(name.size() - suffix.size(), suffix.size(), suffix) != 0) {
    return -1;
  }
  uint32_t attempt = 0;
  const char* end = name.data() + name.size() - suffix.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, attempt);
  return error == std::errc() && stop == end ? static_cast<int64_t>(attempt) : -1;
}

}  // namespace

std::string RecordPath(const std::string& dir, v1::Role role, uint32_t rank, uint32_t attempt) {
  return (fs::path(dir) / (FilePrefix(role, rank) + std::to_string(attempt) + kSuffix)).string();
}

namespace {

absl::Status Unusable(const std::string& dir, const std::error_code& error) {
  return absl::UnavailableError("record directory " + dir + ": " + error.message());
}

// Returns `wanted`, or one more than the highest existing attempt.
absl::StatusOr<uint32_t> FreeAttempt(const std::string& dir, v1::Role role, uint32_t rank,
                                     uint32_t wanted) {
  std::error_code error;
  const std::string prefix = FilePrefix(role, rank);
  int64_t highest = -1;
  bool taken = false;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const int64_t attempt = AttemptOf(it->path().filename().string(), prefix);
    highest = std::max(highest, attempt);
    taken |= attempt == static_cast<int64_t>(wanted);
  }
  if (error) return Unusable(dir, error);
  return taken ? static_cast<uint32_t>(highest + 1) : wanted;
}

// Creates the file; returns false if another process created it first.
absl::StatusOr<bool> CreateAlone(const std::string& path) {
  int fd;
  do {
    fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0 && errno == EEXIST) return false;
  if (fd < 0) return absl::ErrnoToStatus(errno, path + ": cannot create");
  close(fd);
  return true;
}

}  // namespace

absl::StatusOr<uint32_t> ClaimAttempt(const std::string& dir, v1::Role role, uint32_t rank,
                                      uint32_t wanted) {
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) return Unusable(dir, error);
  // A directory listing over a network may be older than the files that we have found.
  uint32_t least = 0;
  for (;;) {
    const absl::StatusOr<uint32_t> free = FreeAttempt(dir, role, rank, wanted);
    if (!free.ok()) return free.status();
    const uint32_t attempt = std::max(*free, least);
    const absl::StatusOr<bool> ours = CreateAlone(RecordPath(dir, role, rank, attempt));
    if (!ours.ok()) return ours.status();
    if (*ours) return attempt;
    least = attempt + 1;
  }
}

absl::StatusOr<std::unique_ptr<RecordSink>> RecordSink::Open(const std::string& dir,
                                                             const v1::Source& source,
                                                             uint64_t stream_id,
                                                             uint64_t redacted_key) {
  std::string path = RecordPath(dir, source.role(), source.rank(), source.attempt());
  auto log = FramedLogWriter::Open(path);
  if (!log.ok()) return log.status();
  v1::RecordHeader header;
  header.set_schema("plumbline.record/1");
  header.set_tool_version(source.tool_version());
  *header.mutable_source() = source;
  header.set_created_unix_ns(static_cast<int64_t>(UnixNs()));
  header.set_redacted_key(redacted_key);
  if (absl::Status s = (*log)->Append(FrameType::kRecordHeader, header.SerializeAsString());
      !s.ok()) {
    return s;
  }
  return std::unique_ptr<RecordSink>(new RecordSink(std::move(path), stream_id, *std::move(log)));
}

// Appends in the order of sealing: losses of batches that could not be written go first.
void RecordSink::Append(const SealedBatch& batch, uint64_t now_ns) {
  if (log_ == nullptr && !Reopen(now_ns).ok()) return Keep(batch);
  if (owed_.body != nullptr) {
    status_ = Write(owed_);
    if (status_.ok()) owed_ = SealedBatch();
  }
  if (owed_.body == nullptr) status_ = Write(batch);
  if (status_.ok()) return;
  log_.reset();
  retry_ns_ = now_ns + kRetryNs;
  Keep(batch);
}

absl::Status RecordSink::loss() const {
  if (!loss_.ok()) return loss_;
  struct stat info {};
  if (stat(path_.c_str(), &info) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": was removed during the run"));
  if (log_ != nullptr && static_cast<uint64_t>(info.st_size) < log_->size_bytes())
    return absl::DataLossError(absl::StrCat(path_, ": expected ", log_->size_bytes(),
                                            " bytes, found ", info.st_size,
                                            ": it was cut or replaced during the run"));
  return absl::OkStatus();
}

absl::Status RecordSink::Write(const SealedBatch& batch) {
  absl::Status s = log_->Append(FrameType::kBatch,
                                *batch.body + transport::BatchNumber(stream_id_, sequence_ + 1));
  if (s.ok()) ++sequence_;
  return s;
}

absl::Status RecordSink::Reopen(uint64_t now_ns) {
  if (now_ns < retry_ns_) return status_;
  // Opening cuts off the remains of a failed write.
  auto log = FramedLogWriter::Open(path_);
  status_ = log.status();
  if (status_.ok()) {
    log_ = *std::move(log);
  } else {
    retry_ns_ = now_ns + kRetryNs;
  }
  return status_;
}

transport::SeriesSets RecordSink::Names() const {
  return names_ == nullptr ? transport::SeriesSets() : names_->All();
}

void RecordSink::Keep(const SealedBatch& batch) {
  if (!batch.hollow() && loss_.ok()) loss_ = status_;
  SealedBatch emptied = batch.hollow() ? batch : WithoutEvidence(batch, kCause, Names());
  owed_ = owed_.body == nullptr ? std::move(emptied) : Merged(owed_, emptied);
}

}  // namespace plumbline::agent
