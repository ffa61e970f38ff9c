// Findings that several loggers of one run hold: a console log, event files and a table beside each
// other are one run for a person, and one cause in them is one finding.
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
  std::set<std::string> fingerprints;  // of findings that another one stands for
  std::string note;                    // for people; empty: there are none
};

// Two findings are one if they have the same rule, cause, first step and role of their series, and
// measured alike, in files of two formats, one of them in the folder of the other or below it. Of
// these the one whose format Readers() lists first is kept. A checkpoint of one step lies in its
// run's folder. Weights of a checkpoint that are not finite are one with a loss of that folder that
// is not: what came first is kept.
Repeats FindRepeats(const std::deque<InputReport>& inputs,
                    const std::vector<const v1::Finding*>& findings, const SeriesRoles& roles);

}  // namespace plumbline::audit
