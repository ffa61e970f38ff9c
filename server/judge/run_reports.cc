#include "server/judge/run_reports.h"

#include "analysis/processes/processes.h"

namespace plumbline::server {
namespace {

// Beyond kMostLines lines of all runs, a run has at most kFirstLines findings, and as many other
// lines.
constexpr size_t kMostLines = 1'000'000;
constexpr size_t kFirstLines = 100;

}  // namespace

rules::Report::Change RunReports::Add(const v1::Verdict& verdict) {
  Entry& run = entries_[verdict.site().run()];
  const uint64_t left_out = run.report.left_out();
  const size_t kept = run.report.size();
  if (lines_ < kMostLines) {
    run.report.Bound();
  } else {
    run.report.Bound(kFirstLines, kFirstLines);  // no run may use up the lines of another run
  }
  const rules::Report::Change change = run.report.Add(verdict);
  lines_ += run.report.size() - kept;
  left_out_ += run.report.left_out() - left_out;
  const bool ends = verdict.rule() == analysis::kRunDiedRule;  // does not judge the computation
  if (verdict.kind() == v1::Verdict::KIND_INCONCLUSIVE) {
    run.inconclusive += ends ? 0 : 1;
  } else if (!ends && verdict.rule().rfind("meta/", 0) != 0) {
    ++run.judged;
  }
  return change;
}

void RunReports::Forget(const std::string& run) {
  if (const auto entry = entries_.extract(run)) lines_ -= entry.mapped().report.size();
}

std::vector<v1::Verdict> RunReports::NotLookedAtSince(const analysis::RunSummary& run) {
  const auto entry = entries_.find(run.run);
  if (entry == entries_.end()) return {};
  return entry->second.report.NotLookedAtSince(run);
}

void RunReports::List(const std::string& run, v1::ListVerdictsResponse* response) const {
  for (const auto& [name, entry] : entries_) {
    if (!run.empty() && run != name) continue;
    for (const v1::Verdict* verdict : entry.report.verdicts()) *response->add_verdicts() = *verdict;
    response->set_judged(response->judged() + entry.judged);
    response->set_inconclusive(response->inconclusive() + entry.inconclusive);
  }
}

std::map<std::string, RunReports::Judged> RunReports::Counts() const {
  std::map<std::string, Judged> counts;
  for (const auto& [run, entry] : entries_) counts[run] = {entry.judged, entry.inconclusive};
  return counts;
}

void RunReports::Persist(Archive& archive) {
  archive(entries_);
  if (!archive.reading()) return;
  lines_ = 0;
  for (const auto& [run, entry] : entries_) lines_ += entry.report.size();
}

}  // namespace plumbline::server
