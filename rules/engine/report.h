// Merges a stream of verdicts into what a person reads: one finding a fingerprint, one line per
// (rule, site, kind, reason). Shared by plumb audit's report and plumbd's incidents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

class Report {
 public:
  // Of a host that runs for months: beyond so many findings, and so many other lines, what is new
  // is counted and left out. A finding that is left out changes nothing.
  static constexpr size_t kMostFindings = 20'000, kMostLines = 100'000;
  void Bound(size_t findings = kMostFindings, size_t lines = kMostLines) {
    most_findings_ = findings;
    most_lines_ = lines;
  }
  uint64_t left_out() const { return left_out_; }
  // Findings and other lines that it holds.
  size_t size() const { return findings_.size() + verdicts_.size(); }

  struct Change {
    const v1::Finding* finding = nullptr;  // nullptr: the verdict was no finding
    bool opened = false;                   // first verdict of its fingerprint
    bool stronger = false;                 // its level or strength rose
    bool refined = false;                  // it has another cause now
    bool unsuppressed = false;             // a verdict that nothing suppresses, after others
    uint64_t count = 0;                    // verdicts merged so far
  };

  // Of a fingerprint the strongest counts (level, then strength). Its cause is the one that was
  // named with the most confidence at that strength, of equals the one named first by step and
  // rank; it is told in the words of the earliest that named it. So what a finding is in the end
  // does not depend on the order of its verdicts, but among those of one step and first rank, which
  // the engine tells in an order of their own. What a rule
  // of health/, or memory-creep, says with a `kind` stands in the place of what was told of the
  // same first step, at a lower level, too: it says what became of it.
  Change Add(const v1::Verdict& verdict);

  // By level (errors first), then strength, rule, layer, op.
  std::vector<const v1::Finding*> findings() const;
  // In order of (rule, layer, op, first step). Steps of equal verdicts are merged into one range.
  std::vector<const v1::Verdict*> verdicts() const;

  // Calls `change` with each finding, in no order. For a host that knows more of a run than the
  // rules, such as that its steps were counted; what makes the fingerprint must not change.
  void Amend(const std::function<void(v1::Finding*)>& change) {
    for (auto& [fingerprint, entry] : findings_) change(&entry.finding);
  }

  // Everything that was merged so far. most_findings_ and most_lines_ are the host's, left_out_ is
  // of this process.
  void Persist(Archive& archive);

 private:
  using Place = std::pair<int64_t, uint32_t>;  // step, first rank
  // One cause that was named at the strength the finding has.
  struct Told {
    v1::Finding finding;  // its earliest text, with the greatest confidence
    Place place{};        // of that text

    bool Merge(const v1::Finding& other, const Place& at);  // true: the text is another one now
    bool Beats(const Told& other) const;
    void Persist(Archive& archive);
  };
  struct Entry : Told {  // the cause that it has; its site is that of all verdicts
    uint64_t count = 0;
    bool suppressed = false;             // every verdict so far was
    std::map<std::string, Told> others;  // the causes that it does not have
    bool gone = false;                   // what showed is told anew, by what is taken next

    bool Forget(int64_t step);                             // true: another text shows
    bool Take(const v1::Finding& other, const Place& at);  // true: another text shows
    void Persist(Archive& archive);
  };
  bool Full(const v1::Verdict& verdict) const;

  size_t most_findings_ = SIZE_MAX, most_lines_ = SIZE_MAX;
  uint64_t left_out_ = 0;                  // since this process began
  std::map<std::string, Entry> findings_;  // by fingerprint
  std::map<std::tuple<std::string, std::string, std::string, std::string, int, std::string>,
           v1::Verdict>
      verdicts_;  // by rule, run, layer, op, kind, reason
};

}  // namespace plumbline::rules
