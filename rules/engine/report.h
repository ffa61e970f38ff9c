// Merges a stream of verdicts into what a person reads: one finding a fingerprint, one line per
// (rule, site, kind, reason). Shared by plumb audit's report and plumbd's incidents.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/archive.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::rules {

class Report {
 public:
  struct Change {
    const v1::Finding* finding = nullptr;  // nullptr: the verdict was no finding
    bool opened = false;                   // first verdict of its fingerprint
    bool stronger = false;                 // its level or strength rose
    bool unsuppressed = false;             // a verdict that nothing suppresses, after others
    uint64_t count = 0;                    // verdicts merged so far
  };

  // The strongest finding of a fingerprint is kept, of equals the first, unless a later one names
  // another cause and is surer of it. Order matters only through the engine's own (deterministic)
  // order.
  Change Add(const v1::Verdict& verdict);

  // By level (errors first), then strength, rule, layer, op.
  std::vector<const v1::Finding*> findings() const;
  // In order of (rule, layer, op, first step). Steps of equal verdicts are merged into one range.
  std::vector<const v1::Verdict*> verdicts() const;

  // Everything that was merged so far.
  void Persist(Archive& archive);

 private:
  struct Entry {
    v1::Finding finding;
    uint64_t count = 0;
    bool suppressed = false;  // every verdict so far was
    void Persist(Archive& archive);
  };
  std::map<std::string, Entry> findings_;  // by fingerprint
  std::map<std::tuple<std::string, std::string, std::string, std::string, int, std::string>,
           v1::Verdict>
      verdicts_;  // by rule, run, layer, op, kind, reason
};

}  // namespace plumbline::rules
