// The verdicts of each run as queries show them, and a limit on the lines of all runs together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/query.pb.h"
#include "rules/engine/report.h"

namespace plumbline::server {

// Not thread-safe.
class RunReports {
 public:
  struct Judged {
    uint64_t judged = 0, inconclusive = 0;
  };

  rules::Report::Change Add(const v1::Verdict& verdict);
  void Forget(const std::string& run);
  std::vector<v1::Verdict> NotLookedAtSince(const analysis::RunSummary& run);  // see rules::Report

  // Adds the verdicts and counts of a run to the response; of all runs if the name is empty.
  void List(const std::string& run, v1::ListVerdictsResponse* response) const;
  std::map<std::string, Judged> Counts() const;
  // Returns the findings and lines that did not fit since the start.
  uint64_t left_out() const { return left_out_; }

  void Persist(Archive& archive);

 private:
  struct Entry {
    Entry() { report.Bound(); }
    rules::Report report;
    uint64_t judged = 0;
    uint64_t inconclusive = 0;
    void Persist(Archive& archive) { archive(report, judged, inconclusive); }
  };
  std::map<std::string, Entry> entries_;
  size_t lines_ = 0;  // in all of them
  uint64_t left_out_ = 0;
};

}  // namespace plumbline::server
