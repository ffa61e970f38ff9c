// Reports NaN in series of no role, which no rule judges (a note), and in metrics of a known role
// that are NaN up to the end (a warning).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/role/role.h"
#include "plumbline/v1/batch.pb.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

// Not thread-safe. `roles` must outlive it.
class UnknownSeries {
 public:
  struct Seen {
    int64_t first = 0, last = 0;  // steps with a NaN
    uint64_t values = 0;          // NaN values from the first on
    uint64_t finite_before = 0, finite_after = 0;
  };

  explicit UnknownSeries(const SeriesRoles* roles) : roles_(roles) {}

  // Takes batches in the order in which the engine does.
  void Take(const v1::Batch& batch);
  // Returns (run, verdict) for each run that has such series: one verdict of each kind, which lists
  // the first of them.
  std::vector<std::pair<std::string, v1::Verdict>> Verdicts() const;
  // True if some series has a role that is judged. If none has, there is no verdict, and a note on
  // a series of no role must not look like a verdict.
  static bool IsJudged(SeriesRole role);
  bool holds_judged() const { return holds_judged_; }

 private:
  struct Set {
    std::vector<std::string> names;
    std::vector<uint64_t*> before;  // by name: rows of earlier batches that have it
  };
  void TakeRows(const v1::Batch& batch, const v1::SeriesRows& rows, const Set& set);

  const SeriesRoles* roles_;
  bool holds_judged_ = false;
  std::map<std::pair<uint64_t, uint64_t>, Set> sets_;  // by stream and id
  std::map<std::string, uint64_t> rows_;  // that were read, by the name of a series in them
  std::map<std::string, std::map<std::string, Seen>> runs_;  // series with a NaN, by run
};

}  // namespace plumbline::audit
