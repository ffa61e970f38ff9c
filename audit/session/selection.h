// Which findings a report shows: all, or only what is new since an earlier report or a step.
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

// The findings of an earlier JSON report. Two findings are the same where rule, layer and op are.
class Baseline {
 public:
  static constexpr uint64_t kMostBytes = 256u << 20;

  // InvalidArgument: it cannot be read, is larger than kMostBytes, or is no report: "FILE: byte N:
  // expected ..., found ...".
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
  std::set<std::string> repeated;  // fingerprints of what another finding stands for (repeats.h)

  struct Result {
    std::vector<const v1::Finding*> shown;
    uint64_t known = 0;   // left out: in the baseline
    uint64_t before = 0;  // left out: over before `since`
  };
  // That nothing was judged is always shown, and `since` leaves out no finding about the run as a
  // whole (group meta).
  Result Of(const std::vector<const v1::Finding*>& findings) const;
};

}  // namespace plumbline::audit
