// Finds findings that several loggers of one run share. A console log, event files and a table in
// one place belong to one run, and one cause in them is one finding.
#pragma once

#include <deque>
#include <set>
#include <string>
#include <vector>

#include "analysis/role/role.h"
#include "audit/readers/input/reader.h"
#include "rules/engine/report.h"

namespace plumbline::audit {

struct Repeats {
  std::set<std::string> fingerprints;  // of findings that another finding represents
  std::string note;                    // for display; empty if there are none
};

// Two findings are one if they have the same rule, cause, first step, role of their series and
// similar measured values, in files of two formats, one of them in the folder of the other or below
// it. The one whose format Readers() lists first is kept. A checkpoint of one step belongs to its
// run's folder. If a checkpoint's weights and a loss of that folder are both non-finite, they are
// one finding: the earlier is kept. If the adapters of checkpoints are not trained, a flat loss and
// a gradient of zero of that folder are no findings of their own.
Repeats FindRepeats(const std::deque<InputReport>& inputs,
                    const std::vector<const v1::Finding*>& findings, const SeriesRoles& roles);

}  // namespace plumbline::audit
