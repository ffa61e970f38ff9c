// Numbers that a log's lines begin with: "3: 5/200 loss 2.5". Ranks (srun --label) print at the
// same time, so their lines are mixed; epochs come one after the other.
#pragma once

#include <string>

namespace plumbline::audit {

// Returns true if the labels at the beginning and the end of the file are epochs: each label has
// two lines or more, they rise, and none comes again after another. Thread-safe.
bool LabelsAreEpochs(const std::string& path);

}  // namespace plumbline::audit
