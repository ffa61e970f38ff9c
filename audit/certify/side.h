// One side of a certificate: the batches of all files at a path, ordered by step.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "audit/certify/signing.h"
#include "audit/session/inputs.h"

namespace plumbline::audit {

// A step of one attempt of a run.
struct CertifiedStep {
  uint32_t attempt = 0;
  int64_t step = INT64_MIN;
  friend auto operator<=>(const CertifiedStep&, const CertifiedStep&) = default;
};

// A file of a side, by its place below the path.
struct CertifiedFile {
  std::string place, format;
  HashedFile hash;
};

// Name -> values, each with the side's words.
using Environment = std::map<std::string, std::set<std::string>>;

// Not thread-safe.
class CertifySide {
 public:
  // Opens the files at `path`. `mapped`: reads the user's own format.
  CertifySide(std::string path, const Reader* mapped);

  // Reads the next batch of the source that is least far. Returns false at the end.
  bool Next(v1::Batch* batch);
  bool ended() const { return active_.empty(); }
  // All evidence up to this step has been returned. At the end: the largest value.
  CertifiedStep position() const;
  // Returns true if the last batch keeps the payload of a NaN; text does not.
  bool exact_nan() const { return exact_nan_; }

  const std::string& path() const { return path_; }
  const std::deque<InputReport>& reports() const { return inputs_.reports; }
  // Returns "PATH: byte N: expected ..." for each problem; an unfinished last record is one.
  std::vector<std::string> Problems() const;
  // Returns the runs that the batches named.
  const std::set<std::string>& runs() const { return runs_; }
  Environment& environment() { return environment_; }

 private:
  struct Open {
    std::unique_ptr<Source> source;
    bool exact_nan = false;
  };
  void NoteSources(const v1::Batch& batch);

  std::string path_;
  Inputs inputs_;
  std::vector<Open> sources_;
  std::vector<size_t> active_;
  std::set<std::string> runs_;
  Environment environment_;
  bool exact_nan_ = false;
};

// The identity of files before they are read, to notice a change while they are read.
std::vector<std::string> StampsOf(const std::deque<InputReport>& reports);

// Hashes the files of a side. Returns an error if one cannot be read, or if `stamps` changed.
absl::StatusOr<std::vector<CertifiedFile>> HashSide(const std::string& path,
                                                    const std::deque<InputReport>& reports,
                                                    const std::vector<std::string>& stamps);

}  // namespace plumbline::audit
