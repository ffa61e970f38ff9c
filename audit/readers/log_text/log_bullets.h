// Reads blocks that begin with a heading with the step, "===== Step 3/100 =====", and have one
// value per line, "  • Avg Reward: 0.25" (NeMo-RL).
#pragma once

#include <string>
#include <string_view>

namespace plumbline::audit {

// Not thread-safe.
class LogBullets {
 public:
  // If the line is a value of an open block, writes it to `own` as "Step 3/100 | Avg_Reward: 0.25"
  // and returns that. Otherwise returns the line.
  std::string_view Take(std::string_view line, std::string* own);

 private:
  std::string step_;         // "Step 3/100"; empty: no block is open
  bool validation_ = false;  // "Validation Results:" is the last title in the block
};

}  // namespace plumbline::audit
