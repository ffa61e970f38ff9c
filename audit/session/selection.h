// Selects the findings that a report shows: all, or only those that are new since an earlier report
// or a step.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// The findings of an earlier JSON report. Two findings are the same if rule, layer and op are.
class Baseline {
 public:
  static constexpr uint64_t kMostBytes = 256u << 20;

  // Returns InvalidArgument "FILE: byte N: expected ..., found ..." if the file cannot be read, is
  // larger than kMostBytes, or is not a report.
  static absl::StatusOr<Baseline> Read(const std::string& path);
  static absl::StatusOr<Baseline> Parse(const std::string& text, const std::string& path);

  bool Knows(const v1::Finding& finding) const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::set<std::tuple<std::string, std::string, std::string>> known_;  // rule, layer, op
};

struct Selection {
  std::optional<Baseline> baseline;
  std::optional<int64_t> since;    // findings that end before this step are left out
  std::set<std::string> repeated;  // fingerprints of findings that another finding represents
                                   // (repeats.h)

  struct Result {
    std::vector<const v1::Finding*> shown;
    uint64_t known = 0;   // number left out because the baseline has them
    uint64_t before = 0;  // number left out because they ended before `since`
  };
  // Selects findings. The finding that nothing was judged is always shown, and `since` keeps
  // findings about the run as a whole (group meta).
  Result Of(const std::vector<const v1::Finding*>& findings) const;
};

}  // namespace plumbline::audit
