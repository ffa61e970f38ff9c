// One fault that several series of a run show: the parts of a loss diverge with their sum, a
// perplexity with its loss. Of these the finding on the whole loss stands for all.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/role/role.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

struct SeriesFold {
  std::set<std::string> fingerprints;  // of findings that another one stands for
  // The series that a finding stands for beside its own, by its fingerprint.
  std::map<std::string, std::vector<std::string>> series;

  // Adds to the finding what it stands for.
  void Amend(v1::Finding* finding) const;
};

// Findings of the rules on losses are one if they are of one run, of training or of evaluation,
// have one cause and begin at the same place (within a twentieth of the steps that they span); a
// part's note is one with the finding of its rule on the whole loss. Overfitting and a loss that
// does not learn are one wherever they begin. `left_out`: fingerprints of findings that are not
// shown.
SeriesFold FoldSeries(const std::vector<const v1::Finding*>& findings,
                      const std::set<std::string>& left_out, const SeriesRoles& roles);

}  // namespace plumbline::audit
