// Which series is a learning rate.
#pragma once

#include <optional>
#include <string>

namespace plumbline::rules {

struct RateName {
  std::string stem;   // up to the rate's own word: groups share it
  std::string group;  // what follows
};

// "lr", "lr.1", "train/learning_rate", "lr-AdamW/pg1"; nullopt: the series is no learning rate
// ("min_lr", "lr_scale").
std::optional<RateName> RateNameOf(const std::string& op);

}  // namespace plumbline::rules
