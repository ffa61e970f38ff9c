// Interprets numbers at the beginning of log lines: "3: 5/200 loss 2.5". Ranks (srun --label) print
// at the same time, so their lines are mixed. Epochs follow one another.
#pragma once

#include <string>

namespace plumbline::audit {

// Returns true if the labels at the beginning and the end of the file are epochs: each label has at
// least two lines, labels increase, and no label occurs again after another one. Thread-safe.
bool LabelsAreEpochs(const std::string& path);

}  // namespace plumbline::audit
