// Combines findings of one fault that several series of a run show: the parts of a loss diverge
// with their sum, a perplexity with its loss. The finding on the whole loss represents them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "analysis/role/role.h"
#include "plumbline/v1/finding.pb.h"

namespace plumbline::audit {

struct SeriesFold {
  std::set<std::string> fingerprints;  // of findings that another finding represents
  // The other series that a finding represents, by its fingerprint.
  std::map<std::string, std::vector<std::string>> series;

  // Adds the other series to the finding.
  void Amend(v1::Finding* finding) const;
};

// Combines findings of the rules on losses. They are one if they belong to one run, to training or
// to evaluation, have one cause and begin at the same place (within a twentieth of the steps that
// they span). A note on a part is one with the finding of its rule on the whole loss. Overfitting,
// and a loss that does not learn, are one wherever they begin. `left_out`: fingerprints of findings
// that are not shown.
SeriesFold FoldSeries(const std::vector<const v1::Finding*>& findings,
                      const std::set<std::string>& left_out, const SeriesRoles& roles);

}  // namespace plumbline::audit
