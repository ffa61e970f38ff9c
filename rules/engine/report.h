// Merges a stream of verdicts into what a person reads: one finding per fingerprint, one line per
// (rule, site, kind, reason). Used by plumb audit's report and plumbd's incidents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "analysis/frame/frame.h"
#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

class Report {
 public:
  // Limits for a host that runs for months: beyond this number of findings or of other lines, a new
  // one is counted and left out. A finding that is left out changes nothing.
  static constexpr size_t kMostFindings = 20'000, kMostLines = 100'000;
  void Bound(size_t findings = kMostFindings, size_t lines = kMostLines) {
    most_findings_ = findings;
    most_lines_ = lines;
  }
  uint64_t left_out() const { return left_out_; }
  // Returns the number of findings and other lines held.
  size_t size() const { return findings_.size() + verdicts_.size(); }

  struct Change {
    const v1::Finding* finding = nullptr;  // nullptr: the verdict was not a finding
    bool opened = false;                   // first verdict of its fingerprint
    bool stronger = false;                 // its level or strength rose
    bool refined = false;                  // the finding has another cause now
    bool unsuppressed = false;             // a verdict that is not suppressed, after suppressed
                                           // ones
    uint64_t count = 0;                    // verdicts merged so far
  };

  // Merges a verdict. The strongest verdict of a fingerprint counts (level, then strength). Its
  // cause is the one given with the greatest confidence at that strength; if equal, the one given
  // first by step and rank. The text is that of the earliest verdict with this cause. So the final
  // finding does not depend on the order of its verdicts, except among those of one step and first
  // rank, which the engine orders. A verdict of a health/ rule or memory-creep with a `kind`
  // replaces the earlier one of the same first step, even if its level is lower, because it reports
  // the outcome. A verdict of a drift/ rule that states `steps_judged` replaces those with fewer
  // steps, because it describes all of them.
  Change Add(const v1::Verdict& verdict);

  // Returns the findings by level (errors first), then strength, rule, layer, op.
  std::vector<const v1::Finding*> findings() const;
  // Returns the verdicts in order of (rule, layer, op, first step). Steps of equal verdicts are
  // merged into one range.
  std::vector<const v1::Verdict*> verdicts() const;

  // Calls `change` with each finding, in no order. For a host that knows more about a run than the
  // rules do, such as that its steps were counted. `change` must not alter fields on which the
  // fingerprint depends.
  void Amend(const std::function<void(v1::Finding*)>& change) {
    for (auto& [fingerprint, entry] : findings_) change(&entry.finding);
  }

  // Called when the run is over. Sets the run's steps in its passes. Returns the verdicts that the
  // host must add next: a pass whose last look is before the last tenth of the run, although more
  // looks were due, becomes inconclusive (kNotLookedAtSince). A later pass of the same site
  // restores it.
  std::vector<v1::Verdict> NotLookedAtSince(const analysis::RunSummary& run);
  static constexpr char kNotLookedAtSince[] = "not-looked-at-since";

  // Stores or reads everything merged so far. The host sets most_findings_ and most_lines_;
  // left_out_ belongs to this process.
  void Persist(Archive& archive);

 private:
  using Place = std::pair<int64_t, uint32_t>;  // step, first rank
  // One cause that was given at the strength of the finding.
  struct Reported {
    v1::Finding finding;  // its earliest text, with the greatest confidence
    Place place{};        // the place of that text

    bool Merge(const v1::Finding& other, const Place& at);  // true: the text has changed
    bool Beats(const Reported& other) const;
    void Persist(Archive& archive);
  };
  struct Entry : Reported {  // its present cause; its site covers all verdicts
    uint64_t count = 0;
    bool suppressed = false;                 // every verdict so far was suppressed
    std::map<std::string, Reported> others;  // the other causes
    bool gone = false;                       // the next verdict taken replaces what was shown

    bool Forget(int64_t step);                             // true: the text shown changed
    bool Take(const v1::Finding& other, const Place& at);  // true: the text shown changed
    void Persist(Archive& archive);
  };
  using Lines =
      std::map<std::tuple<std::string, std::string, std::string, std::string, int, std::string>,
               v1::Verdict>;  // by rule, run, layer, op, kind, reason
  bool Full(const v1::Verdict& verdict) const;
  bool Continues(const Lines::key_type& key, v1::Verdict* line);

  size_t most_findings_ = SIZE_MAX, most_lines_ = SIZE_MAX;
  uint64_t left_out_ = 0;                  // since this process began
  std::map<std::string, Entry> findings_;  // by fingerprint
  Lines verdicts_;
};

}  // namespace plumbline::rules
