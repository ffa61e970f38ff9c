// Recognises learning rates by the series' name.
#pragma once

#include <optional>
#include <string>

namespace plumbline::analysis {

struct RateName {
  std::string stem;   // up to the word for the rate; common to the groups
  std::string group;  // the rest
};

// Parses "lr", "lr.1", "train/learning_rate", "lr-AdamW/pg1". If the series is no learning rate
// ("min_lr", "lr_scale"), returns nullopt.
std::optional<RateName> RateNameOf(const std::string& op);

}  // namespace plumbline::analysis
