// Turns the scalars of a step into one row over a list of series: 8 bytes per value on the wire,
// instead of about 60 for an evidence item. Used by the drain thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agent/core/sites/series_registry.h"
#include "agent/core/sites/site_table.h"
#include "plumbline/v1/batch.pb.h"

namespace plumbline::agent {

struct ScalarValue {
  const Site* site;
  uint32_t call;   // of the site within the step
  uint64_t order;  // within the step; 0: not known
  double value;
};

class ScalarRows {
 public:
  explicit ScalarRows(std::shared_ptr<SeriesRegistry> registry) : registry_(std::move(registry)) {}

  void Add(int64_t step, const ScalarValue& value) { open_[step].push_back(value); }
  bool empty() const { return open_.empty(); }

  // Called when every step up to `step` has ended: adds their values to `batch`, one row per step.
  // Adds second calls of a site, and values whose list cannot get a number, as evidence.
  void EndSteps(int64_t step, v1::Batch* batch);
  // Called when the batch is sealed: adds the values of open steps to it, as evidence.
  void Flush(v1::Batch* batch);

 private:
  struct List {
    uint64_t id = 0;               // number of the list; 0: it has none
    std::vector<uint32_t> column;  // of each value, in the order of arrival
  };
  const List& ListOf(const std::vector<const Site*>& sites, v1::Batch* batch);
  void AddRow(int64_t step, const std::vector<ScalarValue>& values, v1::Batch* batch);

  const std::shared_ptr<SeriesRegistry> registry_;
  std::map<int64_t, std::vector<ScalarValue>> open_;
  std::map<std::vector<const Site*>, List> lists_;        // by the order of arrival
  std::map<std::vector<const Site*>, uint64_t> numbers_;  // by the order of names
};

}  // namespace plumbline::agent
