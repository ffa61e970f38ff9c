// Writes closed steps as lines of JSON for the child processes of user rules.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "analysis/role/role.h"

namespace plumbline::audit {

// The lines of one child. Runs and sites have numbers, which the lines "run" and "site" declare:
//   {"run":0,"name":"exp1"}
//   {"site":3,"layer":"","op":"loss","series":"loss"}
//   {"step":12,"of":0,"attempt":0,"role":"trainer","world":2,"missing":[1],
//    "scalars":[[3,0,2.31]],"evidence":[[5,0,0,{...}]]}
//   {"end":0,"first":0,"last":12,"ranks":[0,1]}
// A scalar is [site, rank, value]; other evidence is [site, rank, call, message]. Not thread-safe.
class StepLines {
 public:
  // `reads` returns true for ops that some rule of the child reads.
  explicit StepLines(std::function<bool(const std::string& op)> reads) : reads_(std::move(reads)) {}

  void TakeSite(const analysis::SiteStep& step, const SeriesRoles& roles);
  // Returns the lines of the step; "" if it has nothing that is read.
  std::string EndStep(const analysis::StepEnd& step);
  std::string EndRun(const analysis::RunSummary& run);

 private:
  size_t RunNumber(const std::string& name, std::string* out);

  const std::function<bool(const std::string&)> reads_;
  std::map<std::string, size_t> runs_;
  // The numbers of sites; -1: not read.
  std::map<std::pair<std::string, std::string>, int64_t> sites_;
  std::string declared_, scalars_, evidence_;  // of the open step
  std::vector<uint32_t> missing_;
};

}  // namespace plumbline::audit
