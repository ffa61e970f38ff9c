// Writes a capsule as a directory: finding.json, a file for each call of each rank, and
// manifest.json with their digests. The directory is written under a temporary name and renamed, so
// that it is whole or absent.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/capsule.pb.h"

namespace plumbline::audit {

class CapsuleDirectory {
 public:
  // Returns InvalidArgument if `path` exists and is not an empty directory.
  static absl::StatusOr<CapsuleDirectory> Create(const std::string& path);
  CapsuleDirectory(CapsuleDirectory&&) = default;
  ~CapsuleDirectory();  // removes an unfinished directory

  // Adds what one process captured: several dumps, or one run record.
  absl::Status Add(const v1::Batch& batch);
  // Adds evidence of several steps, always as a run record.
  absl::Status AddJudged(const v1::Batch& batch) { return AddRecord(batch); }
  void AddMissing(uint32_t rank, const std::string& why);
  // Moves the directory to its final name. `origin` is "capture" or "journal".
  absl::Status Finish(const v1::Finding& finding, const std::string& origin,
                      const v1::CapsuleInfo& info);

  size_t missing() const { return missing_.size(); }
  size_t files() const { return files_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  struct File {
    std::string name, form, kind, sha256;
    uint32_t rank = 0, call = 0;
    int64_t step = 0;
    uint64_t bytes = 0;
  };
  CapsuleDirectory(std::string path, std::string temporary)
      : path_(std::move(path)), temporary_(std::move(temporary)) {}

  absl::Status Write(const std::string& name, const std::string& bytes) const;
  absl::Status AddRecord(const v1::Batch& batch);

  std::string path_, temporary_;
  std::vector<File> files_;
  std::vector<std::pair<uint32_t, std::string>> missing_;
  uint64_t bytes_ = 0;
};

}  // namespace plumbline::audit
