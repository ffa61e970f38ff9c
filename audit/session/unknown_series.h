// Reports NaN in series of no role: no rule judges them, but a NaN deserves a note.
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
  explicit UnknownSeries(const SeriesRoles* roles) : roles_(roles) {}

  // Takes batches in the order in which the engine does.
  void Take(const v1::Batch& batch);
  // Returns (run, verdict) for each run that has such a series: one note that lists the first of
  // them.
  std::vector<std::pair<std::string, v1::Verdict>> Verdicts() const;

 private:
  struct Seen {
    int64_t first = 0, last = 0;  // steps with a NaN
    uint64_t values = 0;          // NaN values from the first on
    uint64_t finite_before = 0, finite_after = 0;
  };
  void TakeRows(const v1::Batch& batch, const v1::SeriesRows& rows);

  const SeriesRoles* roles_;
  std::map<std::pair<uint64_t, uint64_t>, std::vector<std::string>> sets_;  // stream, id: names
  std::map<std::string, std::map<std::string, Seen>> runs_;  // series with a NaN, by run
};

}  // namespace plumbline::audit
